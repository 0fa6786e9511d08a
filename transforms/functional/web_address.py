"""A web address, parsed once: what is looked at here is what is fetched."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from urllib3.util import parse_url

MAX_CHARACTERS = 8192
"""Of an address; servers take about as many."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_BEFORE_PATH = re.compile(r"[A-Za-z]+://[^/?#]*")
_PORTS = {"http": 80, "https": 443}


class WebAddress(NamedTuple):
    """Where a request goes, and what it asks for.

    Attributes:
        scheme: "http" or "https".
        host: in lower case, its international names encoded.
        port: the scheme's own if none is given.
        path: as it is sent, without `.` and `..`; other characters than a path's are encoded.
        query: as it is sent, or None.
        login: user and password as they are written, or None.
    """

    scheme: str
    host: str
    port: int
    path: str
    query: str | None = None
    login: str | None = None

    @property
    def origin(self) -> tuple[str, str, int]:
        """Who is asked."""
        return self.scheme, self.host, self.port

    @property
    def target(self) -> str:
        """What is asked for."""
        return self.path if self.query is None else f"{self.path}?{self.query}"

    def __str__(self) -> str:
        """Returns the address without its login."""
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{self.host}{port}{self.target}"


@lru_cache(256)  # a root is parsed for each row
def parse_web_address(text: str) -> WebAddress:
    """Returns what a text is as a web address.

    >>> str(parse_web_address("HTTPS://me:pw@Host:443/a/../b c.jpg?d#e"))
    'https://host/b%20c.jpg?d'

    Raises:
        ValueError: if it is none, or programs read it in different ways.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"it has more than {MAX_CHARACTERS:,} characters")
    if has_control_characters(text):
        raise ValueError("it has control characters")
    before_path = _BEFORE_PATH.match(text)
    if before_path and "\\" in before_path[0]:
        raise ValueError("it has a backslash before its path")
    try:
        url = parse_url(text)
    except ValueError as error:  # its own says the whole address again, with its login
        raise ValueError("its host or its port is not valid") from error
    if url.scheme not in _PORTS or not url.host:
        raise ValueError("it has no host")
    port = url.port or _PORTS[url.scheme]
    return WebAddress(url.scheme, url.host, port, url.path or "/", url.query, url.auth)


def has_control_characters(text: str) -> bool:
    r"""Returns whether a text has characters that some programs drop, or stop at.

    >>> has_control_characters("a b"), has_control_characters("a\tb")
    (False, True)
    """
    return _CONTROL.search(text) is not None
