"""The addresses of lakehouse tables in options."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any, NamedTuple

from recordmill.schemas.errors import UsageError

_ADDRESS = re.compile(r"(delta|iceberg):(.*?)(?:@(\d+))?", re.DOTALL)

_COLORS = re.compile(r"\x1b\[[0-9;]*m")

DELTA, ICEBERG = "delta", "iceberg"

_FORMS = {
    DELTA: "delta:PATH or delta:PATH@VERSION",
    ICEBERG: "iceberg:CATALOG.NAMESPACE.TABLE or iceberg:CATALOG.NAMESPACE.TABLE@SNAPSHOT",
}


class TableAddress(NamedTuple):
    """The address of a lakehouse table."""

    kind: str  # `DELTA` or `ICEBERG`
    name: str  # the path of the table, or its name with that of its catalog
    snapshot: int | None  # the version or the id of the snapshot; None for the current one

    @classmethod
    def parse(cls, text: str) -> TableAddress | None:
        """Returns the address that a text is; None if it is a path.

        `text` is a value of `--input` or `--labels`.

        >>> TableAddress.parse("delta:tables/birds@7")
        TableAddress(kind='delta', name='tables/birds', snapshot=7)
        """
        match = _ADDRESS.fullmatch(text)
        return match and cls(match[1], match[2], int(match[3]) if match[3] else None)

    def __str__(self) -> str:
        at = "" if self.snapshot is None else f"@{self.snapshot}"
        return f"{self.kind}:{self.name}{at}"

    def error(self, message: str) -> UsageError:
        """Returns an error about the table."""
        return UsageError(f"{self}: {message}")

    def malformed(self) -> UsageError:
        """Returns the error of an address without the name of a table."""
        return self.error(f"is not the address of a table; expected {_FORMS[self.kind]}")

    def library(self, name: str) -> Any:
        """Imports a module of the library that reads the table.

        Raises UsageError if the library is not installed.
        """
        try:
            return import_module(name)
        except ImportError as error:
            needs = f"needs the extra [{self.kind}]: pip install 'recordmill[{self.kind}]'"
            raise self.error(f"{needs} ({error})") from error


def plain_text(error: Exception) -> str:
    """Returns the text of a library's error on one line, without the colors of a terminal."""
    return " ".join(_COLORS.sub("", str(error)).split())
