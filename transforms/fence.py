"""Keeps references to files on this machine within `--image_root`, wherever links lead.

A folder's links are resolved once; what is left for an image is one look at its own name. A link
that is changed between that look and the reading is not seen.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache

from schemas.records import ImageRef
from schemas.rejects import RecordError
from transforms.files import is_local
from transforms.functional.confinement import check_address, is_below, outside

_FOLDERS = 65_536


@dataclass(frozen=True)
class Fence:
    """What may be read.

    Attributes:
        root: what all files are to be in; None lets every file pass.
    """

    root: str | None = None

    def refusal(self, ref: ImageRef) -> RecordError | None:
        """Returns why a reference's image or mask is not to be read, or None."""
        try:
            if not ref.staged:
                self.check(ref.uri)
            self.check(ref.mask_uri)
        except RecordError as error:
            return error
        return None

    def check(self, path: str) -> None:
        """Refuses a file that is outside.

        Raises:
            RecordError: outside_root.
        """
        root = self.root
        if root is None or not path:
            return
        if not (is_local(path) and is_local(root)):
            check_address(path, root)
            return
        place = real_path(path)
        if not is_below(place, _real_folder(root)):
            raise outside(place, root)


OPEN = Fence()
"""Lets every file pass."""


def real_path(path: str) -> str:
    """Returns where a path leads, all links followed; nothing need be there.

    As `os.path.realpath`, but for one look at the file where its folder is known.
    """
    slash = path.rfind("/") + 1
    folder, name = path[:slash], path[slash:]
    if "\0" in path or name in ("", ".", "..") or os.path.islink(path):
        return os.path.realpath(path.replace("\0", "\\0"))
    return os.path.join(_real_folder(folder), name)


@lru_cache(_FOLDERS)
def _real_folder(folder: str) -> str:
    return os.path.realpath(folder or ".")
