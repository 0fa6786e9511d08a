"""Reads from the web end in time, with a clear error, whatever a host sends."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain, repeat

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.transforms.storage.stores import web
from recordmill.transforms.storage.stores.beam import use_pipeline_options
from recordmill.transforms.storage.stores.store import TooLargeError, TooSlowError

SECONDS = 0.3
"""The deadline of the tests in seconds."""

LIMIT = 1_000_000
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"

pytestmark = pytest.mark.timeout(30)  # a hang fails soon


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Allows reads from this machine, with a short deadline."""
    monkeypatch.setattr(web, "_MAX_SECONDS", SECONDS)
    monkeypatch.setattr(web, "_MAX_SIZE_SECONDS", SECONDS)
    monkeypatch.setattr(web, "_MAX_TABLE_SECONDS", SECONDS)
    monkeypatch.setattr(web, "_MAX_TABLE_BYTES", LIMIT)
    use_pipeline_options(PipelineOptions(["--allow_private_hosts", f"--max_image_bytes={LIMIT}"]))
    yield
    use_pipeline_options(PipelineOptions([]))


class Host:
    """A host that sends the same bytes on each connection, and counts the bytes sent."""

    def __init__(self, script: Callable[[], Iterator[bytes]], pause: float) -> None:
        self.script, self.pause, self.sent = script, pause, 0
        self.ended = threading.Event()
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listening.getsockname()[1]}/1.jpg"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.listening.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(65536)
            for part in self.script():
                connection.sendall(part)
                self.sent += len(part)
                if self.ended.wait(self.pause):
                    return
            self.ended.wait(20)


@contextmanager
def host(script: Callable[[], Iterator[bytes]], pause: float = 0.0) -> Iterator[Host]:
    """Yields a local host that sends parts, with a pause after each."""
    playing = Host(script, pause)
    try:
        yield playing
    finally:
        playing.ended.set()
        playing.listening.close()


def drip(*parts: bytes) -> Callable[[], Iterator[bytes]]:
    """Sends the parts, then single bytes without end."""
    return lambda: chain(parts, repeat(b"x"))


SLOW = {
    "nothing at all": lambda: iter(()),
    "a status line": drip(b"HTTP/1.1 200 "),
    "headers": drip(OK + b"X-A: "),
    "a body": drip(OK + b"Content-Length: 500000\r\n\r\n"),
    "a body without a length": drip(OK + b"\r\n"),
    "a chunk": drip(CHUNKED + b"8000\r\n"),
    "the size of a chunk": lambda: chain([CHUNKED], repeat(b"0")),
    "trailers": drip(CHUNKED + b"1\r\nx\r\n0\r\nX-A: "),
    "continues": lambda: repeat(b"HTTP/1.1 100 Continue\r\n\r\n"),
}


def _get(url: str, span: tuple[int, int] | None = None, limit: int = LIMIT) -> bytes:
    return web.WEB.read(url, span, limit)[0]


@pytest.mark.parametrize("what", SLOW)
def test_slow_responses_end_at_the_deadline(what: str) -> None:
    with host(SLOW[what], pause=0.02) as slow:
        for read in (_get, web.WEB.size, web._downloaded):
            began = time.monotonic()
            with suppress(TooSlowError):
                read(slow.url)
                assert read == web.WEB.size  # which needs no body
            assert time.monotonic() - began < 10 * SECONDS


def test_a_read_past_the_deadline_is_reported_and_not_retried() -> None:
    with host(SLOW["a body"], pause=0.02) as slow, pytest.raises(TooSlowError) as caught:
        _get(slow.url)
    assert str(caught.value) == "timed out; not read within 0.3 s"


@pytest.mark.parametrize("status", [404, 503, 302])
def test_unused_bodies_are_not_read(status: int) -> None:
    head = b"HTTP/1.1 %d No\r\nLocation: /2.jpg\r\nRetry-After: 9\r\n" % status
    for headers in (b"\r\n", b"Content-Length: 90\r\n\r\n"):
        with host(drip(head + headers), pause=0.02) as slow:
            began = time.monotonic()
            with pytest.raises(OSError, match=r"404|503|timed out|redirected"):
                _get(slow.url)
            assert time.monotonic() - began < 10 * SECONDS


LARGE = {
    "a body": (OK + b"\r\n", b"x" * 65536),
    "a body of a length": (OK + b"Content-Length: 999999999999\r\n\r\n", b"x" * 65536),
    "chunks": (CHUNKED, b"10000\r\n" + b"x" * 65536 + b"\r\n"),
    "the size of a chunk": (CHUNKED, b"0" * 65536),
    "trailers": (CHUNKED + b"0\r\n", b"X-A: x\r\n" * 8192),
    "continues": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 2048),
    "the body of a 404": (b"HTTP/1.1 404 No\r\n\r\n", b"x" * 65536),
    "the body of a redirect": (b"HTTP/1.1 302 No\r\nLocation: /2\r\n\r\n", b"x" * 65536),
}


@pytest.mark.parametrize("what", LARGE)
def test_endless_responses_are_read_up_to_the_limit(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "_MAX_SECONDS", 2.0)
    first, rest = LARGE[what]
    with host(lambda: chain([first], repeat(rest))) as endless:
        with pytest.raises(
            OSError, match=r"larger than|more bytes than|size line|timed out|404|redirected"
        ):
            _get(endless.url)
        endless.ended.set()
        assert endless.sent < 40 * LIMIT  # what the system's own buffers took included


def test_tables_have_their_own_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "_MAX_TABLE_SECONDS", 20.0)
    script = lambda: chain([OK + b"\r\n"], repeat(b"x" * 65536))  # noqa: E731
    with host(script) as endless, pytest.raises(OSError, match="sends more bytes"):
        web._downloaded(endless.url)


def test_an_unanswered_handshake_ends_at_the_deadline() -> None:
    with host(lambda: iter(())) as silent, pytest.raises(TooSlowError):
        _get(silent.url.replace("http:", "https:"))


def test_all_addresses_share_one_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []

    def silent(_: object, timeout: float, **__: object) -> socket.socket:
        waits.append(timeout)
        time.sleep(min(timeout, 0.1))
        raise TimeoutError

    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("8.8.8.8", 80))] * 100
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr("urllib3.util.connection.create_connection", silent)
    with pytest.raises(TooSlowError):
        _get("http://many.example/1.jpg")
    assert 2 <= len(waits) <= 6
    assert max(waits) <= SECONDS


def test_waits_beyond_the_deadline_are_not_made() -> None:
    answer = b"HTTP/1.1 429 Later\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n"
    with host(lambda: iter([answer])) as busy, pytest.raises(TooSlowError) as caught:
        _get(busy.url)
    assert str(caught.value) == "the host responds with 429 Later; not read within 0.3 s"


def test_connections_are_reused_for_images_within_the_limits() -> None:
    body = bytes(LIMIT)
    answer = OK + b"Content-Length: %d\r\n\r\n" % LIMIT + body
    with host(lambda: iter([answer])) as quick:
        assert _get(quick.url) == body
    more = OK + b"Content-Length: %d\r\n\r\n" % (LIMIT + 1) + body + b"x"
    with host(lambda: iter([more])) as quick, pytest.raises(TooLargeError):
        _get(quick.url)


def part_of(stated: str, body: bytes) -> Callable[[], Iterator[bytes]]:
    """Sends a part of a file with the given Content-Range."""
    said = f"Content-Range: {stated}\r\n" if stated else ""
    head = f"HTTP/1.1 206 Partial Content\r\n{said}Content-Length: {len(body)}\r\n\r\n"
    return lambda: iter([head.encode() + body])


@pytest.mark.parametrize(
    ("stated", "body"),
    [("bytes 5-9/20", b"fghij"), ("bytes 5-9/*", b"fghij"), ("bytes 5-7/8", b"fgh")],
)
def test_the_requested_range_is_accepted(stated: str, body: bytes) -> None:
    with host(part_of(stated, body)) as quick:
        assert _get(quick.url, (5, 10)) == body


@pytest.mark.parametrize(
    "stated",
    [
        "",
        "bytes 0-4/20",
        "bytes 6-10/20",
        "bytes 5-8/20",
        "bytes 5-19/20",
        "bytes */20",
        "items 5-9/20",
        "bytes 5-9/20, bytes 0-4/20",
        "bytes 5-9/" + "9" * 5000,
    ],
)
@pytest.mark.parametrize("span", [(5, 10), None])
def test_another_range_is_an_error(stated: str, span: tuple[int, int] | None) -> None:
    with host(part_of(stated, b"abcde")) as lying, pytest.raises(OSError, match=r"^requested"):
        _get(lying.url, span)


ANSWERS = {
    "a date beyond all years": b"503 No\r\nRetry-After: Mon, 01 Jan 99999999999 00:00:00 GMT",
    "no day": b"503 No\r\nRetry-After: Mon, 99 Feb 2030 99:99:99 GMT",
    "seconds without end": b"503 No\r\nRetry-After: " + b"9" * 5000,
    "a chunk below nothing": b"200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5",
    "a length of many digits": b"404 No\r\nContent-Length: " + b"9" * 5000,
    "a long reason": b"418 " + b"x" * 60_000,
    "a redirect to no address": b"302 Found\r\nLocation: http://[::1",
}


@pytest.mark.parametrize("what", ANSWERS)
def test_malformed_responses_are_short_errors(what: str) -> None:
    answer = b"HTTP/1.1 " + ANSWERS[what] + b"\r\n\r\n"
    few_words = pytest.raises(OSError, match=r"^[ -~]{1,200}$")
    with host(lambda: iter([answer])) as odd, few_words as caught:
        _get(odd.url)
    assert ("not a valid web address" in str(caught.value)) == (what == "a redirect to no address")


def test_an_oversized_content_length_is_ignored() -> None:
    with host(lambda: iter([OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n"])) as odd:
        assert web.WEB.size(odd.url) is None


@pytest.mark.parametrize(
    ("answer", "size"),
    [
        (b"206 Partial Content\r\nContent-Range: bytes 0-0/20\r\nContent-Length: 1\r\n\r\na", 20),
        (b"206 Partial Content\r\nContent-Range: bytes 0-0/*\r\nContent-Length: 1\r\n\r\na", None),
        (b"206 Partial Content\r\nContent-Length: 1\r\n\r\na", None),
        (b"200 OK\r\nContent-Length: 20\r\n\r\n" + 20 * b"a", None),
    ],
)
def test_the_size_for_range_requests_is_known_if_the_host_sends_ranges(
    answer: bytes, size: int | None
) -> None:
    with host(lambda: iter([b"HTTP/1.1 " + answer])) as quick:
        assert web.WEB.ranged_size(quick.url) == size


def test_ranges_of_tables_can_exceed_the_image_limit() -> None:
    body = b"x" * (LIMIT + 10)
    part = part_of(f"bytes 0-{len(body) - 1}/{len(body)}", body)
    with host(part) as quick:
        assert _get(quick.url, (0, len(body)), len(body)) == body
    with host(part) as quick, pytest.raises(TooLargeError):
        _get(quick.url, (0, len(body)))
