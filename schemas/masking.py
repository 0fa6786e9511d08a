"""Keeps secrets out of whatever leaves the program: messages, logs, sidecars and reports.

What is printed or written goes through `masked`, or `masked_json` if it is a document. Both leave
what is masked already as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from recordmill.schemas.layout import is_url, is_web

_HIDDEN = "***"
_URL = re.compile(r"https?://(?:[^\s'\"<>]|'(?=[./%?&=-]*\w))*[^\s'\"<>:;,.]", re.IGNORECASE)
"""In a text; an apostrophe that the address goes on behind does not end it."""

_USERINFO = re.compile(r"(?i)^(https?://)[^/?#]*@")
_PASSWORD = re.compile(r"(?i)\b([a-z][a-z0-9+.-]{0,20}://)[^\s/?#@:]*:[^\s/?#@]*@")
"""Of any scheme; a name without a password is none of a secret's, as in `abfss://container@account`."""

_NAME = (
    r"x-(?:amz|goog|ms)-[\w-]{1,40}|sig|[\w.-]{0,40}(?:secret|passw|token|credential|signature"
    r"|(?:api|access|account|private)[_-]?key)[\w.-]{0,40}"
)
_CREDENTIAL = re.compile(rf"(?i)([?&;](?:{_NAME})=)(?!\*\*\*)[^&;#\s]+")
"""A query's, wherever it is in a text: an address of the web may well have a space before it."""

_SECRET_FLAG = re.compile(rf"(?i)--?(?:{_NAME}|[\w-]{{0,40}}connection_string)$")
_ASSIGNED = re.compile(rf"(?i)\b((?:{_NAME})=)(?!\*\*\*)[^\s,;&'\"]+")
_MASKED = re.compile(r"\*\*\*(?::\d+)?")
"""What stands for a secret, maybe before the line of a source."""

_PROSE = ("detail", "message")
"""Fields of documents whose text may begin with an address, and goes on behind it."""

_QUERY_SEPARATOR = re.compile(r"([&;])")
_FRAGMENT = re.compile(r"#.*$", re.DOTALL)


def masked_url(url: str) -> str:
    """Returns a web address without its password, and without the values of its query.

    Signed addresses carry their credentials there; their names do not reveal which value is one.

    >>> masked_url("https://me:secret@host/a.jpg?id=7&X-Amz-Signature=abc")
    'https://***@host/a.jpg?id=***&X-Amz-Signature=***'
    """
    if not is_web(url):
        return url
    address, mark, query = _FRAGMENT.sub("", _USERINFO.sub(r"\1***@", url)).partition("?")
    if mark and not query:
        return f"{address}?{_HIDDEN}"
    return address + mark + "".join(map(_masked_field, _QUERY_SEPARATOR.split(query)))


def _masked_field(field: str) -> str:
    """Returns a query's `name=value` with its value masked, or a separator as it is."""
    name, equals, value = field.partition("=")
    if not (value if equals else name.strip("&;")) or _MASKED.fullmatch(value or name):
        return field
    return f"{name}=***" if equals else _HIDDEN


def bare_url(url: str) -> str:
    """Returns a web address without what may be secret in it, and without a trace of it.

    >>> bare_url("https://me:secret@host/labels.csv?token=abc")
    'https://host/labels.csv'
    """
    if not is_web(url):
        return url
    return _USERINFO.sub(r"\1", url).partition("#")[0].partition("?")[0]


def is_masked(address: str) -> bool:
    """Returns whether an address leads elsewhere than before, as a part of it was masked."""
    return is_url(address) and _HIDDEN in address


def masked_source(source: str) -> str:
    """Returns where a row stands, its table masked.

    >>> masked_source("https://host/labels.csv?token=abc:17")
    'https://host/labels.csv?token=***:17'
    """
    file, colon, line = source.rpartition(":")
    if not (line.isascii() and line.isdigit()):
        return masked(source)
    return masked(file) + colon + line


def masked(text: str) -> str:
    """Returns a text with every address in it masked; one that is an address itself as a whole.

    >>> masked("GET http://host/a?token=abc: 503"), masked("s3://me:secret@bucket/a")
    ('GET http://host/a?token=***: 503', 's3://***@bucket/a')
    """
    if "://" in text:
        text = _URL.sub(lambda match: masked_url(match[0]), text)
        text = _PASSWORD.sub(r"\1***@", text)
    return _CREDENTIAL.sub(r"\1***", text)


def masked_command(command: Sequence[str]) -> Iterator[str]:
    """Yields the parts of a command, "***" in place of passwords, keys and tokens.

    >>> list(masked_command(["--s3_secret_access_key=abc", "--token", "t", "--key_column=id"]))
    ['--s3_secret_access_key=***', '--token', '***', '--key_column=id']
    """
    hide_next = False
    for part in command:
        flag, equals, value = part.partition("=")
        secret = bool(_SECRET_FLAG.match(flag))
        if hide_next and not part.startswith("--"):
            yield _HIDDEN
        elif secret and equals:
            yield f"{flag}={_HIDDEN}"
        elif flag.startswith("--") and equals:
            yield f"{flag}={_masked_word(value)}"
        else:
            yield _masked_word(part)
        hide_next = secret and not equals


def _masked_word(word: str) -> str:
    """Returns a value of a flag, masked: an address, or settings such as `ACCESS_KEY=value`."""
    return masked_url(word) if is_web(word) else _ASSIGNED.sub(r"\1***", masked(word))


def masked_values(document: Any) -> Any:
    """Returns a document of plain values with all its texts masked."""
    if isinstance(document, str):
        return masked_url(document) if is_web(document) else masked(document)
    if isinstance(document, dict):
        return {
            name: masked(value)
            if name in _PROSE and isinstance(value, str)
            else masked_values(value)
            for name, value in document.items()
        }
    if isinstance(document, list | tuple):
        return [masked_values(value) for value in document]
    return document


def masked_json(document: dict[str, Any]) -> str:
    """Returns a document as one line of JSON, masked; names that are not UTF-8 are escaped."""
    line = json.dumps(masked_values(document), ensure_ascii=False)
    return line.encode("utf-8", "backslashreplace").decode("utf-8")
