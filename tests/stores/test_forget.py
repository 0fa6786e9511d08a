"""Records are removed from a dataset in a store: by copies of objects, as there are no links."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from tests.end_to_end import readers
from tests.end_to_end.command import recordmill
from tests.stores.kinds import Store


def test_removed_and_purged_images_are_in_no_object(
    s3_store: Store, local: Path, gallery: Path, tmp_path: Path
) -> None:
    s3_store.upload(local, "forget/birds/1.0.0")
    keys = [f"images/{n % 4}/a #{n:03d} ü.jpg" for n in (1, 46, 202)]
    (tmp_path / "keys.txt").write_text("\n".join(keys), "utf-8")
    where = f"{s3_store.root}/forget/birds"
    command = ("forget", where, "--keys", tmp_path / "keys.txt", "--purge", "--json")
    ended = recordmill(*command, *s3_store.flags)
    assert ended.code == 0, ended.err
    document = json.loads(ended.out)
    assert (document["removed"], document["directory"]) == (3, f"{where}/1.0.1")
    assert [holder["version"] for holder in document["purged"]] == ["1.0.0"]
    assert recordmill("verify", where, *s3_store.reading_flags).code == 0
    here = s3_store.download("forget/birds", tmp_path / "here")
    assert {path.name for path in here.iterdir()} == {"1.0.1"}
    before, after = readers.splits(local), readers.splits(here / "1.0.1")
    assert after == {split: kept - set(keys) for split, kept in before.items()}
    for key in keys:
        data = (gallery / key).read_bytes()
        signs = (data[len(data) // 2 :], hashlib.sha256(data).hexdigest().encode(), key.encode())
        for path in here.rglob("*"):
            if path.is_file() and path.name != "removal.json":
                assert not any(sign in path.read_bytes() for sign in signs), path
