"""Reads `http://` and `https://`: politely, and never where a table must not send anyone.

A table is written by others. So whatever a name resolves to is looked at before anything connects,
and the connection goes to the very address that was looked at: neither a redirect nor a name that
resolves otherwise the next time leads to a private host.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from email.utils import mktime_tz, parsedate_tz
from functools import cached_property
from importlib import metadata
from typing import BinaryIO, NamedTuple
from urllib.parse import unquote, urljoin, urlsplit

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

from schemas.layout import is_web
from transforms.functional.addresses import is_public
from transforms.stores.options import WebOptions, current_options
from transforms.stores.persistence import TransientError, is_transient_status, persist
from transforms.stores.too_large import TooLargeError

_MAX_REDIRECTS = 5
_MAX_SECONDS = 300.0
_CONNECT_SECONDS = 10.0
_CHUNK_BYTES = 2**18
_HOSTS = 64


class _PrivateHost(Exception):
    """A name that leads inside. No OSError: urllib3 would take it for a failed connection."""


class WebSettings(NamedTuple):
    """How the web is read; see `WebOptions`."""

    allow_private_hosts: bool
    http_connections: int
    http_timeout: int
    max_image_bytes: int


def get(url: str, start: int | None = None, stop: int | None = None) -> bytes:
    """Returns what is at a web address, or its bytes from `start` to before `stop`.

    Raises:
        OSError: if it cannot be had, in words; FileNotFoundError if there is nothing.
    """
    web = _WEB_CLIENTS.current()

    def attempt() -> bytes:
        limit = web.settings.max_image_bytes
        return b"".join(web.chunks(url, start, stop, limit))

    return persist(attempt)


def download(url: str, target: BinaryIO) -> None:
    """Writes all that is at a web address to a file, however large.

    Raises:
        OSError: if it cannot be had, in words; FileNotFoundError if there is nothing.
    """
    web = _WEB_CLIENTS.current()

    def attempt() -> None:
        target.seek(0)
        target.truncate()
        for chunk in web.chunks(url, None, None, None):
            target.write(chunk)

    persist(attempt)


def exists(url: str) -> bool:
    """Returns whether there is anything at a web address.

    Raises:
        OSError: if that cannot be found out.
    """
    try:
        size(url)
    except FileNotFoundError:
        return False
    return True


def size(url: str) -> int | None:
    """Returns how many bytes are at a web address, or None where its host does not say.

    Raises:
        OSError: if there is no answer; FileNotFoundError if there is nothing.
    """
    web = _WEB_CLIENTS.current()
    return persist(lambda: web.length(url))


class Web:
    """Connections to the web, kept open and used again by all threads.

    Attributes:
        settings: how it is read.
    """

    def __init__(self, settings: WebSettings) -> None:
        self.settings = settings

    @cached_property
    def _pools(self) -> urllib3.PoolManager:
        pools = urllib3.PoolManager(
            num_pools=_HOSTS,
            maxsize=self.settings.http_connections,
            block=True,  # who finds all connections of a host busy waits for one
            timeout=Timeout(connect=_CONNECT_SECONDS, read=self.settings.http_timeout),
            retries=False,
        )
        if not self.settings.allow_private_hosts:
            pools.pool_classes_by_scheme = {"http": _PublicPool, "https": _PublicTLSPool}
        return pools

    def chunks(
        self, url: str, start: int | None, stop: int | None, limit: int | None
    ) -> Iterator[bytes]:
        """Yields the bytes of one attempt, redirects followed.

        Raises:
            TransientError: if another attempt may succeed.
            OSError: if none will.
        """
        with _told():
            response = self._open(url, start, stop)
            try:
                yield from _body(response, start or 0, stop, limit)
            finally:
                response.release_conn()

    def length(self, url: str) -> int | None:
        """Returns how many bytes are at a web address, or None where its host does not say.

        Raises:
            TransientError: if another attempt may succeed.
            OSError: if none will.
        """
        with _told():
            response = self._open(url, None, None)
            response.close()  # by GET, not HEAD: many hosts answer the latter with an error
            length = response.headers.get("Content-Length", "")
            return int(length) if length.isdecimal() else None

    def _open(self, url: str, start: int | None, stop: int | None) -> urllib3.BaseHTTPResponse:
        """Returns the answer that a web address leads to."""
        for _ in range(_MAX_REDIRECTS + 1):
            headers = _headers(url, start, stop)
            response = self._pools.request(
                "GET",
                _without_userinfo(url),
                headers=headers,
                redirect=False,
                preload_content=False,
            )
            location = response.get_redirect_location()
            if not location:
                _check_status(response)
                return response
            response.drain_conn()
            url = urljoin(url, location)
            if not is_web(url):
                raise OSError(f"redirected to {url.partition(':')[0]}:, which is not followed")
        raise OSError(f"redirected more than {_MAX_REDIRECTS} times")


def _headers(url: str, start: int | None, stop: int | None) -> dict[str, str]:
    headers = {
        "User-Agent": f"recordmill/{metadata.version('recordmill')}",
        "Accept-Encoding": "identity",
    }
    if start is not None and stop is not None:
        headers["Range"] = f"bytes={start}-{stop - 1}"
    parts = urlsplit(url)
    if parts.username is not None:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers |= make_headers(basic_auth=login)
    return headers


def _without_userinfo(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _check_status(response: urllib3.BaseHTTPResponse) -> None:
    status, answer = response.status, f"{response.status} {response.reason or ''}".rstrip()
    if status in (200, 206):
        return
    response.drain_conn()
    if status in (404, 410):
        raise FileNotFoundError(f"no such file ({answer})")
    if status in (401, 403, 407):
        advice = "check that the address may be read, and that its signature has not expired"
        raise PermissionError(f"access denied ({answer}); {advice}")
    if is_transient_status(status):
        wait = _seconds(response.headers.get("Retry-After"))
        raise TransientError(f"the host answers {answer}", wait)
    raise OSError(f"the host answers {answer}")


def _seconds(retry_after: str | None) -> float:
    """Returns how long a host asks to wait, as seconds or as a date."""
    if not retry_after:
        return 0.0
    if retry_after.strip().isdecimal():
        return float(retry_after)
    date = parsedate_tz(retry_after)
    return max(0.0, mktime_tz(date) - time.time()) if date else 0.0


def _body(
    response: urllib3.BaseHTTPResponse, start: int, stop: int | None, limit: int | None
) -> Iterator[bytes]:
    """Yields a response's bytes, those before `start` left out where the host knows no ranges."""
    skip = start if response.status == 200 else 0
    left = None if stop is None else stop - start
    seen, deadline = 0, time.monotonic() + _MAX_SECONDS
    for chunk in response.stream(_CHUNK_BYTES):
        seen += len(chunk)
        if limit is not None and seen > limit:
            response.close()
            raise TooLargeError(limit)
        if time.monotonic() > deadline:
            response.close()
            raise TransientError(f"takes more than {_MAX_SECONDS:.0f} s")
        part = chunk[skip:] if left is None else chunk[skip : skip + left]
        skip = max(0, skip - len(chunk))
        left = None if left is None else left - len(part)
        yield part
        if left == 0 and response.status == 200:  # the rest of it is of no use
            response.close()
            return


@contextmanager
def _told() -> Iterator[None]:
    """Raises what urllib3 does as an OSError in words."""
    try:
        yield
    except _PrivateHost as error:
        raise OSError(str(error)) from error
    except HTTPError as error:
        raise _in_words(error) from error
    except ValueError as error:  # what cannot be parsed
        raise OSError(f"is no web address: {error}") from error


def _in_words(error: HTTPError) -> OSError:
    if isinstance(error, LocationValueError):
        return OSError("is no web address")
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
    """Returns what was met, without the addresses that urllib3 repeats."""
    cause = next((arg for arg in error.args if isinstance(arg, BaseException)), error)
    return str(getattr(cause, "strerror", None) or cause).partition(":")[0]


class _PublicConnection(HTTPConnection):
    """Connects to public addresses only."""

    def _new_conn(self) -> socket.socket:
        return _connected(self, super()._new_conn)


class _PublicTLSConnection(HTTPSConnection):
    """Connects to public addresses only."""

    def _new_conn(self) -> socket.socket:
        return _connected(self, super()._new_conn)


def _connected(to: HTTPConnection, connect: Callable[[], socket.socket]) -> socket.socket:
    """Returns a socket to the host of a connection: to an address of it that was looked at."""
    name = to._dns_host
    try:
        found = socket.getaddrinfo(name, to.port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise NameResolutionError(to.host, to, error) from error
    addresses = [str(sockaddr[0]) for *_, sockaddr in found]
    if private := [address for address in addresses if not is_public(address)]:
        raise _PrivateHost(
            f"{to.host} is at {private[0]}, which is no public address; "
            "--allow_private_hosts reads from such, too"
        )
    try:
        for address in addresses[:-1]:
            to._dns_host = address
            with suppress(NewConnectionError, ConnectTimeoutError):
                return connect()
        to._dns_host = addresses[-1]
        return connect()
    finally:
        to._dns_host = name  # which the certificate is held to


class _PublicPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _PublicConnection


class _PublicTLSPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _PublicTLSConnection


class _Clients:
    """The connections of this process, made anew when the options change."""

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
