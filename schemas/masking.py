"""Masks secrets and escapes invisible characters in messages, logs, sidecars and reports.

Printed and written text passes through `masked`, and documents through `masked_json`. Both are
idempotent.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

from recordmill.schemas.layout import is_url, is_web

_HIDDEN = "***"

# A web address within text; an apostrophe followed by more of the address does not end it.
_URL = re.compile(r"https?://(?:[^\s'\"<>]|'(?=[./%?&=-]*\w))*[^\s'\"<>:;,.]", re.IGNORECASE)

_USERINFO = re.compile(r"(?i)^(https?://)[^/?#]*@")

# User and password in a URL; a user alone is not a secret, as in `abfss://container@account`.
_PASSWORD = re.compile(r"(?i)\b([a-z][a-z0-9+.-]{0,20}://)[^\s/?#@:]*:[^\s/?#@]*@")

_NAME = (
    r"x-(?:amz|goog|ms)-[\w-]{1,40}|sig|[\w.-]{0,40}(?:secret|passw|token|credential|signature"
    r"|(?:api|access|account|private)[_-]?key)[\w.-]{0,40}"
)

# A credential in a query, even in text after a space, which may be part of a web address.
_CREDENTIAL = re.compile(rf"(?i)([?&;](?:{_NAME})=)(?!\*\*\*)[^&;#\s]+")

_SECRET_FLAG = re.compile(rf"(?i)--?(?:{_NAME}|[\w-]{{0,40}}connection_string)$")
_ASSIGNED = re.compile(rf"(?i)\b((?:{_NAME})=)(?!\*\*\*)[^\s,;&'\"]+")

# A masked secret, with the line of a source location, if any.
_MASKED = re.compile(r"\*\*\*(?::\d+)?")

# Fields of documents with prose, which may begin with an address without being one.
_PROSE = ("detail", "message", "text", "hint")

# The group keeps the separators in the result of split(), so that join() restores the query.
_QUERY_SEPARATOR = re.compile(r"([&;])")
_FRAGMENT = re.compile(r"#.*$", re.DOTALL)


def masked_url(url: str) -> str:
    """Returns a web address with its password and the values of its query masked.

    All values are masked, because the name of a field does not reveal whether it is a credential.

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
    """Returns a field `name=value` of a query with its value masked; separators are unchanged."""
    name, equals, value = field.partition("=")
    if not (value if equals else name.strip("&;")) or _MASKED.fullmatch(value or name):
        return field
    return f"{name}=***" if equals else _HIDDEN


def bare_url(url: str) -> str:
    """Returns a web address without user, query and fragment.

    >>> bare_url("https://me:secret@host/labels.csv?token=abc")
    'https://host/labels.csv'
    """
    if not is_web(url):
        return url
    return _USERINFO.sub(r"\1", url).partition("#")[0].partition("?")[0]


def is_masked(address: str) -> bool:
    """Returns whether a part of a URL was masked, so that it cannot be opened."""
    return is_url(address) and _HIDDEN in address


def masked_source(source: str) -> str:
    """Returns a source location with its table masked.

    >>> masked_source("https://host/labels.csv?token=abc:17")
    'https://host/labels.csv?token=***:17'
    """
    file, colon, line = source.rpartition(":")
    if not (line.isascii() and line.isdigit()):
        return masked(source)
    return masked(file) + colon + line


def masked(text: str) -> str:
    """Returns text with all URLs and credentials in it masked.

    >>> masked("GET http://host/a?token=abc: 503"), masked("s3://me:secret@bucket/a")
    ('GET http://host/a?token=***: 503', 's3://***@bucket/a')
    """
    if "://" in text:
        text = _URL.sub(lambda match: masked_url(match[0]), text)
        text = _PASSWORD.sub(r"\1***@", text)
    return _CREDENTIAL.sub(r"\1***", text)


def masked_command(command: Sequence[str]) -> Iterator[str]:
    """Yields the arguments of a command, with passwords, keys and tokens masked.

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
    """Returns the value of a flag, masked: a URL, or a setting such as `ACCESS_KEY=value`."""
    return masked_url(word) if is_web(word) else _ASSIGNED.sub(r"\1***", masked(word))


def masked_values(document: Any) -> Any:
    """Returns a JSON document with all its strings masked."""
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
    """Returns a masked document as one line of JSON; characters that are not UTF-8 are escaped."""
    line = json.dumps(masked_values(document), ensure_ascii=False)
    return line.encode("utf-8", "backslashreplace").decode("utf-8")


# Unicode categories of characters that control terminals, reverse text, or are invisible.
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def visible(text: str) -> str:
    r"""Returns a text with its invisible characters escaped as in Python.

    >>> print(visible("a\x1b[2Jb"), visible("evil\u202egpj.exe"))
    a\x1b[2Jb evil\u202egpj.exe
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(escaped(c) if is_hidden(c) else c for c in text)


def is_hidden(character: str) -> bool:
    """Returns whether a character is invisible or a control character."""
    return unicodedata.category(character) in _INVISIBLE


def escaped(character: str) -> str:
    r"""Returns a character escaped as in Python, also if it is ASCII.

    >>> print(escaped("\n"), escaped("猫"))
    \x0a \u732b
    """
    if ord(character) < 128:
        return f"\\x{ord(character):02x}"
    return character.encode("ascii", "backslashreplace").decode("ascii")
