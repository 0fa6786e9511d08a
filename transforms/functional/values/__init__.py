"""Values of rows: typed strictly, parsed from JSON within bounds."""
