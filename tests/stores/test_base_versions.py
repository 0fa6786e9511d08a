"""Versions with a base version in the same bucket, whose unchanged shards the store copies."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tests.end_to_end import readers
from tests.end_to_end.command import recordmill
from tests.stores.kinds import Store


def test_unchanged_shards_are_those_of_the_base_version(
    object_store: Store, tmp_path: Path
) -> None:
    store, root = object_store, f"{object_store.root}/same/birds"
    convert_rows(store, tmp_path, "1.0.0", range(20), output="same")
    for base, version, flags in (("1.0.0", "1.1.0", ()), ("1.1.0", "1.2.0", ("--append",))):
        given = (f"--base={root}/{base}", *flags)
        convert_rows(store, tmp_path, version, range(20), *given, output="same")
        manifest = json.loads(store.get(f"same/birds/{version}/manifest.json"))
        assert manifest["base"]["shards_unchanged"] == 12
    verified = recordmill("verify", f"{root}/1.2.0", *store.reading_flags)
    assert verified.code == 0, verified.err
    first, *others = (
        readers.shard_bytes(store.download(f"same/birds/{version}", tmp_path / version))
        for version in ("1.0.0", "1.1.0", "1.2.0")
    )
    assert others == [first, first]


def test_an_increment_copies_shards_without_new_rows_within_the_store(
    s3_store: Store, tmp_path: Path
) -> None:
    convert_rows(s3_store, tmp_path, "1.0.0", range(20))
    s3_store.proxy.set()
    base = f"{s3_store.root}/days/birds/1.0.0"
    convert_rows(s3_store, tmp_path, "1.1.0", range(20, 24), f"--base={base}", "--append")
    counts = s3_store.proxy.counts()
    convert_rows(s3_store, tmp_path, "1.2.0", range(24))
    day, whole = (
        s3_store.download(f"days/birds/{version}", tmp_path / version)
        for version in ("1.1.0", "1.2.0")
    )
    shards, rows = readers.shard_bytes(day), readers.index_rows(day, "train")
    assert shards == readers.shard_bytes(whole)
    assert rows == readers.index_rows(whole, "train")
    changed = {
        f"birds-train.tfrecord-{row['shard']:05d}-of-00012" for row in rows if int(row["key"]) >= 20
    }
    assert 0 < len(changed) < len(shards) == 12
    assert {
        name.replace(f"{s3_store.url_path}days/birds/", ""): count
        for name, count in counts.items()
        if "/birds-train.tfrecord-" in name and "/checkpoints/" not in name
    } == Counter(
        [f"HEAD 1.0.0/{name}" for name in shards]
        + [f"GET 1.0.0/{name}" for name in changed]
        + [f"PUT 1.1.0/{name}" for name in shards]  # an unchanged one is copied by the store
        + [f"HEAD 1.1.0/{name}" for name in shards]
        + [f"GET 1.1.0/{name}" for name in changed]  # verification
    )


def convert_rows(
    store: Store, folder: Path, version: str, ids: range, *flags: str, output: str = "days"
) -> None:
    """Converts a table of numbers to a version in 12 shards."""
    table = folder / f"{version}.csv"
    table.write_text("id,x\n" + "".join(f"{i},{i * 0.5}\n" for i in ids))
    target = (f"--output={store.root}/{output}", "--name=birds", f"--version={version}")
    layout = ("--schema=tabular", "--key_column=id", "--num_shards=12", "--no_report")
    ended = recordmill("convert", f"--input={table}", *target, *layout, *flags, *store.flags)
    assert ended.code == 0, ended.err
