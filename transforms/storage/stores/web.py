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
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, BinaryIO, cast
from urllib.parse import unquote, urljoin

import urllib3
from urllib3 import exceptions
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.util import Timeout, make_headers

from recordmill.schemas.layout import is_web
from recordmill.transforms.functional.addresses import WebAddress, is_public, parse_web_address
from recordmill.transforms.storage.stores import store
from recordmill.transforms.storage.stores.options import StoreOptions, current_options

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
        """Counts received bytes; raises _Stop if the response exceeds the limit."""
        self.bytes_left -= size
        if self.bytes_left < 0:
            raise _Stop("sends more bytes than a file of the allowed size has")


_READ = _Read()


class _WebStore(store.Store):
    def open(self, path: str) -> BinaryIO:
        size = 0
        with contextlib.suppress(OSError):  # reported by the download
            size = self.ranged_size(path) or 0
        return self.open_range(path, 0, size) if size > _SPOOLED_BYTES else _downloaded(path)

    def read(
        self, path: str, span: store.Span | None = None, limit: int = sys.maxsize
    ) -> store.TaggedBytes:
        deadline = time.monotonic() + _MAX_SECONDS
        data = store.persist(lambda: b"".join(_chunks(path, span, limit, deadline)), _MAX_SECONDS)
        return data, None

    def entries(self, folder: str) -> tuple[list[str], list[str]]:
        return [], []  # the web has no listings

    def expand(self, pattern: str) -> list[str]:
        return [pattern]

    def size(self, path: str) -> int | None:
        return _stated_length(_without_body(path))

    def ranged_size(self, path: str) -> int | None:
        response = _without_body(path, (0, 1))
        stated = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
        size = stated[3] if stated and response.status == 206 else None
        return int(size) if size else None


WEB = _WebStore()


def _downloaded(url: str) -> BinaryIO:
    """Downloads a table, which may be larger than an image, and opens it."""
    spooled = tempfile.SpooledTemporaryFile(_SPOOLED_BYTES, prefix="recordmill-")  # noqa: SIM115 - the caller closes it
    deadline = time.monotonic() + _MAX_TABLE_SECONDS

    def attempt() -> None:
        spooled.seek(0)
        spooled.truncate()
        spooled.writelines(_chunks(url, None, sys.maxsize, deadline))

    store.persist(attempt, _MAX_TABLE_SECONDS)
    spooled.seek(0)
    return cast("BinaryIO", io.BufferedReader(cast("io.RawIOBase", spooled)))


def _chunks(url: str, span: store.Span | None, limit: int, deadline: float) -> Iterator[bytes]:
    """Yields the bytes of one attempt, at most `limit`; follows redirects.

    `deadline`: end of the read, by the monotonic clock. Raises TransientError if another attempt
    may succeed.
    """
    with _translated_errors():
        response = _open(url, span, limit, deadline)
        try:
            _check_range(response, span)
            yield from _body(response, span, limit)
        finally:
            response.release_conn()


def _without_body(url: str, span: store.Span | None = None) -> urllib3.BaseHTTPResponse:
    """Returns the response to a GET without its body: many hosts answer HEAD with an error."""
    deadline = time.monotonic() + _MAX_SIZE_SECONDS

    def attempt() -> urllib3.BaseHTTPResponse:
        with _translated_errors():
            response = _open(url, span, sys.maxsize, deadline)
            response.close()
            response.release_conn()
            return response

    return store.persist(attempt, _MAX_SIZE_SECONDS)


def _open(
    url: str, span: store.Span | None, limit: int, deadline: float
) -> urllib3.BaseHTTPResponse:
    """Returns the response to a URL after redirects, its body not yet read."""
    options = current_options()
    _READ.deadline = deadline
    _READ.bytes_left = 2 * min(limit, _MAX_TABLE_BYTES) + _OTHER_BYTES
    _READ.only_public = not options.allow_private_hosts
    address = _parsed(url)
    for _ in range(_MAX_REDIRECTS + 1):
        pool = _pools(options).connection_from_host(address.host, address.port, address.scheme)
        response = pool.urlopen(
            "GET",
            address.target,
            headers=_headers(address, span),
            redirect=False,
            preload_content=False,
            pool_timeout=math.ceil(_READ.seconds_left(_MAX_TABLE_SECONDS)),
        )
        location = response.get_redirect_location()
        if not location:
            if response.status not in (200, 206):
                _discard(response)
                raise _response_error(response)
            return response
        _discard(response)
        found = _parsed(location, base=str(address))
        # A login is not sent to another origin, unless the redirect itself contains one.
        same = found.origin == address.origin and found.login is None
        address = found._replace(login=address.login) if same else found
    raise OSError(f"redirected more than {_MAX_REDIRECTS} times")


@lru_cache(1)
def _pools(options: StoreOptions) -> urllib3.PoolManager:
    pools = urllib3.PoolManager(
        num_pools=_HOSTS,
        maxsize=options.http_connections,
        block=True,  # threads wait while all connections of a host are busy
        timeout=Timeout(connect=_CONNECT_SECONDS, read=options.http_timeout),
        retries=False,
    )
    pools.pool_classes_by_scheme = {"http": _Pool, "https": _TLSPool}
    return pools


def _parsed(url: str, base: str = "") -> WebAddress:
    """Returns a web address, or the target of a redirect from another one, `base`."""
    try:
        if base and not is_web(url := urljoin(base, url)):
            raise OSError(f"redirected to {url.partition(':')[0]}:, which is not followed")
        return parse_web_address(url)
    except ValueError as error:
        raise OSError(f"is not a valid web address: {error}") from error


def _headers(address: WebAddress, span: store.Span | None) -> dict[str, str]:
    headers = {"User-Agent": "recordmill", "Accept-Encoding": "identity"}
    if span:
        headers["Range"] = f"bytes={span[0]}-{span[1] - 1}"
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
    status, reason = response.status, (response.reason or "")[:_SHOWN_CHARACTERS]
    answer = f"{status} {reason}".rstrip()
    if status in (404, 410):
        return FileNotFoundError(f"no such file ({answer})")
    if status in (401, 403, 407):
        advice = "Check the permissions, and that the signature has not expired."
        return PermissionError(f"access denied ({answer}). {advice}")
    if store.is_transient_status(status):
        wait = store.seconds_of(response.headers.get("Retry-After"))
        return store.TransientError(f"the host responds with {answer}", wait)
    return OSError(f"the host responds with {answer}")


def _stated_length(response: urllib3.BaseHTTPResponse) -> int | None:
    """Returns the Content-Length of a response; None if missing or invalid."""
    length = response.headers.get("Content-Length", "")
    return int(length) if _LENGTH.fullmatch(length) else None


def _check_range(response: urllib3.BaseHTTPResponse, span: store.Span | None) -> None:
    """Rejects a partial response that is not the requested range."""
    if response.status != 206:
        return
    stated = response.headers.get("Content-Range", "")
    found = _RANGE.fullmatch(stated)
    if found and span:
        end = min(span[1], int(found[3] or span[1]))  # the file may be shorter
        if (int(found[1]), int(found[2]) + 1) == (span[0], end):
            return
    response.close()
    asked = f"bytes {span[0]}-{span[1] - 1}" if span else "the whole file"
    raise OSError(f"requested {asked}; the host sent {stated[:_SHOWN_CHARACTERS] or 'a part'!r}")


def _body(
    response: urllib3.BaseHTTPResponse, span: store.Span | None, limit: int
) -> Iterator[bytes]:
    """Yields the requested bytes of a response, also from hosts that ignore ranges."""
    start, stop = span or (0, sys.maxsize)
    skip = start if response.status == 200 else 0  # 200: the whole file instead of the range
    left, seen = stop - start, 0
    for chunk in response.stream(_CHUNK_BYTES):
        seen += len(chunk)
        if seen > limit:
            response.close()
            raise store.TooLargeError(limit)
        part = chunk[skip : skip + left]
        skip = max(0, skip - len(chunk))
        left -= len(part)
        yield part
        if left == 0 and response.status == 200:  # the rest is not needed
            response.close()
            return
    if found := _RANGE.fullmatch(response.headers.get("Content-Range", "")):
        stated = int(found[2]) + 1 - int(found[1])
        if seen < stated:  # also where Content-Length agrees with the short body
            raise store.TransientError(f"the host sent {seen:,} of {stated:,} bytes")


@contextlib.contextmanager
def _translated_errors() -> Iterator[None]:
    """Translates errors of urllib3 to OSError, with plain messages."""
    try:
        yield
    except _Stop as error:
        raise OSError(str(error)) from error
    except exceptions.HTTPError as error:
        raise _translate_error(error) from error
    except TimeoutError as error:
        raise store.TransientError("timed out") from error
    except ValueError as error:  # a length that is not a number, or negative
        raise OSError("the host's answer is not valid HTTP") from error


def _translate_error(error: exceptions.HTTPError) -> OSError:
    if isinstance(error, exceptions.LocationValueError):
        return OSError("is not a valid web address")
    if isinstance(error, exceptions.SSLError):
        return OSError(f"the host's certificate is not accepted: {error}")
    if isinstance(error, exceptions.NameResolutionError):
        return store.TransientError("the host's name cannot be resolved")
    if isinstance(error, exceptions.NewConnectionError):  # a ConnectTimeoutError itself
        return store.TransientError(f"no connection: {str(error).rpartition('] ')[2]}")
    if isinstance(error, exceptions.ConnectTimeoutError):
        return store.TransientError(f"no connection within {_CONNECT_SECONDS:.0f} s")
    if isinstance(error, exceptions.ReadTimeoutError):
        return store.TransientError("timed out")
    return store.TransientError(f"the connection broke: {_first_word(error)}")


def _first_word(error: exceptions.HTTPError) -> str:
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


class _TLSConnection(_Connection, HTTPSConnection):
    """Connects to allowed addresses only, with TLS."""


def _connected(to: HTTPConnection, connect: Callable[[], socket.socket]) -> socket.socket:
    """Returns a socket that is connected to a checked address of the host."""
    name = to._dns_host
    try:
        found = socket.getaddrinfo(name, to.port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        raise exceptions.NameResolutionError(to.host, to, error) from error  # type: ignore[arg-type]
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
            except (exceptions.NewConnectionError, exceptions.ConnectTimeoutError):
                if number == len(addresses):
                    raise
    finally:
        to._dns_host = name  # the certificate is checked against the name
    raise AssertionError("a name that resolves has an address")


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _TLSPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TLSConnection
