"""The HTML report of a run: one self-contained page, built from the files that the run wrote."""
