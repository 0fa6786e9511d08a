"""What is not on this machine: object stores, and the web."""
