"""Conversions with table, images and output in a store give the same bytes as local ones."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from tests.end_to_end.command import Ended, recordmill
from tests.stores.conftest import FLAGS, IMAGES, REJECTS
from tests.stores.kinds import Store


def convert(store: Store, output: str, *flags: str) -> Ended:
    """Converts the images in a store."""
    table = f"{store.root}/gallery/lab*.csv"
    command = ["convert", "--input", table, "--output", f"{store.root}/{output}", "--name", "birds"]
    return recordmill(*command, *FLAGS, *store.flags, *flags)


_OTHERWISE = ("run.json", "report.html", "_SUCCESS", "manifest.json")
"""Files that differ between runs; the rest of the manifest is compared."""


def contents(dataset: Path) -> dict[str, object]:
    """Returns the content or digest of every file that is equal in every run."""
    files = {
        str(path.relative_to(dataset)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(dataset.rglob("*"))
        if path.is_file() and path.name not in _OTHERWISE
    }
    manifest = json.loads((dataset / "manifest.json").read_bytes())
    # They name the location of the table, as do the rejects, of which this is the digest.
    del manifest["fingerprint"], manifest["config"]["inputs"], manifest["lines"]["rejects"]
    rejects = sorted(files.pop(name) and name for name in list(files) if "rejects/" in name)
    entries = [
        {k: v for k, v in json.loads(line).items() if k in ("key", "reason")}
        for name in rejects
        for line in (dataset / name).read_text().splitlines()
    ]
    return {**files, "manifest": manifest, "rejects": sorted(entries, key=str)}


def test_input_and_output_in_a_store_give_the_same_bytes_as_local_files(
    store: Store, local: Path, tmp_path: Path
) -> None:
    ended = convert(store, "out", "--no_report")  # which shows rejected images, and reads them
    assert ended.code == 0, ended.err
    requests = store.proxy.counts()
    here = store.download("out/birds/1.0.0", tmp_path / "first")
    assert contents(here) == contents(local)
    assert json.loads((here / "manifest.json").read_bytes())["input"]["reasons"] == REJECTS

    images = f"{store.url_path}gallery/images/"
    read = {name: count for name, count in requests.items() if images in name}
    # The first image is read once more, before the pipeline starts (--fail_fast).
    first = f"GET {images}0/a #000 ü.png"
    assert {name: count for name, count in read.items() if count > 1} == {first: 2}
    assert {name.split(" ")[0] for name in read} == {"GET"}
    assert len(read) == IMAGES + len(REJECTS)

    where = f"{store.root}/out/birds/1.0.0"
    verified = recordmill("verify", where, "--decode", *store.reading_flags)
    assert (verified.code, verified.out) == (0, f"verified: {IMAGES:,} records in {where}\n"), (
        verified.err
    )

    compared = recordmill("diff", where, local, *store.reading_flags)
    assert (compared.code, compared.err) == (0, "")
    shown = recordmill("inspect", where, "--record", "3", *store.reading_flags)
    assert shown.out.replace(where, str(local)) == recordmill("inspect", local, "--record", "3").out

    names = sorted(store.names("out/"))
    assert convert(store, "out", "--if_exists=skip").code == 0
    assert convert(store, "out").code == 5
    replaced = convert(store, "out", "--no_report", "--if_exists=replace")
    assert replaced.code == 0, replaced.err
    assert sorted(store.names("out/")) == names
    assert contents(store.download("out/birds/1.0.0", tmp_path / "second")) == contents(local)


def test_a_read_only_store_is_a_usage_error(s3_store: Store) -> None:
    s3_store.proxy.set(match=" /birds.*/forbidden/", percent=100, faults=["403"])
    ended = convert(s3_store, "forbidden")
    assert (ended.code, "Traceback" in ended.err) == (2, False), ended.err
    assert (
        f"--output: {s3_store.root}/forbidden/birds/1.0.0 cannot be used: access denied"
        in ended.err
    )


def test_a_run_over_its_reject_budget_leaves_no_dataset(
    s3_store: Store, local: Path, tmp_path: Path
) -> None:
    store = s3_store
    ended = convert(store, "rejected", "--max_rejects=2")
    assert ended.code == 4, ended.err
    left = {name.rpartition("/")[2] for name in store.names("rejected/")}
    assert not left & {"_SUCCESS", "dataset_info.json", "manifest.json"}

    store.proxy.set()
    resumed = convert(store, "rejected", "--no_report")
    assert resumed.code == 0, resumed.err
    requests = store.proxy.counts()
    read = sum(n for name, n in requests.items() if name.startswith("GET /birds/gallery/images/"))
    assert 0 < read < IMAGES // 2  # what the first run had finished is not read again
    assert contents(store.download("rejected/birds/1.0.0", tmp_path)) == contents(local)

    schema, classes = _put_settings(store)
    sheet = recordmill("schema", schema, *store.reading_flags)
    assert (sheet.code, "class id" in sheet.out) == (0, True), sheet.err
    flags = (f"--schema={schema}", f"--classes={classes}", "--if_exists=replace")
    ended = convert(store, "rejected", *flags)
    assert ended.code == 0, ended.err
    labels = store.get("rejected/birds/1.0.0/label.labels.txt").decode().splitlines()
    assert labels == [f"class {number}" for number in reversed(range(7))]

    shard = "rejected/birds/1.0.0/birds-test.tfrecord-00000-of-00001"
    data = bytearray(store.get(shard))
    data[len(data) // 2] ^= 1
    store.put(shard, bytes(data))
    verified = recordmill("verify", f"{store.root}/rejected/birds/1.0.0", *store.reading_flags)
    assert verified.code == 3
    assert "birds-test.tfrecord-00000-of-00001: record " in verified.err


def _put_settings(store: Store) -> tuple[str, str]:
    """Uploads a schema and its class names to a store and returns their paths."""
    store.put(
        "settings/schema.yaml",
        b"name: small\nfeatures:\n  image: {kind: bytes, from: 'image:bytes'}\n"
        b"  label: {kind: int64, from: 'column:label', classes: true}\nimage: {column: image}\n",
    )
    store.put("settings/classes.txt", b"".join(b"class %d\n" % n for n in reversed(range(7))))
    return f"{store.root}/settings/schema.yaml", f"{store.root}/settings/classes.txt"
