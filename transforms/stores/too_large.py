"""What an image above the limit of bytes raises, wherever it is."""

from __future__ import annotations


class TooLargeError(OSError):
    """An image above `--max_image_bytes`."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"is larger than {limit:,} bytes; --max_image_bytes allows no more")
