"""The findings of a run: what it noticed about the data, computed once and shown by every view."""
