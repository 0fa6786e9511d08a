"""What reading ends with, whatever a host or a file system sends: too many bytes, or too late."""

from __future__ import annotations


class TooLargeError(OSError):
    """An image above `--max_image_bytes`."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"is larger than {limit:,} bytes; --max_image_bytes allows no more")


class TooSlowError(OSError):
    """A file that did not come in time; no further attempt is made."""

    def __init__(self, seconds: float, error: object = "") -> None:
        told = f"{error}; " if error else ""
        super().__init__(f"{told}not read within {seconds:g} s")
