"""Text that can be encoded: names of files may be any bytes, which Python stands surrogates for."""

from __future__ import annotations

import os

from recordmill.schemas.errors import UsageError


def check_utf8(text: str) -> None:
    """Refuses a path or flag that neither Beam, Arrow nor JSON can hold.

    Raises:
        UsageError: if its bytes are not UTF-8.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{text}: is not text in UTF-8; rename the file or folder") from error


def working_folder() -> str:
    """Returns the working folder in UTF-8, other bytes escaped; "" if it was deleted."""
    try:
        return os.getcwdb().decode("utf-8", "backslashreplace")
    except FileNotFoundError:
        return ""
