"""Keeps what a URL keeps secret out of messages, logs and rejects."""

from __future__ import annotations

import re

from schemas.layout import is_web

_URL = re.compile(r"https?://[^\s'\"<>]*[^\s'\"<>:;,.]", re.IGNORECASE)
_USERINFO = re.compile(r"(?i)^(https?://)[^/?#]*@")
_QUERY_SEPARATOR = re.compile(r"([&;])")
_FRAGMENT = re.compile(r"#.*$", re.DOTALL)


def masked_url(url: str) -> str:
    """Returns a web address without its password, and without the values of its query.

    Signed addresses carry their credentials there; which value is one, no name tells for sure.

    >>> masked_url("https://me:secret@host/a.jpg?id=7&X-Amz-Signature=abc")
    'https://***@host/a.jpg?id=***&X-Amz-Signature=***'
    """
    if not is_web(url):
        return url
    address, mark, query = _FRAGMENT.sub("", _USERINFO.sub(r"\1***@", url)).partition("?")
    if mark and "=" not in query:
        return f"{address}?***"
    return address + mark + "".join(map(_masked_field, _QUERY_SEPARATOR.split(query)))


def _masked_field(field: str) -> str:
    """Returns a query's `name=value` with its value masked, or a separator as it is."""
    name, equals, value = field.partition("=")
    return f"{name}=***" if value else name + equals


def masked_source(source: str) -> str:
    """Returns where a row stands, its table masked.

    >>> masked_source("https://host/labels.csv?token=abc:17")
    'https://host/labels.csv?token=***:17'
    """
    file, colon, line = source.rpartition(":")
    return masked_url(file) + colon + line


def masked(text: str) -> str:
    """Returns a text with every web address in it masked.

    >>> masked("GET http://host/a?token=abc: 503")
    'GET http://host/a?token=***: 503'
    """
    return _URL.sub(lambda match: masked_url(match[0]), text)
