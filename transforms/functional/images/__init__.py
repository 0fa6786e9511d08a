"""Images: what their bytes say, whether they are whole, and how their pixels are transformed."""
