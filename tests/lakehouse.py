"""Tables of Delta Lake: with deletion vectors, which the library reads but does not write."""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from pathlib import Path
from typing import Any

from pyroaring import BitMap64

Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def log(table: Path) -> list[dict[str, Any]]:
    """Returns the actions in the log of a Delta table."""
    files = sorted((table / "_delta_log").glob("*.json"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def added(table: Path) -> list[dict[str, Any]]:
    """Returns the files that the log of a Delta table adds, in its order."""
    return [action["add"] for action in log(table) if "add" in action]


def commit(table: Path, *actions: dict[str, Any]) -> None:
    """Adds a version with some actions to a Delta table."""
    version = len(list((table / "_delta_log").glob("*.json")))
    text = "".join(json.dumps(action) + "\n" for action in actions)
    (table / "_delta_log" / f"{version:020}.json").write_text(text)


def delete_rows(table: Path, rows: dict[int, list[int]]) -> None:
    """Deletes rows of a Delta table as Spark does: by a deletion vector for each file.

    The format is that of PROTOCOL.md, "Deletion Vector Format".

    Args:
        table: the folder of the table.
        rows: the numbers of the deleted rows, by the number of the file in the log.
    """
    feature = ["deletionVectors"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    actions = [{"protocol": {**protocol, "readerFeatures": feature, "writerFeatures": feature}}]
    for number, deleted in rows.items():
        add = added(table)[number]
        bitmap = struct.pack("<i", 1681511377) + BitMap64(deleted).serialize()
        name = uuid.uuid4()
        content = b"\1" + struct.pack(">i", len(bitmap)) + bitmap
        (table / f"deletion_vector_{name}.bin").write_bytes(
            content + struct.pack(">I", zlib.crc32(bitmap))
        )
        vector = {"storageType": "u", "pathOrInlineDv": _z85(name.bytes), "offset": 1}
        vector |= {"sizeInBytes": len(bitmap), "cardinality": len(deleted)}
        remove = {"path": add["path"], "dataChange": True, "deletionTimestamp": 1}
        actions += [{"remove": remove}, {"add": {**add, "deletionVector": vector}}]
    commit(table, *actions)


def _z85(data: bytes) -> str:
    numbers = [int.from_bytes(data[at : at + 4], "big") for at in range(0, len(data), 4)]
    return "".join(
        Z85[number // 85**power % 85] for number in numbers for power in range(4, -1, -1)
    )
