"""Local files: only regular files, and for images only those below `--image_root` if it is set.

A table can name any path. Opening a FIFO blocks until there is a writer, a device may never end,
and opening some devices has side effects. Beam's local file system does so, takes `a[1].jpg` for a
pattern, and takes about 100 µs per file.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import io
import os
import shutil
import stat
import sys
import unicodedata
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, BinaryIO, cast

from recordmill.schemas.layout import is_url
from recordmill.schemas.records import ImageRef
from recordmill.transforms.functional.addresses import check_address, is_below, outside_root_error
from recordmill.transforms.storage.stores import store

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}
_CACHED_FOLDERS = 65_536
_RANGE_BUFFER_BYTES = 256 * 2**10


class NotRegularError(OSError):
    """A path that leads to a FIFO, a socket or a device; its argument says which."""

    def __str__(self) -> str:
        return f"{self.args[0]}; expected a regular file"


@dataclass(frozen=True)
class ImageRootGuard:
    """Confines the references of a run to `--image_root`, after resolving links.

    A guard resolves each folder once, and each run creates its own guard, because links may change
    between runs. A link that changes between the check and the read is not detected.
    """

    # The folder or address that contains all images; None allows every file.
    root: str | None = None

    def check_ref(self, ref: ImageRef) -> bool:
        """Rejects a reference whose image or another file is outside the root.

        Returns whether its image is known to be a regular file. Raises RecordError (outside_root).
        """
        # Staging files of the run itself are outside the root.
        is_regular = not ref.staged and self.check(ref.uri)
        for uri, _, _, staged in ref.others or ():
            if not staged:
                self.check(uri)
        return is_regular

    def check(self, path: str) -> bool:
        """Rejects a path or address outside the root.

        Returns whether it is known to be a regular file. Raises RecordError (outside_root).
        """
        root = self.root
        if root is None or not path:
            return False
        if is_url(path) or is_url(root):
            check_address(path, root)
            return False
        resolved, is_regular = self._resolve(existing_form(path))
        if not is_below(resolved, self._real_folder(root)):
            raise outside_root_error(resolved, root)
        return is_regular

    def _resolve(self, path: str) -> tuple[str, bool]:
        """Returns a path with all links resolved, and whether it is known to be a regular file.

        Links are resolved like `os.path.realpath`; the file need not exist. Takes one `lstat` for a
        file in a folder that has been resolved before.
        """
        slash = path.rfind("/") + 1
        folder, name = path[:slash], path[slash:]
        mode = 0
        with contextlib.suppress(OSError, ValueError):
            mode = os.lstat(path).st_mode
        if "\0" in path or name in ("", ".", "..") or stat.S_ISLNK(mode):
            # `realpath` rejects null bytes.
            return os.path.realpath(path.replace("\0", "\\0")), False
        return os.path.join(self._real_folder(folder or "."), name), stat.S_ISREG(mode)

    @cached_property
    def _real_folder(self) -> Callable[[str], str]:
        return lru_cache(_CACHED_FOLDERS)(os.path.realpath)

    def __getstate__(self) -> dict[str, Any]:
        return {"root": self.root}  # each worker resolves links on its own machine


def existing_form(path: str) -> str:
    """Returns a path in the Unicode form in which it exists; as it is if it exists, or in no form.

    macOS stores `é` as two characters (NFD), also in archives; most tables have one (NFC). Folders
    and the file may differ: forms are tried for the file, then for it and the folder above it, …. A
    path that exists takes one `lstat`, or none if it is ASCII.
    """
    if path.isascii():
        return path
    with contextlib.suppress(OSError, ValueError):  # such as null bytes: reported by the read
        return path if os.path.lexists(path) else next(_existing_forms(path), path)
    return path


def _existing_forms(path: str) -> Iterator[str]:
    parts = path.split("/")
    for first in reversed(range(len(parts))):
        if parts[first].isascii():
            continue
        folder, rest = "".join(f"{part}/" for part in parts[:first]), "/".join(parts[first:])
        for form in ("NFC", "NFD"):
            other = folder + unicodedata.normalize(form, rest)
            if os.path.lexists(other):
                yield other


def open_regular(path: str) -> BinaryIO:
    """Opens a regular file for reading; never blocks on a FIFO or a device.

    Raises NotRegularError: for a FIFO, a socket or a device. Raises OSError if the file cannot be
    opened; IsADirectoryError for a folder. Raises ValueError if the path has a null byte.
    """
    return open(path, "rb", opener=_open)


class _Range(store.BoundedFile):
    """A byte range of a file; `EOFError` where the file has become shorter."""

    def __init__(self, path: str, start: int, stop: int) -> None:
        super().__init__(stop - start)
        self._file = open(path, "rb", buffering=0, opener=_open)  # noqa: SIM115 - see `close`
        self._first = start

    def fill(self, buffer: memoryview, start: int) -> int:
        self._file.seek(self._first + start)
        rest = buffer
        while rest:  # filled without a copy; a file system may return a part of what is asked for
            number = self._file.readinto(rest)
            if not number:
                raise EOFError(store.SHORTER)
            rest = rest[number:]
        return len(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


def _read_regular(
    path: str, span: store.Span | None, limit: int, is_regular: bool = False
) -> tuple[bytes, str]:
    """Returns the bytes of a regular file, or a range of them, and the file's version tag.

    The tag is that of the opened file, taken before the read, because a link may change later.
    `is_regular`: whether it is known to be one, which saves a call.
    """
    # A file object would take as long as the read: it has a buffer, and asks for the state again.
    descriptor, state = _opened(path, os.O_RDONLY, is_regular)
    try:
        first, stop = span or (0, sys.maxsize)
        size = max(0, state.st_size - first)
        most = min(limit + 1, stop - first)
        if min(size, most) > limit:
            raise store.TooLargeError(limit)
        data = os.pread(descriptor, number := min(size + 1, most), first)
        # A file system may return a part of what is asked for. Where the file ends as stated,
        # asking again would only take a round trip.
        if len(data) not in (size, number):
            data += _read(descriptor, first + len(data), number - len(data))
        # Longer than stated: the file grows, or is in /proc, where all sizes are 0.
        if size < len(data) < most:
            data += _read(descriptor, first + len(data), most - len(data))
    finally:
        os.close(descriptor)
    if len(data) > limit:
        raise store.TooLargeError(limit)
    return data, _tag_of(state)


def _read(descriptor: int, start: int, number: int) -> bytes:
    """Returns bytes of an open file; fewer where it ends, or where a file in /proc would block."""
    data = b""
    try:
        while part := os.pread(descriptor, number - len(data), start + len(data)):
            data += part
    except BlockingIOError:
        pass
    return data


def _tag_of(state: os.stat_result) -> str:
    """Returns the version tag of a file, which changes whenever its content does.

    The tag consists of size, mtime, ctime and inode. No program can set ctime, and the inode
    distinguishes two files written within one tick of a coarse clock. The device number is left
    out, because it differs after a restart and between containers.
    """
    return f"{state.st_size} {state.st_mtime_ns} {state.st_ctime_ns} {state.st_ino}"


def is_special(path: str) -> bool:
    """Returns whether a path leads to a FIFO, a socket or a device."""
    with contextlib.suppress(OSError):
        return stat.S_IFMT(os.stat(path).st_mode) in _KINDS
    return False


def _open(path: str, flags: int) -> int:
    return _opened(path, flags)[0]


def _opened(path: str, flags: int, is_regular: bool = False) -> tuple[int, os.stat_result]:
    if not is_regular:  # checked before opening, which has side effects for some devices
        _check_kind(os.stat(path), path)
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    try:
        state = os.fstat(descriptor)
        _check_kind(state, path)  # the file may have been replaced since `stat`
    except OSError:
        os.close(descriptor)
        raise
    return descriptor, state


def _check_kind(state: os.stat_result, path: str) -> None:
    kind = stat.S_IFMT(state.st_mode)
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if kind != stat.S_IFREG:
        raise NotRegularError(f"is {_KINDS.get(kind, 'special')}")


class _LocalStore(store.Store):
    def open(self, path: str) -> BinaryIO:
        return open_regular(path)

    def open_range(self, path: str, start: int, stop: int) -> BinaryIO:
        return cast("BinaryIO", io.BufferedReader(_Range(path, start, stop), _RANGE_BUFFER_BYTES))

    def read(
        self, path: str, span: store.Span | None = None, limit: int = sys.maxsize
    ) -> store.TaggedBytes:
        return _read_regular(existing_form(path), span, limit)

    def read_regular(self, path: str, span: store.Span | None, limit: int) -> store.TaggedBytes:
        """Returns the same as `read`, of a path that was a regular file a moment ago."""
        return _read_regular(existing_form(path), span, limit, is_regular=True)

    def version_tag(self, path: str) -> str:
        return _tag_of(os.stat(existing_form(path)))

    def write(self, path: str, data: bytes, with_folders: bool) -> None:
        # Before the write, in which a root user could replace /dev/full.
        if os.path.lexists(path) and not os.path.isfile(path):
            raise OSError(errno.EINVAL, "is not a regular file", path)
        if with_folders:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        # Unique, because two attempts at the same bundle may write concurrently.
        partial = f"{path}.{uuid.uuid4().hex}.partial"
        try:
            with open(partial, "wb") as stream:
                stream.write(data)
            os.replace(partial, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(partial)
            raise

    def link(self, source: str, target: str) -> bool:
        try:
            os.link(source, target)
        except OSError:  # another file system, or one without hard links
            return False
        return True

    def move(self, source: str, target: str) -> None:
        os.replace(source, target)

    def delete(self, path: str) -> None:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def delete_files(self, paths: Sequence[str], directory: str) -> None:
        for path in paths:
            self.delete(path)
        for folder, *_ in os.walk(directory, topdown=False):
            with contextlib.suppress(OSError):  # the folder is not empty
                os.rmdir(folder)

    def make_folder(self, path: str) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)

    def create(self, path: str) -> BinaryIO:
        return open(path, "wb")

    def names_below(self, root: str, prefix: str = "") -> Iterator[str]:
        waiting = [""]  # folders to list, relative to the first
        while waiting:
            folder = waiting.pop()
            with contextlib.suppress(FileNotFoundError), os.scandir(root + folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(f"{folder}{entry.name}/")
                    elif (name := f"{folder}{entry.name}").startswith(prefix):
                        yield name

    def files_below(self, directory: str, pattern: str) -> list[str]:
        root = directory.rstrip("/") + "/"
        found = glob.glob(glob.escape(root) + pattern, recursive=True)
        return sorted(path[len(root) :] for path in found if os.path.isfile(path))

    def entries(self, folder: str) -> tuple[list[str], list[str]]:
        if not os.path.isdir(folder):
            return [], []
        with os.scandir(folder) as found:
            kinds = [(entry.name, entry.is_dir()) for entry in found]
        return [n for n, is_dir in kinds if is_dir], [n for n, is_dir in kinds if not is_dir]

    def expand(self, pattern: str) -> list[str]:
        return [pattern] if self.exists(pattern) else sorted(glob.glob(pattern, recursive=True))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size


LOCAL = _LocalStore()
