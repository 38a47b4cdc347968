"""Pages of HTML that need nothing outside themselves, and the tables that they share with text."""
