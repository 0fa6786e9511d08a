"""Tests of the addresses of lakehouse tables."""

from __future__ import annotations

import pytest

from recordmill.schemas.errors import UsageError
from recordmill.transforms.storage.lakehouse import TableAddress, _plain_text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("delta:birds", ("delta", "birds", None)),
        ("delta:/a@b/birds@12", ("delta", "/a@b/birds", 12)),
        ("delta:s3://bucket/birds", ("delta", "s3://bucket/birds", None)),
        ("delta:birds@latest", ("delta", "birds@latest", None)),
        ("iceberg:prod.a.b.birds@7216345", ("iceberg", "prod.a.b.birds", 7216345)),
    ],
)
def test_an_address_is_parsed_and_written(text: str, expected: object) -> None:
    address = TableAddress.parse(text)
    assert address == expected
    assert str(address) == text


@pytest.mark.parametrize("text", ["birds", "/delta:birds", "s3://delta/birds", "hudi:birds"])
def test_other_texts_are_paths(text: str) -> None:
    assert TableAddress.parse(text) is None


def test_a_missing_library_is_named_by_its_extra() -> None:
    with pytest.raises(UsageError) as error:
        TableAddress("delta", "birds", 3).library("no_such_module")
    assert str(error.value) == (
        "delta:birds@3: needs the extra [delta]: pip install 'recordmill[delta]' "
        "(No module named 'no_such_module')"
    )


def test_errors_of_libraries_become_one_line() -> None:
    assert _plain_text(ValueError("a\n  \x1b[31m↳\x1b[0m b")) == "a ↳ b"
