"""Images: identifies formats, reads headers, detects damage, and transforms pixels."""
