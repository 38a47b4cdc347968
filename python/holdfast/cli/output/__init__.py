"""The output of commands: tables, documents, rows and progress."""
