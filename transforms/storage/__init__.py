"""Storage: files on this machine, in object stores and on the web, and published datasets."""
