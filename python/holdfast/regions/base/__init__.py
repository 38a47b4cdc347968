"""What the rest of regional pipelines stands on: errors, folders, durable files, splitting."""
