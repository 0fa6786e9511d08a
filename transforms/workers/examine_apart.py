"""Examines images for a command: in its own process where that is little work, else apart."""

from __future__ import annotations

from recordmill.transforms.functional.images.source_image import SourceImage, examine, examine_here
from recordmill.transforms.workers.sandbox import run_apart

_SECONDS = 10.0


def examine_apart(data: bytes) -> SourceImage:
    """Returns what the header of an image says, which anybody may have made.

    Raises:
        RecordError: as `examine`; timeout or decoder_crash, too.
    """
    return examine_here(data) or run_apart(examine, data, timeout=_SECONDS)
