"""Keeps references to files on this machine within `--image_root`, wherever links lead.

A folder's links are resolved once a run; what is left for an image is one look at its own name. A
link that is changed between that look and the reading is not seen.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from recordmill.schemas.records import ImageRef
from recordmill.transforms.functional.addresses import check_address, is_below, outside_root_error
from recordmill.transforms.storage.files import is_local

_FOLDERS = 65_536


@dataclass(frozen=True)
class ImageRootGuard:
    """What may be read, in one run: another run makes its own, as links may change in between.

    Attributes:
        root: what all files are to be in; None lets every file pass.
    """

    root: str | None = None

    def check_ref(self, ref: ImageRef) -> None:
        """Rejects a reference whose image or mask is outside.

        Raises:
            RecordError: outside_root.
        """
        if not ref.staged:
            self.check(ref.uri)
        self.check(ref.mask_uri)

    def check(self, path: str) -> None:
        """Rejects a file that is outside.

        Raises:
            RecordError: outside_root.
        """
        root = self.root
        if root is None or not path:
            return
        if not (is_local(path) and is_local(root)):
            check_address(path, root)
            return
        place = self.real_path(path)
        if not is_below(place, self._real_folder(root)):
            raise outside_root_error(place, root)

    def real_path(self, path: str) -> str:
        """Returns where a path leads, all links followed; nothing need be there.

        As `os.path.realpath`, except for one look at the file where its folder is known.
        """
        slash = path.rfind("/") + 1
        folder, name = path[:slash], path[slash:]
        if "\0" in path or name in ("", ".", "..") or os.path.islink(path):
            return os.path.realpath(path.replace("\0", "\\0"))
        return os.path.join(self._real_folder(folder or "."), name)

    @cached_property
    def _real_folder(self) -> Callable[[str], str]:
        return lru_cache(_FOLDERS)(os.path.realpath)

    def __getstate__(self) -> dict[str, Any]:
        return {"root": self.root}  # a worker looks for itself


OPEN = ImageRootGuard()
"""Lets every file pass."""
