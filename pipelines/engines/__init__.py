"""The engines: which one runs, how a job reaches it, and what it says of itself."""
