"""What an input is: its files, their formats and their columns."""
