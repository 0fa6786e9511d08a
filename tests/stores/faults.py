"""A proxy that makes a store misbehave: each rule applies an action to some requests.

    proxy.set(Rule("PUT .*tfrecord", lost, first=2))   loses the answer to the second PUT of a shard

Runs in a thread of the tests. Requests are forwarded one by one as they are, so signatures hold.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import unquote

ALWAYS = 10**9


@dataclass
class Message:
    """A request or a response."""

    start: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name), "")

    def replace(self, name: str, value: str) -> None:
        self.headers = [(k, value if k.lower() == name else v) for k, v in self.headers]

    def bytes(self, more: str = "", length: int | None = None) -> bytes:
        """Returns the message with the length of its body, or another one."""
        size = len(self.body) if length is None else length
        fields = [(k, v) for k, v in self.headers if k.lower() not in _OF_CONNECTION]
        fields.append(("Content-Length", str(size)))
        lines = [self.start, *(f"{name}: {value}" for name, value in fields)]
        return "\r\n".join([*lines, more, ""]).encode("latin-1") + self.body


_OF_CONNECTION = ("connection", "content-length", "transfer-encoding", "expect", "keep-alive")


@dataclass
class Exchange:
    """One request: an action forwards it, answers it, or drops its connection."""

    proxy: FaultProxy
    request: Message
    writer: asyncio.StreamWriter

    async def forward(self) -> Message:
        """Sends the request to the store, and returns its response."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.proxy.upstream)
        writer.write(self.request.bytes("Connection: close\r\n"))
        response = await _message(reader, self.is_head)
        writer.close()
        return response

    @property
    def is_head(self) -> bool:
        return self.request.start.startswith("HEAD")

    async def answer(self, response: Message, sent: int | None = None) -> None:
        """Sends a response; if only the first bytes of its body, then drops the connection."""
        stated = int(response.header("content-length") or 0) if self.is_head else None
        data = response.bytes("", stated)
        end = len(data) if sent is None else len(data) - len(response.body) + sent
        self.writer.write(data[:end])
        await self.writer.drain()
        if sent is not None:
            self.drop()

    def drop(self) -> None:
        """Resets the connection."""
        connection = self.writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.close()


Action: TypeAlias = Callable[[Exchange], Awaitable[None]]


@dataclass
class Rule:
    """Applies an action to matching requests "METHOD /path?query", from the `first` of them on."""

    match: str
    action: Action
    first: int = 1
    count: int = 1
    seen: int = 0

    def applies(self, name: str) -> bool:
        if not re.search(self.match, name):
            return False
        self.seen += 1
        return self.first <= self.seen < self.first + self.count


@dataclass
class FaultProxy:
    """A running proxy.

    Attributes:
        port: where it listens.
        upstream: the port of the store.
        host: the name of the host in requests, or "" for that of the client.
        rules: the faults; the first that applies to a request counts.
        names: each request that was answered, in order.
        late: deliveries that are waiting.
        injected: the number of requests with a fault.
    """

    port: int
    upstream: int
    host: str
    rules: list[Rule] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    late: set[asyncio.Task[None]] = field(default_factory=set)
    injected: int = 0

    def set(self, *rules: Rule) -> None:
        """Replaces the rules; without any, the store behaves."""
        self.rules, self.injected = [Rule(r.match, r.action, r.first, r.count) for r in rules], 0
        self.names = []

    def do_later(self, work: Awaitable[None]) -> None:
        task: asyncio.Task[None] = asyncio.ensure_future(work)  # type: ignore[assignment,arg-type]
        self.late.add(task)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not writer.is_closing():
                request = await _message(reader, False, writer)
                method, target, _ = request.start.split(" ", 2)
                verb = "COPY" if request.header("x-amz-copy-source") else method
                name = f"{verb} {unquote(target)}"
                if self.host:
                    request.replace("host", self.host)
                applied = [rule for rule in self.rules if rule.applies(name)]
                self.injected += bool(applied)
                await (applied[0].action if applied else passed)(Exchange(self, request, writer))
                self.names.append(name)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def _message(
    reader: asyncio.StreamReader, is_head: bool, writer: asyncio.StreamWriter | None = None
) -> Message:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    start, *lines = head.rstrip("\r\n").split("\r\n")
    pairs = [line.partition(":")[::2] for line in lines]
    message = Message(start, [(name, value.strip()) for name, value in pairs], b"")
    if message.header("expect") and writer:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if is_head or " 204 " in start or " 304 " in start:
        return message
    if message.header("transfer-encoding"):
        while size := int((await reader.readline()).split(b";")[0], 16):
            message.body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    else:
        message.body = await reader.readexactly(int(message.header("content-length") or 0))
    return message


# Actions.


async def passed(exchange: Exchange) -> None:
    await exchange.answer(await exchange.forward())


async def reset(exchange: Exchange) -> None:
    exchange.drop()


async def lost(exchange: Exchange) -> None:
    """Forwards the request, and loses the answer."""
    await exchange.forward()
    exchange.drop()


def status(code: int, error: str = "Injected", headers: tuple[tuple[str, str], ...] = ()) -> Action:
    """Answers with a status and an error code."""

    async def action(exchange: Exchange) -> None:
        body = f'<?xml version="1.0"?><Error><Code>{error}</Code></Error>'.encode()
        fields = [("Content-Type", "application/xml"), *headers]
        await exchange.answer(
            Message(f"HTTP/1.1 {code} X", fields, b"" if exchange.is_head else body)
        )

    return action


def late(until: str | float) -> Action:
    """Drops the connection; the request reaches the store later.

    Args:
        until: seconds, or the pattern of a request that is answered first.
    """

    async def action(exchange: Exchange) -> None:
        exchange.drop()
        exchange.proxy.do_later(_forward_later(exchange, until))

    return action


def twice(until: str | float) -> Action:
    """Delivers a request a second time, later: see `late`."""

    async def action(exchange: Exchange) -> None:
        await passed(exchange)
        exchange.proxy.do_later(_forward_later(exchange, until))

    return action


async def _forward_later(exchange: Exchange, until: str | float) -> None:
    if isinstance(until, float):
        await asyncio.sleep(until)
    else:
        while not any(re.search(until, name) for name in exchange.proxy.names):
            await asyncio.sleep(0.01)
    await exchange.forward()


def slow(seconds: float) -> Action:
    """Forwards the request after a pause."""

    async def action(exchange: Exchange) -> None:
        await asyncio.sleep(seconds)
        await passed(exchange)

    return action


async def cut(exchange: Exchange) -> None:
    """Drops the connection in the middle of the body."""
    response = await exchange.forward()
    await exchange.answer(response, len(response.body) // 2)


def edited(edit: Callable[[bytes], bytes]) -> Action:
    """Changes the body of a successful answer; Content-Length agrees with it."""

    async def action(exchange: Exchange) -> None:
        response = await exchange.forward()
        if response.start.split()[1][0] == "2":
            response.body = edit(response.body)
        await exchange.answer(response)

    return action


short = edited(lambda body: body[: len(body) // 2])
"""Sends half of a body that looks complete."""

at_line = edited(lambda body: body[: body.index(b"\n", len(body) // 2) + 1])
"""Sends a body that ends with a line."""

empty = edited(lambda body: b"")
flipped = edited(lambda body: body[:-9] + bytes([body[-9] ^ 1]) + body[-8:])


def omit(pattern: str) -> Action:
    """Removes the matching keys from a listing of S3."""
    entry = re.compile(rb"<Contents>.*?</Contents>", re.DOTALL)
    key = re.compile(rb"<Key>([^<]*)</Key>")

    def kept(match: re.Match[bytes]) -> bytes:
        name = unquote(key.search(match[0])[1].decode())  # type: ignore[index]
        return b"" if re.search(pattern, name) else match[0]

    return edited(lambda body: entry.sub(kept, body))


def then(change: Callable[[str], None]) -> Action:
    """Forwards a request, and then calls a function with its path, before it is answered."""

    async def action(exchange: Exchange) -> None:
        response = await exchange.forward()
        change(unquote(exchange.request.start.split(" ")[1].partition("?")[0]))
        await exchange.answer(response)

    return action


@contextmanager
def fault_proxy(upstream: int, host: str = "") -> Iterator[FaultProxy]:
    """Yields a proxy of the store at a port of this machine.

    Args:
        upstream: the port.
        host: replaces the name of the host in requests, which some stores sign; "" to keep it.
    """
    loop = asyncio.new_event_loop()
    proxy = FaultProxy(0, upstream, host)
    server = loop.run_until_complete(asyncio.start_server(proxy.serve, "127.0.0.1", 0))
    proxy.port = server.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        asyncio.run_coroutine_threadsafe(_cancel_others(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
