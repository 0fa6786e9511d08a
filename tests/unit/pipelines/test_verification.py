"""TFRecord files of any origin are verified: every change is found, with file, record and byte."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import re
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

import recordmill
from recordmill.pipelines import verification
from recordmill.pipelines.commands.verify import _show
from recordmill.pipelines.verification import Verification
from recordmill.schemas.errors import UsageError, VerificationFailed
from recordmill.schemas.example_pb2 import Example, SequenceExample
from recordmill.schemas.tables import TableFile
from recordmill.transforms.functional.records.framing import framed, read_frames
from recordmill.transforms.inputs.paths import list_paths
from recordmill.transforms.inputs.record_folders import dataset_lines

Files = dict[str, bytes]


def example(**features: object) -> bytes:
    """Returns a serialized example; the kind of each feature is that of its values."""
    message = Example()
    for name, value in features.items():
        values = value if isinstance(value, list) else [value]
        kinds = {int: "int64_list", float: "float_list", bytes: "bytes_list"}
        getattr(message.features.feature[name], kinds[type(values[0])]).value.extend(values)
    return message.SerializeToString()


def records(number: int, seed: int = 0) -> list[bytes]:
    source = random.Random(seed)
    return [
        example(image=source.randbytes(source.randrange(40, 90)), label=n) for n in range(number)
    ]


def joined(found: list[bytes]) -> bytes:
    return b"".join(map(framed, found))


def zipped(found: list[bytes]) -> bytes:
    return gzip.compress(joined(found), mtime=0)


def write(folder: Path, files: Files) -> Path:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def verified(path: Path | str, **options: bool) -> Verification:
    return recordmill.verify(path, check=False, **options)


def texts(found: Verification) -> list[str]:
    return [f"{Path(p.file).name} {p.record} {p.offset}: {p.message}" for p in found.problems]


def shard_set(encode: Callable[[list[bytes]], bytes] = joined, suffix: str = "") -> Files:
    return {f"train-0000{n}-of-00003{suffix}": encode(records(6, n)) for n in range(3)}


def tfds(files: list[list[bytes]]) -> Files:
    names = [f"birds-train.tfrecord-0000{n}-of-0000{len(files)}" for n in range(len(files))]
    split = {
        "name": "train",
        "shardLengths": [str(len(one)) for one in files],
        "numBytes": str(sum(len(data) for one in files for data in one)),
        "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
    }
    info = {"name": "birds", "fileFormat": "tfrecord", "splits": [split]}
    made = dict(zip(names, map(joined, files), strict=True))
    return {**made, "dataset_info.json": json.dumps(info).encode(), "features.json": b"{}"}


TFDS = tfds([records(6, n) for n in range(3)])


# Changes of the bytes of a file.


def flipped(data: bytearray, source: random.Random) -> None:
    data[source.randrange(len(data))] ^= 1 << source.randrange(8)


def cut(data: bytearray, source: random.Random) -> None:
    del data[source.randrange(len(data)) :]


def removed(data: bytearray, source: random.Random) -> None:
    start = source.randrange(len(data) - 1)
    del data[start : start + source.randrange(1, 200)]


def swapped(data: bytearray, source: random.Random) -> None:
    first, second = sorted(source.sample(range(len(data) - 8), 2))
    data[first : first + 8], data[second : second + 8] = (
        data[second : second + 8],
        data[first : first + 8],
    )


def doubled(data: bytearray, source: random.Random) -> None:
    start = source.randrange(len(data) - 50)
    data[start:start] = data[start : start + source.randrange(1, 50)]


def zeroed(data: bytearray, source: random.Random) -> None:
    start, size = source.randrange(len(data)), source.randrange(1, 400)
    data[start : start + size] = bytes(len(data[start : start + size]))


def appended(data: bytearray, source: random.Random) -> None:
    data += source.randbytes(source.randrange(1, 100))


CHANGES = (flipped, cut, removed, swapped, doubled, zeroed, appended)


def first_change(before: bytes, after: bytes) -> int:
    pairs = enumerate(zip(before, after, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(before), len(after)))


def place(data: bytes, byte: int) -> tuple[int, int, bool]:
    """Returns the number and the offset of the record at a byte, and whether it begins there."""
    number = offset = 0
    while offset < len(data):
        size = int.from_bytes(data[offset : offset + 8], "little") + 16
        if byte < offset + size:
            break
        number, offset = number + 1, offset + size
    return number, offset, byte == offset


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", ["plain", "tfds"])
def test_every_change_of_bytes_is_found_with_file_record_and_byte(
    kind: str, change: Callable[[bytearray, random.Random], None], tmp_path: Path
) -> None:
    files = TFDS if kind == "tfds" else shard_set()
    write(tmp_path, files)
    names = [name for name in files if "-of-" in name]
    source = random.Random(change.__name__)
    for _ in range(25):
        name = source.choice(names)
        data = bytearray(files[name])
        change(data, source)
        byte = first_change(files[name], data)
        number, offset, is_start = place(files[name], byte)
        (tmp_path / name).write_bytes(data)
        found = verified(tmp_path)
        (tmp_path / name).write_bytes(files[name])
        if data == files[name]:
            assert not found.problems
        elif byte == len(data) and is_start:  # whole records are missing: only a count reveals it
            assert bool(found.problems) == (kind == "tfds")
        else:
            first = found.problems[0]
            assert (first.file, first.record) == (str(tmp_path / name), number), texts(found)
            assert first.offset == offset


def before_damage(data: bytes, window_bits: int) -> tuple[bytes, bool]:
    """Returns what precedes damage in a compressed file, and whether there is any."""
    content, inflate = bytearray(), zlib.decompressobj(window_bits)
    try:
        for at, byte in enumerate(data):
            if inflate.eof and (window_bits == zlib.MAX_WBITS or data[at : at + 2] != b"\x1f\x8b"):
                return bytes(content), True
            inflate = zlib.decompressobj(window_bits) if inflate.eof else inflate
            content += inflate.decompress(bytes([byte]))
    except zlib.error:
        return bytes(content), True
    return bytes(content), not inflate.eof


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", ["gzip", "zlib", "tfds"])
def test_every_change_of_compressed_bytes_is_found_with_file_and_record(
    kind: str, change: Callable[[bytearray, random.Random], None], tmp_path: Path
) -> None:
    bits = zlib.MAX_WBITS if kind == "zlib" else 16 + zlib.MAX_WBITS
    pack = (lambda found: zlib.compress(joined(found))) if kind == "zlib" else zipped
    plain = TFDS if kind == "tfds" else shard_set()
    files = {name: pack(records(6, n)) for n, name in enumerate([*plain][:3])}
    write(tmp_path, {**plain, **files})
    source = random.Random(kind + change.__name__)
    for _ in range(20):
        name = source.choice([*files])
        data = bytearray(files[name])
        change(data, source)
        (tmp_path / name).write_bytes(data)
        found = verified(tmp_path)
        (tmp_path / name).write_bytes(files[name])
        before = zlib.decompress(files[name], bits)
        content, is_damaged = before_damage(data, bits)
        if content == before and not is_damaged:  # such as the time in the header
            assert not found.problems
            continue
        number, offset, _ = place(before, first_change(before, content))
        first = found.problems[0]
        assert (first.file, first.record) == (str(tmp_path / name), number), texts(found)
        assert first.offset == offset


def test_bytes_after_the_end_of_a_stream_are_found(tmp_path: Path) -> None:
    """TensorFlow ignores them after ZLIB, with the records in them, and fails after gzip."""
    more = {"zeros": bytes(20), "other bytes": b"x", "again": b""}
    for pack in (zipped, lambda found: zlib.compress(joined(found))):
        for kind, tail in more.items():
            path = tmp_path / "x"
            path.write_bytes(pack(records(3)) + (tail or pack(records(3))))
            found = verified(path)
            if pack is zipped and kind == "again":  # the members of a gzip file
                assert (found.records, found.problems) == (6, [])
                continue
            said = "other bytes" if kind == "again" else kind
            assert found.records == 3
            assert [p.message for p in found.problems] == [
                f"the compressed stream is damaged: {said} follow the end of the stream"
            ]


def missing(folder: Path, names: list[str], source: random.Random) -> list[str]:
    (folder / (name := source.choice(names))).unlink()
    return [name]


def renamed(folder: Path, names: list[str], source: random.Random) -> list[str]:
    name = source.choice(names)
    (folder / name).rename(folder / source.choice(["x.tfrecord", f"{name}.bak", f"copy-{name}"]))
    return [name]


def renumbered(folder: Path, names: list[str], source: random.Random) -> list[str]:
    name = source.choice(names)
    (folder / name).rename(folder / re.sub(r"\d{5}-of", "00007-of", name))
    return [name]


@pytest.mark.parametrize("change", [missing, renamed, renumbered])
@pytest.mark.parametrize("kind", ["plain", "gzip", "zlib", "tfds"])
def test_every_missing_or_renamed_shard_of_a_set_is_found(
    kind: str, change: Callable[[Path, list[str], random.Random], list[str]], tmp_path: Path
) -> None:
    suffix = {"gzip": ".gz", "zlib": ".tfrecord"}.get(kind, "")
    packs = {"gzip": zipped, "zlib": lambda found: zlib.compress(joined(found))}
    files = TFDS if kind == "tfds" else shard_set(packs.get(kind, joined), suffix)
    source = random.Random(kind + change.__name__)
    for number in range(5):
        folder = write(tmp_path / str(number), files)
        (name,) = change(folder, [name for name in files if "-of-" in name], source)
        found = verified(folder)
        shard = int(name.partition("-of-")[0][-5:])
        assert found.num_problems > 0
        assert any(
            str(folder / name) == problem.file or f"missing: {shard}" in problem.message
            for problem in found.problems
        ), texts(found)


@pytest.mark.parametrize("pack", [zipped, lambda found: zlib.compress(joined(found))])
def test_a_compressed_file_that_was_cut_is_damaged_after_the_records_that_are_left(
    pack: Callable[[list[bytes]], bytes], tmp_path: Path
) -> None:
    whole = records(40)
    data = pack(whole)
    found = verified(write(tmp_path, {"a": data[: len(data) // 2]}) / "a")
    place = f"a {found.records} {len(joined(whole[: found.records]))}: "
    assert texts(found)[0].startswith(f"{place}the compressed stream is damaged: ")
    assert 10 < found.records < 30
    changed = bytearray(zipped(whole))
    changed[-6] ^= 1  # the checksum of the content
    (problem,) = texts(verified(write(tmp_path, {"b": bytes(changed)}) / "b"))
    assert problem.startswith(f"b 40 {len(joined(whole))}: the compressed stream is damaged: ")
    assert problem.endswith("incorrect data check")


def test_records_that_were_removed_or_doubled_in_a_tfds_folder_are_counted(tmp_path: Path) -> None:
    write(tmp_path, TFDS)
    name = "birds-train.tfrecord-00001-of-00003"
    for left in (records(6, 1)[:5], [*records(6, 1), records(6, 1)[0]], []):
        (tmp_path / name).write_bytes(joined(left))
        assert texts(verified(tmp_path)) == [
            f"{name} None None: has {len(left)} records; dataset_info.json states 6"
        ]
    other = [*records(6, 1)[:5], example(image=b"another", label=5)]
    (tmp_path / name).write_bytes(joined(other))
    (problem,) = verified(tmp_path).problems
    assert problem.file == str(tmp_path / "dataset_info.json")
    assert "bytes of records; it states" in problem.message


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("plain", "train-*-of-00003 None None: 1 of 3 shard is missing: 1"),
        (
            "tfds",
            "birds-train.tfrecord-00001-of-00003 None None: is missing; dataset_info.json states 6 "
            "records in it",
        ),
    ],
)
def test_a_missing_or_renamed_shard_is_found(kind: str, said: str, tmp_path: Path) -> None:
    write(tmp_path, TFDS if kind == "tfds" else shard_set())
    (shard,) = tmp_path.glob("*-00001-of-*")
    shard.rename(tmp_path / "x.tfrecord")
    assert said in texts(verified(tmp_path))
    (tmp_path / "x.tfrecord").unlink()
    assert texts(verified(tmp_path)) == [said]
    others = [*map(str, sorted(tmp_path.glob("*-of-*")))]
    assert texts(recordmill.verify(others, check=False)) == [said]
    assert texts(verified(f"{tmp_path}/*-of-*")) == [said]
    assert texts(verified(others[0])) == []  # by itself


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ((1, 3), ["1 of 3 shard is missing: 2"]),
        ((0, 1, 2, 3), ["has shard 3; its name states 3 shards"]),
        ((0,), ["2 of 3 shards are missing: 1, 2"]),
    ],
)
def test_shards_are_numbered_from_0_or_1(
    numbers: tuple[int, ...], said: list[str], tmp_path: Path
) -> None:
    write(tmp_path, {f"x-{n}-of-3.tfrecord": joined(records(1)) for n in numbers})
    assert [problem.message for problem in verified(tmp_path).problems] == said


def test_a_set_of_zero_or_countless_shards_is_a_problem(tmp_path: Path) -> None:
    for name in ("x-0-of-0.tfrecord", "y-0-of-99999999999999999999.tfrecord"):
        write(tmp_path, {name: joined(records(1))})
    said = [problem.message for problem in verified(tmp_path).problems]
    assert len(said) == 2
    assert said[1].endswith("shards are missing: 1, 2, 3, 4, 5, …")


def test_a_split_without_any_file_is_found(tmp_path: Path) -> None:
    write(tmp_path, tfds([records(3)]))
    info = tmp_path / "dataset_info.json"
    document = json.loads(info.read_text())
    document["splits"].append({"name": "test", "shardLengths": ["2", "0"]})
    info.write_text(json.dumps(document))
    assert texts(verified(tmp_path)) == [
        "birds-test.tfrecord-00000-of-00002 None None: is missing; dataset_info.json states 2 "
        "records in it"
    ]


@pytest.mark.parametrize("info", [b"{", b"[]", b'{"splits": [{}]}', b"\xff", b"[" * 100_000])
def test_metadata_that_cannot_be_read_is_a_problem(info: bytes, tmp_path: Path) -> None:
    write(tmp_path, {**TFDS, "dataset_info.json": info})
    (said,) = texts(verified(tmp_path))
    assert "is not the metadata of a dataset" in said


def test_all_damage_of_a_file_is_counted_and_the_other_records_are_read(tmp_path: Path) -> None:
    data = bytearray(joined(whole := records(40)))
    for number in (3, 11, 12, 25):
        offset = len(joined(whole[:number]))
        data[offset + (2 if number == 11 else 30)] ^= 1
    path = write(tmp_path, {"x": bytes(data)}) / "x"
    found = verified(path)
    assert [p.record for p in found.problems] == [3, 11, 12, 25]
    assert (found.records, found.num_problems, found.files) == (36, 4, 1)
    assert found.features == {"image": "bytes", "label": "int64"}
    with pytest.raises(VerificationFailed, match="record 25 at byte") as raised:
        recordmill.verify(path)
    assert raised.value.verification.records == 36


def test_many_problems_are_counted_and_the_first_are_described(tmp_path: Path) -> None:
    data = b"".join(framed(b"abc")[:-1] + b"?" for _ in range(1200))
    found = verified(write(tmp_path, {"x": data}) / "x")
    assert (found.num_problems, len(found.problems)) == (1200, 1000)
    with pytest.raises(VerificationFailed, match="and 1,100 more"):
        found.check()


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (POINTER, "is not a TFRecord file, but Git LFS pointer. Fetch the file with git lfs pull."),
        (b"<!DOCTYPE html><html>", "is not a TFRecord file, but HTML. Download the file again"),
        (b"a,b\n" * 20, "it is not a TFRecord file"),
        (bytes(9000), "all of its 9,000 bytes are zeros"),
        (joined(records(3)) + bytes(5000), "all of its 5,000 bytes are zeros"),
        (joined(records(3))[:-40] + bytes(5000), "the last 5,000 of its 5,058 bytes are zeros"),
    ],
)
def test_what_a_damaged_file_is_instead_is_named(data: bytes, said: str, tmp_path: Path) -> None:
    found = verified(write(tmp_path, {"a.tfrecord": data}))
    assert said in texts(found)[0], texts(found)
    assert len(found.problems) == 1


def test_kinds_that_disagree_are_found_with_the_first_such_record(tmp_path: Path) -> None:
    one = [example(label=n) for n in range(9)]
    files = {"a.tfrecord": joined(one), "b.tfrecord": joined([one[0], example(label=1.5)])}
    assert texts(verified(write(tmp_path, files))) == [
        f"b.tfrecord 1 {len(framed(one[0]))}: feature 'label' is float in 1 record, first in this "
        "one; it is int64 in 10 records"
    ]


def test_features_that_some_records_lack_are_a_warning(tmp_path: Path) -> None:
    made = [example(label=1, text=b"a"), example(label=1)]
    found = verified(write(tmp_path, {"a.tfrecord": joined(made)}))
    assert not found.problems
    assert [w.message for w in found.warnings] == ["feature 'text' is in 1 of 2 records"]


def test_records_of_another_message_are_named(tmp_path: Path) -> None:
    texts_of = [b"a line of text", b"another"]
    found = verified(write(tmp_path / "a", {"x.tfrecord": joined(texts_of)}))
    assert (found.problems, found.records) == ([], 2)
    assert "no record is a tf.train.Example" in found.warnings[0].message
    mixed = [example(label=1), b"a line of text"]
    found = verified(write(tmp_path / "b", {"x.tfrecord": joined(mixed)}))
    offset = len(framed(mixed[0]))
    assert texts(found) == [f"x.tfrecord 1 {offset}: is not a tf.train.Example"]


def test_sequences_are_verified(tmp_path: Path) -> None:
    message = SequenceExample()
    message.context.feature["id"].bytes_list.value.append(b"a")
    for number in range(3):
        frame = message.feature_lists.feature_list["x"].feature.add()
        frame.int64_list.value.append(number)
    found = verified(write(tmp_path, {"x.tfrecord": framed(message.SerializeToString()) * 2}))
    assert (found.problems, found.warnings) == ([], [])
    assert found.features == {"id": "bytes", "x": "int64"}


@pytest.mark.parametrize(
    "files",
    [
        {"photos.tfrecord": joined(records(3))},
        {"photos.tfrec": joined(records(3))},
        {"val.record": joined(records(3))},
        {"train-00000-of-00001": joined(records(3))},
        {"a/train/data.bin": joined(records(3))},
        {f"x-{n}-of-3.tfrecord": joined(records(1)) for n in (1, 2, 3)},
        {"train.tfrecord-00000-of-00001.gz": zipped(records(3))},
        {"train.tfrecord.zlib": zlib.compress(joined(records(3)))},
        {"part-r-00000": joined(records(3)), "_SUCCESS": b""},
        {"part-00000-ab.tfrecord": joined(records(3)), "_SUCCESS": b"", ".part.crc": b"crc"},
        {"a.tfrecord": joined(records(1)), "a.rec": joined(records(1)), "b": joined(records(1))},
        {"a.tfrecord": joined(records(3)), "a.tfrecord.idx": b"0 99\n", "README.md": b"# x"},
        {"a.tfrecord": joined(records(3)), "model.ckpt-1.data-00000-of-00001": b"weights"},
        {"1.0.0/" + name: data for name, data in tfds([records(2), records(1)]).items()},
    ],
    ids=lambda files: next(iter(files)),
)
def test_files_of_any_name_and_compression_are_found_in_folders(
    files: Files, tmp_path: Path
) -> None:
    found = verified(write(tmp_path, files))
    assert (texts(found), found.warnings) == ([], [])
    assert found.records == 3


def test_an_empty_file_is_a_warning(tmp_path: Path) -> None:
    found = verified(write(tmp_path, {"a.tfrecord": b"", "b.tfrecord": joined(records(1))}))
    assert not found.problems
    assert [(Path(w.file).name, w.message) for w in found.warnings] == [
        ("a.tfrecord", "has no records")
    ]


def test_files_of_a_set_that_are_compressed_differently_are_a_warning(tmp_path: Path) -> None:
    files = {"a.tfrecord": joined(records(1)), "b.tfrecord": zipped(records(2)), "c.tfrecord": b""}
    found = verified(write(tmp_path, files))
    assert (found.records, found.problems) == (3, [])
    (mixed,) = (warning for warning in found.warnings if "compressed" in warning.message)
    assert mixed.message.startswith("some files are compressed and others are not")
    (tmp_path / "b.tfrecord").write_bytes(b"")
    assert not any("compressed" in warning.message for warning in verified(tmp_path).warnings)


def test_the_list_of_what_was_lost_is_json_whatever_the_names_are(tmp_path: Path) -> None:
    name = os.fsdecode(b"bl\xffue.tfrecord")
    folder = write(tmp_path / "in", {name: joined(records(2))[:-1]})
    recordmill.verify(folder, check=False, salvage=tmp_path / "out")
    (line,) = (tmp_path / "out/lost.jsonl").read_text("utf-8").splitlines()
    assert json.loads(line)["file"] == str(tmp_path / "in" / name)


@pytest.mark.parametrize("name", ["nowhere", "", "no*match"])
def test_nothing_to_verify_is_a_failure(name: str, tmp_path: Path) -> None:
    with pytest.raises(VerificationFailed, match=r"no such file|contains no file"):
        verified(f"{tmp_path}/{name}")


def test_images_that_cannot_be_decoded_are_found(tmp_path: Path) -> None:
    stream = io.BytesIO()
    Image.effect_noise((40, 40), 50).save(stream, "JPEG")
    whole = stream.getvalue()
    made = [example(image=data, text=b"BMW") for data in (whole, whole[:-300], whole)]
    path = write(tmp_path, {"a.tfrecord": joined(made)})
    assert not verified(path).problems
    found = recordmill.verify(path, "decode", check=False)
    (said,) = texts(found)
    assert said.startswith(f"a.tfrecord 1 {len(framed(made[0]))}: the image in 'image' cannot be")
    assert found.records == 2


def test_a_length_that_states_gigabytes_takes_no_memory_for_them(tmp_path: Path) -> None:
    from recordmill.transforms.functional.records.framing import _masked_crc32c

    length = (2**31 - 1).to_bytes(8, "little")
    header = length + _masked_crc32c(length).to_bytes(4, "little")
    found = verified(write(tmp_path, {"x.tfrecord": header + joined(records(3))}))
    (said,) = texts(found)
    assert "the file ends within the record of 2147483647 bytes; the next record begins at" in said
    assert found.records == 3


def data_of(path: Path) -> list[bytes]:
    with path.open("rb") as stream:
        return [frame.data for frame in read_frames(stream)]


def test_every_intact_record_of_a_file_with_20_damaged_places_is_salvaged(tmp_path: Path) -> None:
    whole = records(200)
    source, data = random.Random(5), bytearray()
    broken = set(source.sample(range(1, 200, 2), 20))  # none beside another
    for number, one in enumerate(map(framed, whole)):
        changed = bytearray(one)
        if number in broken:
            CHANGES[number % 6](changed, source)
        data += changed
    path = write(tmp_path / "in", {"a.tfrecord": bytes(data), "b.tfrecord": joined(whole)})
    found = recordmill.verify(path, check=False, salvage=tmp_path / "out")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["a.tfrecord", "lost.jsonl"]
    kept = data_of(tmp_path / "out/a.tfrecord")
    # A record whose change was undone by chance, or cut off behind its end, is intact as well.
    assert [one for n, one in enumerate(whole) if n not in broken] == [
        one for one in kept if whole.index(one) not in broken
    ]
    assert found.salvaged == {str(tmp_path / "out/a.tfrecord"): len(kept)}
    lines = (tmp_path / "out/lost.jsonl").read_text().splitlines()
    assert [json.loads(line)["record"] for line in lines] == [p.record for p in found.problems]
    assert recordmill.verify(tmp_path / "out").records == len(kept)
    with pytest.raises(UsageError, match="has files, such as"):
        recordmill.verify(path, salvage=tmp_path / "out")


def test_files_that_are_intact_are_to_be_copied_beside_the_salvaged_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"a.tfrecord": joined(records(9))[:-3], "b.tfrecord": joined(records(2))}
    path = write(tmp_path / "in", files)
    _show(recordmill.verify(path, check=False, salvage=tmp_path / "out"), "out")
    assert capsys.readouterr().out == (
        "salvaged: 8 records of 1 file; copy the 1 intact file beside them; "
        "convert them with --input out\n"
    )


@pytest.mark.parametrize("name", ["a.rec", "a.tfrecord", "a", "train-00000-of-00001"])
def test_salvaged_files_of_any_name_are_an_input_beside_their_list(
    tmp_path: Path, name: str
) -> None:
    damaged = joined(records(9))[:-3]
    path = write(tmp_path / "in", {name: damaged})
    recordmill.verify(path, check=False, salvage=tmp_path / "out")
    assert (tmp_path / "out/lost.jsonl").exists()
    found = list_paths(str(tmp_path / "out"), "auto")
    assert [file.path for file in found] == [str(tmp_path / "out" / name)]
    lines = list(dataset_lines([TableFile(file.path, "tfrecord") for file in found]))
    assert lines == [f"{tmp_path}/out/lost.jsonl: lists damaged records that these files lack"]


def test_salvaged_files_of_several_suffixes_are_one_input(tmp_path: Path) -> None:
    names = ["a.rec", "b.tfrecord", "c", "x/d.rec", "x/e.tfrecord"]
    write(tmp_path / "in", {name: joined(records(9))[:-3] for name in names})
    for number in (3, 5):
        paths, out = [tmp_path / "in" / name for name in names[:number]], tmp_path / str(number)
        recordmill.verify(paths, check=False, salvage=out)
        found = [found.path for found in list_paths(str(out), "auto")]
        assert found == [str(out / name) for name in names[:number]]


def test_shards_in_folders_are_salvaged_under_their_names(tmp_path: Path) -> None:
    damaged = zipped(records(200))[:-300]
    files = {"x/a.tfrecord.gz": damaged, "y/a.tfrecord.gz": damaged, "y/b.tfrecord": b"?"}
    write(tmp_path / "in", files)
    recordmill.verify(tmp_path / "in", check=False, salvage=tmp_path / "out")
    names = ["lost.jsonl", "x/a.tfrecord", "y/a.tfrecord"]  # y/b has no record
    assert sorted(str(p.relative_to(tmp_path / "out")) for p in found_files(tmp_path)) == names
    kept = data_of(tmp_path / "out/x/a.tfrecord")
    assert kept == records(200)[: len(kept)]
    assert len(kept) > 150


def found_files(folder: Path) -> list[Path]:
    return [path for path in (folder / "out").rglob("*") if path.is_file()]


def test_nothing_is_written_if_nothing_is_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "in", {"a.tfrecord": joined(records(2))})
    found = recordmill.verify(path, salvage=tmp_path / "out")
    assert found.salvaged == {}
    _show(found, "out")
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "salvaged: nothing, because no file has damaged records; out was not written"
    assert not (tmp_path / "out").exists()


def test_a_record_of_a_small_gzipped_file_that_would_fill_the_memory_is_a_problem(
    tmp_path: Path,
) -> None:
    huge = bytes(80 * 2**20)
    found = verified(write(tmp_path, {"a.tfrecord.gz": zipped([huge, example(label=1)])}))
    (said,) = texts(found)
    assert "expected records of at most 67,108,864 bytes in a compressed file of this size" in said


def test_a_dataset_whose_marker_cannot_be_read_is_not_taken_for_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"a.tfrecord": joined(records(1)), "_SUCCESS": b"00\n"})

    def denied(path: str) -> bytes:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(verification.published, "read_file", denied)
    with pytest.raises(VerificationFailed, match="_SUCCESS: cannot be read: Permission denied"):
        recordmill.verify(tmp_path)
