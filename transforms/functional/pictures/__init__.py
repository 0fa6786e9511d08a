"""Pictures: what their bytes say, whether they are whole, and what becomes of their pixels."""
