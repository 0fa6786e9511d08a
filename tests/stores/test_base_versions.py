"""Versions with a base version in the same bucket, whose unchanged shards the store copies."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tests.end_to_end import readers
from tests.end_to_end.command import recordmill
from tests.images import jpeg
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


OF_A_DAY = 40


def test_ten_days_are_one_conversion_and_each_reads_its_images_and_shards_only(
    s3_store: Store, tmp_path: Path
) -> None:
    for i in range(10 * OF_A_DAY):
        (tmp_path / "images" / f"{i}.jpg").parent.mkdir(exist_ok=True)
        (tmp_path / "images" / f"{i}.jpg").write_bytes(jpeg(16, 12, seed=i % 391))
    s3_store.upload(tmp_path / "images", "ten/images")
    convert_images(s3_store, tmp_path, "ten", 0, range(OF_A_DAY))
    for n in range(1, 10):
        ids = range(n * OF_A_DAY, (n + 1) * OF_A_DAY)
        s3_store.proxy.set()
        base = f"{s3_store.root}/ten/birds/1.{n - 1}.0"
        convert_images(s3_store, tmp_path, "ten", n, ids, f"--base={base}", "--append")
        assert_bytes_of_day(s3_store, tmp_path, n, ids)
    convert_images(s3_store, tmp_path, "all", 9, range(10 * OF_A_DAY))
    day, whole = (
        s3_store.download(f"{output}/birds/1.9.0", tmp_path / f"downloaded {output}")
        for output in ("ten", "all")
    )
    files = [
        {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.*")}
        for folder in (day, whole)
    ]
    assert files[0].keys() == files[1].keys()
    differs = {name for name, data in files[0].items() if data != files[1][name]}
    assert differs == {"manifest.json", "run.json"}


def assert_bytes_of_day(store: Store, folder: Path, n: int, ids: range) -> None:
    """Asserts which bytes an increment requested: of its images, and of shards that gain records.

    The first image is also read before the pipeline starts, and all images of `train`, of which
    there are fewer than 256, at its end, for their channels.
    """
    found = {
        name.removeprefix(f"GET {store.url_path}ten/"): size
        for name, size in store.proxy.bytes().items()
        if name.startswith("GET ")
    }
    sizes = {i: (folder / "images" / f"{i}.jpg").stat().st_size for i in ids}
    assert {name: size for name, size in found.items() if name.startswith("images/")} == {
        f"images/{i}.jpg": size * (1 + (i == ids.start)) for i, size in sizes.items()
    }
    base, new = (
        readers.shard_bytes(store.download(f"ten/birds/1.{version}.0", folder / f"1.{version}.0"))
        for version in (n - 1, n)
    )
    changed = {name for name, data in new.items() if data != base[name]}
    assert 8 < len(changed) < len(new)
    expected = Counter({f"birds/1.{n - 1}.0/{name}": len(base[name]) for name in changed})
    expected += Counter({f"birds/1.{n}.0/{name}": len(new[name]) for name in changed})
    expected += Counter(
        {f"birds/1.{n}.0/{name}": len(data) for name, data in new.items() if "-train." in name}
    )
    shards = {
        name: size
        for name, size in found.items()
        if "/birds-" in name and "/checkpoints/" not in name and size
    }
    assert Counter(shards) == expected


def convert_images(
    store: Store, folder: Path, output: str, day: int, ids: range, *flags: str
) -> None:
    """Converts a table of images in the store to a version in 36 shards."""
    table = folder / f"{output}-{day}.csv"
    table.write_text("image,label\n" + "".join(f"{i}.jpg,{'cd'[i % 2]}\n" for i in ids))
    target = (f"--output={store.root}/{output}", "--name=birds", f"--version=1.{day}.0")
    layout = ("--splits=train=0.6,test=0.4", "--num_shards=train=24,test=12", "--no_report")
    root = f"--image_root={store.root}/ten/images"
    ended = recordmill("convert", f"--input={table}", *target, *layout, root, *flags, *store.flags)
    assert ended.code == 0, ended.err


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
