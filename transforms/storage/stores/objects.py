"""Reads, writes and deletes objects of `s3://`, `gs://` and `azfs://` with obstore.

obstore's requests release the GIL, and clients live as long as the process, so an image takes one
GET. Beam's file systems create a client per file and request its size first: 125 ms of CPU per
image on the test machine, compared with 0.3 ms (boto3's `get_object`: 1.2 ms). They write an object
with at least three requests, and cannot write on condition that the key is free.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple, TypeVar, cast

import obstore

from recordmill.schemas.errors import UsageError
from recordmill.schemas.layout import is_url
from recordmill.transforms.storage.stores import clients
from recordmill.transforms.storage.stores.options import StoreOptions, current_options
from recordmill.transforms.storage.stores.store import (
    Span,
    Store,
    TaggedBytes,
    TooLargeError,
    TransientError,
    Version,
    is_transient_status,
    persist,
)

T = TypeVar("T")

_URI = re.compile(r"(?:(s3|gs)://([^/]+)|(azfs)://([^/]+)/([^/]+))(?:/(.*))?", re.DOTALL)
_EXTRAS = {"s3": "aws", "gs": "gcp", "azfs": "azure"}
# These read the texts of obstore's exceptions, which have no attributes for status and cause.
_STATUS = re.compile(r"status code: (\d{3})")
_TIMED_OUT = re.compile(r"kind: Timeout")
_DEEPEST = re.compile(r'(?:message|error): "([^"]+)"')
_CODE = re.compile(r"<Code>(\w+)</Code>")
_TRANSIENT_CODES = ("RequestTimeout", "InternalError", "SlowDown")
# With 409, which obstore takes for an object that exists: another request was in progress.
_CONFLICT_CODES = ("ConditionalRequestConflict", "OperationAborted")

# No further attempt starts after this; one attempt may take as long (`_client_options`).
_MAX_SECONDS = 600.0

# No character of a key is after this one.
_LAST = "\U0010ffff"

_TAKEN = (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError)
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")


class ObjectPath(NamedTuple):
    """The address of an object."""

    scheme: str  # "s3", "gs" or "azfs"
    account: str  # storage account of Azure; "" elsewhere
    bucket: str  # bucket or container
    key: str


def parse(uri: str) -> ObjectPath | None:
    """Parses a URL; None for other stores, and for keys that obstore does not accept.

    obstore rejects empty parts, `.` and `..` in keys; Beam's file systems read those.

    >>> parse("s3://birds/a b/1.jpg")
    ObjectPath(scheme='s3', account='', bucket='birds', key='a b/1.jpg')
    """
    match = _URI.fullmatch(uri)
    if not match:
        return None
    key = match[6] or ""
    parts = key.removesuffix("/").split("/") if key else []
    if any(part in ("", ".", "..") or not part.isprintable() for part in parts):
        return None
    return ObjectPath(match[1] or match[3], match[4] or "", match[2] or match[5], key)


def put(path: str, data: Any, mode: Any = "overwrite") -> Version:
    """Writes a whole object with one request, and returns its version.

    A file mapped into memory is sent without a copy. `mode`: "overwrite"; or "create", or the only
    version to replace, with FileExistsError if there is another one.
    """
    # Only a single request can have a condition: uploads in parts have none in obstore.
    return _request(
        path,
        lambda store, key: _version(obstore.put(store, key, data, mode=mode, use_multipart=False)),
    )


class _ObjectStore(Store):
    """The store of all paths that `parse` accepts."""

    def read(self, path: str, span: Span | None = None, limit: int = sys.maxsize) -> TaggedBytes:
        if span and span[1] <= span[0]:  # stores reject an empty range
            return b"", self.version_tag(path)
        options: Any = {"range": span} if span else None
        return _request(
            path, lambda store, key: _content(obstore.get(store, key, options=options), limit, span)
        )

    def version_tag(self, path: str) -> str:
        return _version_tag(_head(path))

    def version(self, path: str) -> Version:
        return _version(_head(path))

    def create(self, path: str) -> BinaryIO:
        where = _parsed(path)
        created: Any = obstore.open_writer(_CLIENTS.of(where, retries=True), where.key)
        return cast("BinaryIO", _Upload(created, where))

    def write(self, path: str, data: bytes, with_folders: bool) -> None:
        put(path, data)

    def link(self, source: str, target: str) -> bool:
        one, other = parse(source), _parsed(target)
        if one is None or one._replace(key="") != other._replace(key=""):
            return False
        try:
            _request(source, lambda store, key: obstore.copy(store, key, other.key))
        except OSError:  # some stores copy no objects, or none that are large
            return False
        return True

    def delete_files(self, paths: Sequence[str], directory: str) -> None:
        if not paths:
            return
        keys = [_parsed(path).key for path in paths]
        try:
            _request(paths[0], lambda store, _: obstore.delete(store, keys))
        except FileNotFoundError:  # S3 ignores missing objects; other stores end the request
            for path in paths:
                with contextlib.suppress(FileNotFoundError):
                    _request(path, lambda store, key: obstore.delete(store, key))

    def names_below(self, root: str, prefix: str = "") -> Iterator[str]:
        where = _parsed(root)
        if prefix and where.scheme == "azfs":  # whose listings do not begin at a name
            yield from super().names_below(root, prefix)
            return
        folder = where.key.rstrip("/") + "/" if where.key else ""
        client, first = _CLIENTS.of(where, retries=True), folder + prefix
        if prefix and self.is_file(f"{root}{prefix}"):
            yield prefix  # listings of S3 begin after it
        with _translated_errors(where):
            for page in obstore.list(client, folder[:-1] or None, offset=first if prefix else None):
                keys = [meta["path"] for meta in page]
                found = (key for key in keys if key.startswith(first) and key != first)
                yield from (key[len(folder) :] for key in found)
                if prefix and keys and keys == sorted(keys) and keys[-1] > first + _LAST:
                    return  # most stores sort their listings

    def entries(self, folder: str) -> tuple[list[str], list[str]]:
        where = _parsed(folder)
        client, prefix = _CLIENTS.of(where, retries=True), where.key.rstrip("/")
        with _translated_errors(where):
            found = obstore.list_with_delimiter(client, prefix or None)
        keys = [key.rstrip("/") for key in found["common_prefixes"]]
        files = [meta["path"] for meta in found["objects"] if meta["path"] != prefix]
        folders, names = ([key.rpartition("/")[2] for key in group] for group in (keys, files))
        return folders, names

    def exists(self, path: str) -> bool:
        return self.is_file(path) or next(self.names_below(path), None) is not None

    def is_file(self, path: str) -> bool:
        key = _parsed(path).key
        return bool(key) and not key.endswith("/") and super().exists(path)

    def size(self, path: str) -> int:
        return int(_head(path)["size"])


OBJECTS = _ObjectStore()


class _Upload:
    """An object that is uploaded in parts while it is written; it exists once it is closed.

    Not an `IOBase`, which closes itself where an incomplete file is abandoned.
    """

    def __init__(self, writer: Any, path: ObjectPath) -> None:
        self._writer, self._path = writer, path

    def write(self, data: bytes) -> int:
        with _translated_errors(self._path):
            return int(self._writer.write(data))

    def close(self) -> None:
        with _translated_errors(self._path):
            self._writer.close()


def _parsed(path: str) -> ObjectPath:
    if found := parse(path):
        return found
    raise OSError(f"{path}: is not the address of an object")


def _head(path: str) -> Any:
    return _request(path, obstore.head)


@contextlib.contextmanager
def _translated_errors(path: ObjectPath) -> Iterator[None]:
    """Translates errors of listings and uploads, whose requests obstore retries itself."""
    try:
        yield
    except (obstore.exceptions.BaseError, OSError) as error:
        raise OSError(str(_translate_error(error, path))) from error


def _content(result: Any, limit: int, span: Span | None) -> tuple[bytes, str]:
    first, end = result.range
    if end - first > limit:  # from the headers, before the body is read
        raise TooLargeError(limit)
    data = result.bytes().to_bytes()
    start, stop = span or (0, sys.maxsize)
    expected = min(stop, result.meta["size"]) - start
    if len(data) < expected:  # also where the headers agree with the short body
        raise TransientError(f"the store sent {len(data):,} of {expected:,} bytes")
    return data, _version_tag(result.meta)


def _version_tag(meta: Any) -> str:
    return f"{meta['size']} {meta['e_tag'] or meta['last_modified'].isoformat()}"


def _version(meta: Any) -> Version:
    return {name: meta[name] for name in ("e_tag", "version") if meta[name]}


def _request(path: str, request: Callable[[Any, str], T]) -> T:
    """Returns the result of a request with a client and a key, with retries of transient errors."""
    where = _parsed(path)
    store = _CLIENTS.of(where)

    def attempt() -> T:
        try:
            return request(store, where.key)
        except (TooLargeError, TransientError):  # OSErrors, but not of obstore
            raise
        except (obstore.exceptions.BaseError, OSError) as error:
            raise _translate_error(error, where) from error

    return persist(attempt, _MAX_SECONDS)


def _translate_error(error: Exception, path: ObjectPath) -> OSError:
    """Translates an error of obstore to a short message without URLs and signatures."""
    text = str(error).partition("\n\nDebug source")[0]  # which repeats URLs with signatures
    status = int(found[1]) if (found := _STATUS.search(text)) else 0
    code = found[1] if (found := _CODE.search(text)) else ""
    answer = f"{status} {code}".rstrip() if status else ""
    if code in _CONFLICT_CODES:
        return TransientError(f"the store responds with {answer}")
    if isinstance(error, _TAKEN):
        return FileExistsError("another object has that name")
    if isinstance(error, FileNotFoundError) or status == 404:
        what = f"no such bucket: {path.bucket}" if code in _NO_BUCKET else "no such object"
        return FileNotFoundError(f"{what} ({answer})" if answer else what)
    if status in (401, 403):
        advice = "Check credentials and permissions."
        if path.scheme == "s3":  # which answers 403 if the bucket may not be listed
            advice += " S3 also denies access to a missing object."
        return PermissionError(f"access denied ({answer}). {advice}")
    if status and not is_transient_status(status) and code not in _TRANSIENT_CODES:
        advice = ""
        if code == "AuthorizationHeaderMalformed" or status == 301:
            advice = "; the bucket is in another region. Set --s3_region_name or AWS_REGION."
        return OSError(f"the store responds with {answer}{advice}")
    reason = answer or _cause(str(error))
    return TransientError(f"the store responds with {reason}" if status else reason)


def _cause(text: str) -> str:
    """Returns why there was no answer, from the innermost error that has a message."""
    head, _, debug = text.partition("\n\nDebug source")
    if _TIMED_OUT.search(debug):
        return "timed out"
    what = head.rpartition(" - ")[2].strip() or "no answer"
    deepest = _DEEPEST.findall(debug)
    return f"{what}: {deepest[-1]}" if deepest and deepest[-1] not in what else what


class _Clients:
    """The clients of this process, one per bucket, created again when the options change."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._options: StoreOptions | None = None
        self._clients: dict[tuple[str, str, str, bool], Any] = {}
        self._process: int | None = None  # in which the first client was created

    def of(self, path: ObjectPath, retries: bool = False) -> Any:
        options = current_options()
        if self._process not in (None, os.getpid()):
            # Would wait forever: https://github.com/developmentseed/obstore/pull/441
            raise UsageError(
                f"{path.scheme}://{path.bucket}: this process was forked from one that has read "
                "from the store, and the connection does not survive a fork. Start it in another "
                'way: multiprocessing.get_context("spawn"), or DataLoader(…, '
                'multiprocessing_context="spawn").'
            )
        with self._lock:
            self._process = os.getpid()
            if options is not self._options:  # of another run, whose environment may differ
                self._options, self._clients = options, {}
            name = (path.scheme, path.account, path.bucket, retries)
            if name not in self._clients:  # may request the bucket's region: other threads wait
                policy = clients.MANY_PAGES if retries else clients.ONCE
                self._clients[name] = _make(path, options, policy)
            return self._clients[name]


def library_settings(root: str) -> dict[str, str]:
    """Returns the settings of a store for a library that accesses it with its own client.

    Google's client reads its environment. Raises OSError if the extra of the store is not
    installed. Raises ValueError if such libraries cannot use the store.
    """
    if not is_url(root):
        return {}
    path = parse(root)
    if path is None or path.scheme not in ("s3", "gs"):
        raise ValueError("expected a local path, s3:// or gs://")
    if path.scheme == "gs":
        return {}
    with _opening(path):
        return clients.s3_settings(path.bucket, current_options())


def _make(path: ObjectPath, options: StoreOptions, retries: Any) -> Any:
    with _opening(path):
        if path.scheme == "s3":
            return clients.s3_store(path.bucket, options, retries)
        if path.scheme == "gs":
            return clients.gcs_store(path.bucket, options, retries)
        return clients.azure_store(path.account, path.bucket, options, retries)


@contextlib.contextmanager
def _opening(path: ObjectPath) -> Iterator[None]:
    """Names the extra to install for a store, or what is wrong with its credentials."""
    try:
        yield
    except ImportError as error:
        extra = _EXTRAS[path.scheme]
        needs = f"{path.scheme}:// needs the extra [{extra}]: pip install 'recordmill[{extra}]'"
        raise OSError(f"{needs} ({error})") from error
    except Exception as error:  # each library has its own, for profiles and keys
        where = f"{path.scheme}://{path.bucket}"
        raise UsageError(f"{where}: check the credentials of the store: {error}") from error


_CLIENTS = _Clients()
