"""report.html: one self-contained page for people, drawn from what a run has written."""
