"""A web server with the faults of real ones."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

BODY = bytes(range(256)) * 4
_SLOW_SECONDS = 0.2


@dataclass
class Site:
    """A running web server, and the requests it has received.

    Attributes:
        folder: what it serves below /files/.
        url: where it listens.
        seen: how often each path was requested.
        connections: how many were opened.
        most_at_once: how many requests it has answered at one time.
        logins: what came as Authorization, in order.
    """

    folder: Path
    url: str = ""
    seen: Counter[str] = field(default_factory=Counter)
    connections: int = 0
    most_at_once: int = 0
    logins: list[str] = field(default_factory=list)
    at_once: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@contextmanager
def serving(folder: Path) -> Iterator[Site]:
    """Yields a local web server."""
    site = Site(folder)

    class Handler(_Handler):
        pass

    Handler.site = site
    server = _Server(("127.0.0.1", 0), Handler)
    site.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Ignores errors: clients may close a connection early."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    site: Site

    def setup(self) -> None:
        super().setup()
        with self.site.lock:
            self.site.connections += 1

    def log_message(self, *_: object) -> None:
        """Logs nothing."""

    def do_GET(self) -> None:
        site = self.site
        path = unquote(self.path.partition("?")[0])
        with site.lock:
            site.seen[path] += 1
            site.logins.append(self.headers.get("Authorization", ""))
            site.at_once += 1
            site.most_at_once = max(site.most_at_once, site.at_once)
            attempt = site.seen[path]
        try:
            self._answer(path, attempt)
        finally:
            with site.lock:
                site.at_once -= 1

    def _answer(self, path: str, attempt: int) -> None:
        _, first, rest = path.split("/", 2) if path.count("/") > 1 else (*path.split("/"), "")
        if first == "files":
            file = self.site.folder / rest
            return self._file(file.read_bytes()) if file.is_file() else self._status(404)
        if first == "parts":
            return self._ranges((self.site.folder / rest).read_bytes())
        if first == "ranges":
            return self._ranges(BODY)
        if first == "status":
            return self._status(int(rest))
        if first == "flaky":  # /flaky/HOW: the first two attempts fail
            return self._fail(rest) if attempt < 3 else self._file(BODY)
        if first == "to":
            return self._redirect(f"/{rest}")
        if first == "away":
            return self._redirect(unquote(self.path.partition("?")[2]))
        if first == "slow":
            time.sleep(_SLOW_SECONDS)
        if first == "unbounded":
            return self._unbounded()
        return self._file(BODY)

    def _fail(self, how: str) -> None:
        if how == "reset":
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()
            self.close_connection = True
        elif how == "short":
            self._file(BODY, length=2 * len(BODY))
            self.close_connection = True
        elif how == "stall":
            time.sleep(1.5)
            self.close_connection = True
        else:
            self._status(int(how), {"Retry-After": "0"})

    def _file(self, data: bytes, length: int | None = None) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(data) if length is None else length))
        self.end_headers()
        self.wfile.write(data)

    def _ranges(self, data: bytes) -> None:
        start, _, stop = self.headers["Range"].removeprefix("bytes=").partition("-")
        part = data[int(start) : int(stop) + 1]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start}-{stop}/{len(data)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)

    def _unbounded(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for _ in range(4096):
            self.wfile.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def _redirect(self, to: str) -> None:
        self._status(302, {"Location": to})

    def _status(self, status: int, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()
