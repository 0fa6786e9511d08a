"""What all stores have in common: the operations on their files, and seekable files.

`Store` is the interface. Each kind of store is a subclass, which overrides what it does in a better
way, and a line in `store_of` of `recordmill.transforms.storage.files`.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import re
import shutil
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from email.utils import mktime_tz, parsedate_tz
from typing import Any, BinaryIO, NoReturn, TypeAlias, TypeVar, cast

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    wait_exponential,
    wait_random_exponential,
)


class TooLargeError(OSError):
    """An image above `--max_image_bytes`."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"is larger than {limit:,} bytes; --max_image_bytes allows no more")


class TooSlowError(OSError):
    """A file that was not read in time; not retried."""

    def __init__(self, seconds: float, error: object = "") -> None:
        cause = f"{error}; " if error else ""
        super().__init__(f"{cause}not read within {seconds:g} s")


T = TypeVar("T")

# Attempts per request. The waits between them add up to 16 s at least, and 32 s at most.
ATTEMPTS = 8

# Limit of the wait that a server asks for with Retry-After, in seconds.
_MAX_SERVER_WAIT = 120.0

# Shorter outages are not logged, and longer ones no more often than each minute.
_LOGGED_SECONDS, _LOG_SECONDS = 10.0, 60.0

_backoff = wait_exponential(multiplier=0.125, max=8) + wait_random_exponential(0.125, max=8)


class TransientError(OSError):
    """A failed request that may succeed if it is retried.

    `wait` is the wait that the server asks for, in seconds.
    """

    def __init__(self, what: str, wait: float = 0.0) -> None:
        super().__init__(what)
        self.wait = wait


def is_transient_status(status: int) -> bool:
    """Returns whether a request with this HTTP status may succeed later.

    >>> [status for status in (400, 403, 404, 429, 500, 501, 503) if is_transient_status(status)]
    [429, 500, 503]
    """
    # Request Timeout, Too Early, Too Many Requests; 501 is Not Implemented.
    return status in (408, 425, 429) or (status >= 500 and status != 501)


def seconds_of(retry_after: str | None) -> float:
    """Returns the seconds of a Retry-After header, which has seconds or a date; 0.0 if invalid."""
    if not retry_after:
        return 0.0
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        date = parsedate_tz(retry_after)
        return max(0.0, mktime_tz(date) - time.time()) if date else 0.0
    except (ValueError, OverflowError):  # not a valid date, or out of range
        return 0.0


def persist(request: Callable[[], T], seconds: float = math.inf) -> T:
    """Returns the result of a request, retried as long as it raises TransientError.

    No attempt starts after `seconds`. Raises the last OSError, with the number of attempts and the
    elapsed time; TooSlowError after the time limit.
    """
    deadline = time.monotonic() + seconds

    def attempt() -> T:
        try:
            return request()
        except TransientError as error:
            # Raised as another type, which is not retried.
            if time.monotonic() + error.wait >= deadline:
                raise TooSlowError(seconds, error) from error
            raise

    return _attempts(attempt)


def _wait(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    asked = error.wait if isinstance(error, TransientError) else 0.0
    return max(_backoff(state), min(asked, _MAX_SERVER_WAIT))


def _give_up(state: RetryCallState) -> NoReturn:
    error = state.outcome.exception() if state.outcome else None
    tried = f"given up after {state.attempt_number} attempts in {state.seconds_since_start:.1f} s"
    raise OSError(f"{error}; {tried}") from error


_log_due = 0.0


def _log_outage(state: RetryCallState) -> None:
    global _log_due
    seconds, error = state.seconds_since_start or 0, state.outcome and state.outcome.exception()
    if seconds >= _LOGGED_SECONDS and time.monotonic() >= _log_due:
        _log_due = time.monotonic() + _LOG_SECONDS
        logging.getLogger("recordmill").warning("retrying for %.0f s: %s", seconds, error)


_attempts = Retrying(
    retry=retry_if_exception_type(TransientError),
    wait=_wait,
    stop=stop_after_attempt(ATTEMPTS),
    before_sleep=_log_outage,
    retry_error_callback=_give_up,
)


# A range of bytes: the first, and the one after the last.
Span: TypeAlias = tuple[int, int]

# The bytes of a file, and its version tag, or None if its store has none.
TaggedBytes: TypeAlias = tuple[bytes, str | None]

# What identifies one version of an object: its ETag, and on Google Cloud its generation.
Version: TypeAlias = dict[str, str]

SHORTER = "the file has become shorter since it was listed"

_BUFFER_BYTES = 8 * 2**20

_WILDCARD = re.compile(r"[*?\[]")

# The parts of a glob pattern.
_TOKEN = re.compile(r"\*\*|\*|\?|\[!?\]?[^\]]*\]|.", re.DOTALL)

# The characters in a set of a glob pattern that have another meaning in a regular expression.
_ESCAPED = r"\\\g<0>"
_SPECIAL = re.compile(r"[\\^\[\]&~|]")


class Store(ABC):
    """A kind of store. Its operations raise OSError where the store does not do what is asked."""

    def open(self, path: str) -> BinaryIO:
        """Opens a file for seekable reads, without decompression."""
        return self.open_range(path, 0, self.size(path) or 0)

    def open_range(self, path: str, start: int, stop: int) -> BinaryIO:
        """Opens a byte range of a file; its reads raise `EOFError` if the file is shorter."""

        def read(first: int, end: int) -> bytes:
            return self.read(path, (start + first, start + end))[0]

        ranges = _RangeFile(stop - start, read)
        return cast("BinaryIO", _BufferedRanges(ranges, _BUFFER_BYTES))

    @abstractmethod
    def read(self, path: str, span: Span | None = None, limit: int = sys.maxsize) -> TaggedBytes:
        """Returns the bytes of a file, or a range of them, and its version tag.

        A range has fewer bytes where the file ends. Raises TooLargeError above `limit` bytes.
        """

    def version_tag(self, path: str) -> str | None:
        """Returns the version tag of an existing file, or None if the store has none."""
        return None

    def version(self, path: str) -> Version:
        """Returns the version of an existing file; an empty one if the store has none."""
        return {}

    def create(self, path: str) -> BinaryIO:
        """Opens a new file for writing; in most stores, it exists once it is closed."""
        raise OSError("cannot be written")

    def write(self, path: str, data: bytes, with_folders: bool) -> None:
        """Writes a whole file, replacing an existing one.

        `with_folders`: whether to create missing folders, in stores that do not always do so.
        """
        with self.create(path) as stream:
            stream.write(data)

    def copy(self, source: str, target: str) -> None:
        """Copies a file within the store, by reading it."""
        with self.open(source) as stream, contextlib.closing(self.create(target)) as copy:
            shutil.copyfileobj(stream, copy, _BUFFER_BYTES)

    def link(self, source: str, target: str) -> bool:
        """Gives a file another name, or a copy within the store; returns whether it can."""
        return False

    def move(self, source: str, target: str) -> None:
        """Renames a file: object stores copy it."""
        self.copy(source, target)
        self.delete(source)

    def delete(self, path: str) -> None:
        """Deletes a file, or a folder with everything in it, if it exists."""
        # Object stores have no folders: a path can be an object, a prefix of others, or both.
        below = [f"{path.rstrip('/')}/{name}" for name in self.all_files_below(path)]
        self.delete_files([*below, path] if self.is_file(path) else below, path)

    def delete_files(self, paths: Sequence[str], directory: str) -> None:
        """Deletes files in order, if they exist, then the folders that have become empty."""
        raise OSError("cannot be deleted")

    def make_folder(self, path: str) -> None:  # noqa: B027 - most stores need no other
        """Creates a folder in a folder that exists; does nothing in stores without folders."""

    def names_below(self, root: str, prefix: str = "") -> Iterator[str]:
        """Yields the names of the files below a folder that begin with a prefix, relative to it.

        `root` ends with /. `prefix` has none: other folders are not listed. Stores that cannot list
        all levels with one request list one by one.
        """
        folders, files = self.entries(root)
        yield from (name for name in files if name.startswith(prefix))
        for folder in folders:
            if folder.startswith(prefix):
                yield from (f"{folder}/{name}" for name in self.names_below(f"{root}{folder}/"))

    def all_files_below(self, directory: str) -> list[str]:
        """Returns the names of all files below a folder, sorted and relative to it."""
        return sorted(self.names_below(directory.rstrip("/") + "/"))

    def files_below(self, directory: str, pattern: str) -> list[str]:
        """Returns the names of files below a folder that match a pattern, sorted.

        The folder is taken literally, even if its name has wildcards. `**` matches any depth.
        """
        return list(filter(_matcher(pattern), self.all_files_below(directory)))

    def entries(self, folder: str) -> tuple[list[str], list[str]]:
        """Returns the names of the folders and of the files directly in a folder."""
        folders, files = dict[str, None](), list[str]()
        for name in self.names_below(folder.rstrip("/") + "/"):
            first, slash, _ = name.partition("/")
            if slash:
                folders[first] = None
            else:
                files.append(first)
        return list(folders), files

    def expand(self, pattern: str) -> list[str]:
        """Returns the files that a path or pattern matches, sorted."""
        if self.is_file(pattern):
            return [pattern]
        if not (wildcard := _WILDCARD.search(pattern)):
            return []
        stop = pattern.rfind("/", 0, wildcard.start()) + 1
        root, prefix = pattern[:stop], pattern[stop : wildcard.start()]
        matches = _matcher(pattern[stop:])
        return sorted(root + name for name in self.names_below(root, prefix) if matches(name))

    def exists(self, path: str) -> bool:
        """Returns whether a path is an existing file or folder."""
        try:
            self.size(path)
        except FileNotFoundError:
            return False
        return True

    def is_file(self, path: str) -> bool:
        """Returns whether a path is an existing file, not a folder."""
        return self.exists(path)

    @abstractmethod
    def size(self, path: str) -> int | None:
        """Returns the size of an existing file in bytes, or None if it is not known."""

    def ranged_size(self, path: str) -> int | None:
        """Returns the size of a file in bytes, or None if no byte range of it can be read."""
        return self.size(path)


def _matcher(pattern: str) -> Callable[[str], object]:
    r"""Returns a function that matches a name with a glob pattern.

    >>> [name for name in ("a.csv", "b/a.csv", "b/c/a.csv") if _matcher("*/[!b].csv")(name)]
    ['b/a.csv']
    """
    return re.compile("".join(map(_translated, _TOKEN.findall(pattern))), re.DOTALL).fullmatch


def _translated(token: str) -> str:
    inverted = "^" if token.startswith("[!") else ""
    if characters := token[1 + len(inverted) : -1]:  # a set
        return f"[{inverted}{_SPECIAL.sub(_ESCAPED, characters)}]"
    return {"**": ".*", "*": "[^/]*", "?": "."}.get(token) or re.escape(token)


class BoundedFile(io.RawIOBase):
    """A raw file that never reads past its size; a subclass fills buffers with its bytes."""

    def __init__(self, size: int) -> None:
        self._size, self._position = size, 0

    def readable(self) -> bool:
        """Returns True."""
        return True

    def seekable(self) -> bool:
        """Returns True."""
        return True

    def tell(self) -> int:
        """Returns the position of the next byte to read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Sets and returns the position, which may be past the end; reads there are empty."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fills a buffer with the next bytes; returns their number, 0 at the end."""
        most = min(len(buffer), self._size - self._position)
        if most <= 0:  # at the end of the file, without a read
            return 0
        number = self.fill(memoryview(buffer)[:most], self._position)
        self._position += number
        return number

    @abstractmethod
    def fill(self, buffer: memoryview, start: int) -> int:
        """Fills a buffer, which is not empty, with the bytes from `start`; returns their number.

        All of them are within the size.
        """


class _BufferedRanges(io.BufferedReader):
    """A buffer that is filled by each request.

    `TextIOWrapper` calls `read1`, which would send a request for the 8 KiB that it asks for.
    """

    def read1(self, size: int = -1, /) -> bytes:
        return self.read(size if size >= 0 else io.DEFAULT_BUFFER_SIZE)


class _RangeFile(BoundedFile):
    """A file whose reads are range requests; they raise `EOFError` if the file is shorter."""

    def __init__(self, size: int, read: Callable[[int, int], bytes]) -> None:
        super().__init__(size)
        self._read = read

    def fill(self, buffer: memoryview, start: int) -> int:
        data = self._whole(start, start + len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        if self._position >= self._size:
            return b""
        data = self._whole(self._position, self._size)  # one request, and no copy of a large file
        self._position += len(data)
        return data

    def _whole(self, start: int, stop: int) -> bytes:
        data = self._read(start, stop)
        if len(data) < stop - start:  # never taken for the end of the file
            raise EOFError(SHORTER)
        return data
