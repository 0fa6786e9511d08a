"""Reads `http://` and `https://` with limits, and only from public addresses (against SSRF).

Tables are untrusted input. The addresses of a host are checked before connecting, and connections
go to a checked address, so neither redirects nor DNS rebinding can reach a private host.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import math
import re
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from importlib import metadata
from typing import Any, BinaryIO, NamedTuple, cast
from urllib.parse import unquote, urljoin

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    LocationValueError,
    NameResolutionError,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)
from urllib3.util import Timeout, make_headers

from recordmill.schemas.layout import is_web
from recordmill.transforms.functional.addresses import WebAddress, is_public, parse_web_address
from recordmill.transforms.storage.stores.options import WebOptions, current_options
from recordmill.transforms.storage.stores.retries import (
    TooLargeError,
    TransientError,
    is_transient_status,
    persist,
    seconds_of,
)
from recordmill.transforms.storage.stores.store import Store, TaggedBytes

_MAX_REDIRECTS = 5

# Limit of all attempts to read an image, including redirects and waits.
_MAX_SECONDS = 300.0

_MAX_SIZE_SECONDS = 60.0
_MAX_TABLE_SECONDS = 3600.0
_MAX_TABLE_BYTES = 64 * 2**30

# Allowance for headers, redirects and chunk framing, in addition to twice the body.
_OTHER_BYTES = 2**20

_SHORT_BYTES = 10_000

# Unused bodies up to these limits are drained, to keep the connection.
_SHORT_SECONDS = 1.0

_SHOWN_CHARACTERS = 100
_LENGTH = re.compile(r"[0-9]{1,18}")
_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/(?:([0-9]{1,18})|\*)")

# Size above which a downloaded table moves from memory to a temporary file.
_SPOOLED_BYTES = 16 * 2**20

_CONNECT_SECONDS = 10.0
_CHUNK_BYTES = 2**18
_HOSTS = 64


class _Stop(Exception):
    """Ends a read without retries. Not an OSError, which urllib3 treats as a failed connection."""


class _Read(threading.local):
    """The limits of the current read of a thread.

    Checked at each read of a socket, so that they include headers, redirects and chunk framing.

    `only_public`: whether hosts must have public addresses.
    """

    deadline = math.inf
    bytes_left: float = math.inf  # number of bytes that may still arrive
    only_public = True

    def seconds_left(self, most: float) -> float:
        """Returns the seconds to wait for a host, at most `most`.

        Raises TimeoutError: after the deadline.
        """
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return min(most, left)

    def count(self, size: int) -> None:
        """Counts received bytes.

        Raises _Stop if the response exceeds the limit.
        """
        self.bytes_left -= size
        if self.bytes_left < 0:
            raise _Stop("sends more bytes than a file of the allowed size has")


_READ = _Read()


class WebSettings(NamedTuple):
    """Settings for reading from the web; see `WebOptions`."""

    allow_private_hosts: bool
    http_connections: int
    http_timeout: int
    max_image_bytes: int


def _get(
    url: str, start: int | None = None, stop: int | None = None, limit: int | None = None
) -> bytes:
    """Returns the bytes of a file on the web, or a range of them.

    `start` is the first byte; None for the whole file. `limit` is the maximum number of bytes; None
    for `--max_image_bytes`. Raises OSError if the file cannot be read; FileNotFoundError if it does
    not exist.
    """
    web = _WEB_CLIENTS.current()
    deadline = time.monotonic() + _MAX_SECONDS
    most = web.settings.max_image_bytes if limit is None else limit

    def attempt() -> bytes:
        return b"".join(web.chunks(url, start, stop, most, deadline))

    return persist(attempt, _MAX_SECONDS)


def _download(url: str, target: BinaryIO) -> None:
    """Downloads a table, which may be larger than an image.

    `target`: file to write to; truncated before each attempt. Raises OSError if the file cannot be
    read; FileNotFoundError if it does not exist.
    """
    web = _WEB_CLIENTS.current()
    deadline = time.monotonic() + _MAX_TABLE_SECONDS

    def attempt() -> None:
        target.seek(0)
        target.truncate()
        for chunk in web.chunks(url, None, None, None, deadline):
            target.write(chunk)

    persist(attempt, _MAX_TABLE_SECONDS)


class _WebStore(Store):
    def open(self, path: str) -> BinaryIO:
        size = 0
        with contextlib.suppress(OSError):  # reported by the download
            size = self.ranged_size(path) or 0
        return self.open_range(path, 0, size) if size > _SPOOLED_BYTES else _downloaded(path)

    def read(self, path: str, start: int | None, stop: int | None, limit: int) -> TaggedBytes:
        return _get(path, start, stop, limit), None

    def expand(self, pattern: str) -> list[str]:
        return [pattern]

    def exists(self, path: str) -> bool:
        try:
            self.size(path)
        except FileNotFoundError:
            return False
        return True

    def size(self, path: str) -> int | None:
        web, deadline = _WEB_CLIENTS.current(), time.monotonic() + _MAX_SIZE_SECONDS
        return persist(lambda: web.length(path, deadline), _MAX_SIZE_SECONDS)

    def ranged_size(self, path: str) -> int | None:
        web, deadline = _WEB_CLIENTS.current(), time.monotonic() + _MAX_SIZE_SECONDS
        return persist(lambda: web.ranged_length(path, deadline), _MAX_SIZE_SECONDS)


WEB = _WebStore()


def _downloaded(url: str) -> BinaryIO:
    spooled = tempfile.SpooledTemporaryFile(_SPOOLED_BYTES, prefix="recordmill-")  # noqa: SIM115 - the caller closes it
    _download(url, cast("BinaryIO", spooled))
    spooled.seek(0)
    return cast("BinaryIO", io.BufferedReader(cast("io.RawIOBase", spooled)))


class Web:
    """Pooled connections to the web, shared by all threads."""

    def __init__(self, settings: WebSettings) -> None:
        self.settings = settings

    @cached_property
    def _pools(self) -> urllib3.PoolManager:
        pools = urllib3.PoolManager(
            num_pools=_HOSTS,
            maxsize=self.settings.http_connections,
            block=True,  # threads wait while all connections of a host are busy
            timeout=Timeout(connect=_CONNECT_SECONDS, read=self.settings.http_timeout),
            retries=False,
        )
        pools.pool_classes_by_scheme = {"http": _Pool, "https": _TLSPool}
        return pools

    def chunks(
        self, url: str, start: int | None, stop: int | None, limit: int | None, deadline: float
    ) -> Iterator[bytes]:
        """Yields the bytes of one attempt; follows redirects.

        `start` is the first byte; None for the whole file. `limit`: maximum number of bytes, or
        None. `deadline`: end of the read, by the monotonic clock. Raises TransientError if another
        attempt may succeed. Raises OSError if no attempt can succeed.
        """
        with _translated_errors():
            response = self._open(url, start, stop, limit, deadline)
            try:
                _check_range(response, start, stop)
                yield from _body(response, start or 0, stop, limit)
            finally:
                response.release_conn()

    def length(self, url: str, deadline: float) -> int | None:
        """Returns the size of a file in bytes, or None if its host does not state it.

        `deadline`: end of the request, by the monotonic clock. Raises TransientError if another
        attempt may succeed. Raises OSError if no attempt can succeed.
        """
        return _stated_length(self._without_body(url, None, None, deadline))

    def ranged_length(self, url: str, deadline: float) -> int | None:
        """Returns the size of a file in bytes, or None if its host ignores byte ranges.

        `deadline`: end of the request, by the monotonic clock. Raises TransientError if another
        attempt may succeed. Raises OSError if no attempt can succeed.
        """
        response = self._without_body(url, 0, 1, deadline)
        stated = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
        size = stated[3] if stated and response.status == 206 else None
        return int(size) if size else None

    def _without_body(
        self, url: str, start: int | None, stop: int | None, deadline: float
    ) -> urllib3.BaseHTTPResponse:
        """Returns the response to a GET without its body: many hosts answer HEAD with an error."""
        with _translated_errors():
            response = self._open(url, start, stop, None, deadline)
            response.close()
            response.release_conn()
            return response

    def _open(
        self, url: str, start: int | None, stop: int | None, limit: int | None, deadline: float
    ) -> urllib3.BaseHTTPResponse:
        """Returns the response to a URL after redirects, its body not yet read."""
        _READ.deadline = deadline
        _READ.bytes_left = 2 * (limit or _MAX_TABLE_BYTES) + _OTHER_BYTES
        _READ.only_public = not self.settings.allow_private_hosts
        address = _parsed(url)
        for _ in range(_MAX_REDIRECTS + 1):
            response = self._answer(address, start, stop)
            location = response.get_redirect_location()
            if not location:
                if response.status not in (200, 206):
                    _discard(response)
                    raise _response_error(response)
                return response
            _discard(response)
            found = _parsed(_joined(address, location))
            # A login is not sent to another origin, unless the redirect itself contains one.
            same = found.origin == address.origin and found.login is None
            address = found._replace(login=address.login) if same else found
        raise OSError(f"redirected more than {_MAX_REDIRECTS} times")

    def _answer(
        self, address: WebAddress, start: int | None, stop: int | None
    ) -> urllib3.BaseHTTPResponse:
        """Returns the response of a host, its body not yet read."""
        pool = self._pools.connection_from_host(address.host, address.port, address.scheme)
        return pool.urlopen(
            "GET",
            address.target,
            headers=_headers(address, start, stop),
            redirect=False,
            preload_content=False,
            pool_timeout=math.ceil(_READ.seconds_left(_MAX_TABLE_SECONDS)),
        )


def _joined(address: WebAddress, location: str) -> str:
    """Returns the target of a redirect.

    Raises OSError if it is not a web address.
    """
    try:
        to = urljoin(str(address), location)
    except ValueError as error:
        raise _not_valid(error) from error
    if not is_web(to):
        raise OSError(f"redirected to {to.partition(':')[0]}:, which is not followed")
    return to


def _parsed(url: str) -> WebAddress:
    try:
        return parse_web_address(url)
    except ValueError as error:
        raise _not_valid(error) from error


def _not_valid(error: ValueError) -> OSError:
    return OSError(f"is not a valid web address: {error}")


def _headers(address: WebAddress, start: int | None, stop: int | None) -> dict[str, str]:
    headers = {
        "User-Agent": f"recordmill/{metadata.version('recordmill')}",
        "Accept-Encoding": "identity",
    }
    if start is not None and stop is not None:
        headers["Range"] = f"bytes={start}-{stop - 1}"
    if address.login is not None:
        user, _, password = address.login.partition(":")
        headers |= make_headers(basic_auth=f"{unquote(user)}:{unquote(password)}")
    return headers


def _discard(response: urllib3.BaseHTTPResponse) -> None:
    """Releases a connection with an unused body: drains a short one, closes it otherwise."""
    length = _stated_length(response)
    if length is not None and length < _SHORT_BYTES:
        deadline = _READ.deadline
        _READ.deadline = min(deadline, time.monotonic() + _SHORT_SECONDS)
        response.drain_conn()
        _READ.deadline = deadline
    else:
        response.close()
    response.release_conn()


def _response_error(response: urllib3.BaseHTTPResponse) -> OSError:
    """Returns the error for a response without a file."""
    status, reason = response.status, (response.reason or "")[:_SHOWN_CHARACTERS]
    answer = f"{status} {reason}".rstrip()
    if status in (404, 410):
        return FileNotFoundError(f"no such file ({answer})")
    if status in (401, 403, 407):
        advice = "Check the permissions, and that the signature has not expired."
        return PermissionError(f"access denied ({answer}). {advice}")
    if is_transient_status(status):
        wait = seconds_of(response.headers.get("Retry-After"))
        return TransientError(f"the host responds with {answer}", wait)
    return OSError(f"the host responds with {answer}")


def _stated_length(response: urllib3.BaseHTTPResponse) -> int | None:
    """Returns the Content-Length of a response; None if missing or invalid."""
    length = response.headers.get("Content-Length", "")
    return int(length) if _LENGTH.fullmatch(length) else None


def _check_range(response: urllib3.BaseHTTPResponse, start: int | None, stop: int | None) -> None:
    """Rejects a partial response that is not the requested range.

    Raises OSError: for another range, or if the whole file was requested.
    """
    if response.status != 206:
        return
    stated = response.headers.get("Content-Range", "")
    found = _RANGE.fullmatch(stated)
    if found and start is not None and stop is not None:
        end = min(stop, int(found[3] or stop))  # the file may be shorter
        if (int(found[1]), int(found[2]) + 1) == (start, end):
            return
    response.close()
    asked = "the whole file" if start is None or stop is None else f"bytes {start}-{stop - 1}"
    raise OSError(f"requested {asked}; the host sent {stated[:_SHOWN_CHARACTERS] or 'a part'!r}")


def _body(
    response: urllib3.BaseHTTPResponse, start: int, stop: int | None, limit: int | None
) -> Iterator[bytes]:
    """Yields the requested bytes of a response, also from hosts that ignore ranges."""
    skip = start if response.status == 200 else 0  # 200: the whole file instead of the range
    left = None if stop is None else stop - start
    seen = 0
    for chunk in response.stream(_CHUNK_BYTES):
        seen += len(chunk)
        if limit is not None and seen > limit:
            response.close()
            raise TooLargeError(limit)
        part = chunk[skip:] if left is None else chunk[skip : skip + left]
        skip = max(0, skip - len(chunk))
        left = None if left is None else left - len(part)
        yield part
        if left == 0 and response.status == 200:  # the rest is not needed
            response.close()
            return
    if found := _RANGE.fullmatch(response.headers.get("Content-Range", "")):
        stated = int(found[2]) + 1 - int(found[1])
        if seen < stated:  # also where Content-Length agrees with the short body
            raise TransientError(f"the host sent {seen:,} of {stated:,} bytes")


@contextlib.contextmanager
def _translated_errors() -> Iterator[None]:
    """Translates errors of urllib3 to OSError, with plain messages."""
    try:
        yield
    except _Stop as error:
        raise OSError(str(error)) from error
    except HTTPError as error:
        raise _translate_error(error) from error
    except TimeoutError as error:
        raise TransientError("timed out") from error
    except ValueError as error:  # a length that is not a number, or negative
        raise OSError("the host's answer is not valid HTTP") from error


def _translate_error(error: HTTPError) -> OSError:
    if isinstance(error, LocationValueError):
        return OSError("is not a valid web address")
    if isinstance(error, SSLError):
        return OSError(f"the host's certificate is not accepted: {error}")
    if isinstance(error, NameResolutionError):
        return TransientError("the host's name cannot be resolved")
    if isinstance(error, NewConnectionError):  # a ConnectTimeoutError itself
        return TransientError(f"no connection: {str(error).rpartition('] ')[2]}")
    if isinstance(error, ConnectTimeoutError):
        return TransientError(f"no connection within {_CONNECT_SECONDS:.0f} s")
    if isinstance(error, ReadTimeoutError):
        return TransientError("timed out")
    return TransientError(f"the connection broke: {_first_word(error)}")


def _first_word(error: HTTPError) -> str:
    """Returns the message of the cause, without the addresses that urllib3 repeats."""
    cause = next((arg for arg in error.args if isinstance(arg, BaseException)), error)
    return str(getattr(cause, "strerror", None) or cause).partition(":")[0]


class _Response(http.client.HTTPResponse):
    """A response that is read within the limits of the thread's current read."""

    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp = io.BufferedReader(_Limited(self.fp.detach(), sock))


class _Limited(io.RawIOBase):
    """A socket's stream, within the limits of the thread's current read."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket) -> None:
        self._raw, self._sock = raw, sock
        # The timeout between two bytes; the deadline of the whole read can be sooner.
        self._idle = sock.gettimeout() or math.inf

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(_READ.seconds_left(self._idle))
        size: int | None = self._raw.readinto(buffer)
        _READ.count(size or 0)
        return size

    def close(self) -> None:
        super().close()
        self._raw.close()


class _Connection(HTTPConnection):
    """Connects to allowed addresses only."""

    response_class = _Response

    def _new_conn(self) -> socket.socket:
        return _connected(self, super()._new_conn)


class _TLSConnection(HTTPSConnection):
    """Connects to allowed addresses only."""

    response_class = _Response

    def _new_conn(self) -> socket.socket:
        return _connected(self, super()._new_conn)


def _connected(to: HTTPConnection, connect: Callable[[], socket.socket]) -> socket.socket:
    """Returns a socket that is connected to a checked address of the host."""
    name = to._dns_host
    try:
        found = socket.getaddrinfo(name, to.port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        raise NameResolutionError(to.host, to, error) from error  # type: ignore[arg-type]
    addresses = [str(sockaddr[0]) for *_, sockaddr in found]
    private = [address for address in addresses if not is_public(address)]
    # A single private address rejects the host, because any of them could be used later.
    if private and _READ.only_public:
        raise _Stop(
            f"{to.host} is at {private[0]}, which is not a public address; "
            "allow it with --allow_private_hosts"
        )
    try:
        # urllib3 connects to `_dns_host`: set to a checked address, it does not resolve again.
        for number, address in enumerate(addresses, start=1):
            to._dns_host = address
            to.timeout = _READ.seconds_left(_CONNECT_SECONDS)  # includes the TLS handshake
            try:
                return connect()
            except (NewConnectionError, ConnectTimeoutError):
                if number == len(addresses):
                    raise
    finally:
        to._dns_host = name  # the certificate is checked against the name
    raise AssertionError("a name that resolves has an address")


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _TLSPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TLSConnection


class _Clients:
    """The connections of this process, created again when the options change."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._options: object = None
        self._web: Web | None = None

    def current(self) -> Web:
        options = current_options()
        with self._lock:
            if self._web is None or options is not self._options:
                web = options.view_as(WebOptions)
                values = [getattr(web, name) for name in WebSettings._fields]
                self._options, self._web = options, Web(WebSettings(*values))
            return self._web


_WEB_CLIENTS = _Clients()
