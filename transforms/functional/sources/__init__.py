"""What else has rows: folders, tars, and TFRecords of others; and what a file is at all."""
