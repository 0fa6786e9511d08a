"""Values of rows: strict conversion to types, and JSON parsing with bounded nesting."""
