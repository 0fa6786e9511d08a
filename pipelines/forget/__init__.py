"""`forget`: a version of a dataset without some records, and who else has them."""
