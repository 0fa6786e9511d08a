"""The engines: which runner, how a job reaches it, how it fails, and what is patched in Beam."""
