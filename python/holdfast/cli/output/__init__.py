"""What commands print: tables, documents, rows and progress."""
