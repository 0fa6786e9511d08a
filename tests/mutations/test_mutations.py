"""`verify` detects each of ten thousand mutations of a published dataset, and names the file.

Each copy has many damaged files, each with one mutation, and every file must be named.
manifest.json and _SUCCESS are damaged separately, because nothing else is read if the manifest
checksum differs.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipelines.dataset.verify import verify_dataset
from recordmill.schemas.errors import VerificationFailed
from recordmill.schemas.shard_format import ShardFormat
from recordmill.transforms.storage.published import commit_marker
from tests.end_to_end.command import published, recordmill
from tests.images import png
from tests.mutations.mutations import BLIND, RECORDS, Neighbors, of_file
from tests.shard_formats import every_compression, packed, unpacked

NOT_PROMISED = {"run.json", "report.html"}
"""They differ from run to run, so that nothing could vouch for them: see docs/explanation."""

COMMIT_FILES = ("manifest.json", "_SUCCESS")
FLAGS = ("--deduplicate", "content", "--max_rejects", "9")
SMALL = ("--splits", "train=0.6,test=0.4", "--num_shards", "train=2,test=1")
WIDE = ("--index", "--splits", "train=0.8,test=0.2", "--num_shards", "train=9,test=3")


def draw(folder: Path, rows: int, first: int = 0) -> Path:
    """Writes a table of small images; three rows are rejects, two are duplicates."""
    folder.mkdir()
    lines = ["image,label"]
    for i in range(first, first + rows):
        (folder / f"{i}.png").write_bytes(png(5, 4, i))
        lines.append(f"{i}.png,{('cat', 'dog', 'Übermut')[i % 3]}")
    for i in range(2):
        shutil.copy(folder / f"{first + i}.png", folder / f"copy {i}.png")
        lines.append(f"copy {i}.png,dog")
    lines += ["gone.png,cat", "away.png,dog", "lost.png,cat"]
    (folder / "labels.csv").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return folder / "labels.csv"


def files_of(dataset: Path) -> dict[str, bytes]:
    """Returns the content of every covered file by name."""
    paths = (path for path in sorted(dataset.rglob("*")) if path.is_file())
    found = {path.relative_to(dataset).as_posix(): path.read_bytes() for path in paths}
    return {name: data for name, data in found.items() if name not in NOT_PROMISED}


def kind_of(name: str) -> str:
    """Returns the kind of a file, whose files can replace one another."""
    head = name.partition("/")[0] if "/" in name else name
    return "shard" if ".tfrecord-" in head else head


class Scenario:
    """A dataset, an older run of the same rows, another dataset, and a copy to be damaged."""

    def __init__(self, folder: Path, rows: int, placement: tuple[str, ...]) -> None:
        table, other = draw(folder / "photos", rows), draw(folder / "other", rows, first=500)
        flags = (*FLAGS, *placement)
        made = published(table, folder / "out", *flags)
        older = published(table, folder / "older", *flags, "--seed", "7", "--no_report")
        foreign = published(other, folder / "foreign", *flags, "--no_report")
        self.files = files_of(made)
        self.copy = Path(shutil.copytree(made, folder / "copy" / "1.0.0"))
        self._older, self._foreign = files_of(older), files_of(foreign)

    def neighbors(self, name: str) -> Neighbors:
        """Returns the files that can replace a file."""
        return Neighbors(
            *(
                [
                    data
                    for other, data in files.items()
                    if kind_of(other) == kind_of(name) and data and data != self.files[name]
                ]
                or [b"{}\n"]
                for files in (self.files, self._older, self._foreign)
            )
        )

    def mutated(self, name: str, chance: random.Random) -> tuple[str, bytes]:
        """Returns the name of a mutation and the mutated content."""
        near = self.neighbors(name)
        while True:
            mutate = chance.choice(of_file(name))
            data = mutate(self.files[name], chance, near)
            if _content(name, data) != _content(name, self.files[name]):
                return mutate.__name__, data

    def reported(self, damaged: Mapping[str, bytes]) -> set[str]:
        """Returns the files that verification reports for a copy with damaged files."""
        for name, data in damaged.items():
            (self.copy / name).write_bytes(data)
        try:
            return {problem.file for problem in verify_dataset(str(self.copy), "parse")[1]}
        except VerificationFailed as error:
            return {name for name in COMMIT_FILES if name in str(error)}
        finally:
            for name in damaged:
                (self.copy / name).write_bytes(self.files[name])


def _content(name: str, data: bytes) -> object:
    """Returns the content of a file: sorted lines for rejects and dropped rows."""
    folder = name.partition("/")[0]
    return sorted(data.splitlines(keepends=True)) if folder in ("rejects", "dropped") else data


def names(name: str) -> set[str]:
    """Returns the names under which verification may report a file."""
    if name in COMMIT_FILES:
        return {*COMMIT_FILES}
    folder = name.partition("/")[0]
    return {folder} if folder in ("rejects", "dropped") else {name}


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    """A dataset of twelve shards."""
    return Scenario(tmp_path_factory.mktemp("wide"), 40, WIDE)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    """A dataset of three shards."""
    return Scenario(tmp_path_factory.mktemp("small"), 12, ("--index", *SMALL))


def test_every_file_is_covered_or_documented_as_not_covered(wide: Scenario) -> None:
    kinds = Counter(kind_of(name) for name in wide.files)
    assert kinds == {
        **{"shard": 12, "records": 12, "idx": 12, "rejects": 1, "dropped": 1},
        **dict.fromkeys(("manifest.json", "_SUCCESS", "features.json", "dataset_info.json"), 1),
        **{"schema.pbtxt": 1, "label.labels.txt": 1, "croissant.json": 1, "README.md": 1},
    }
    page = (Path(__file__).parents[2] / "docs/explanation/guarantees.md").read_text("utf-8")
    assert all(f"`{name}`" in page for name in NOT_PROMISED)
    assert wide.reported({}) == set()


def test_no_damage_is_undetected(wide: Scenario, request: pytest.FixtureRequest) -> None:
    mutations, seed = request.config.getoption("--mutations"), request.config.getoption("--seed")
    chance, made, undetected = random.Random(seed), Counter[str](), list[str]()
    began = time.monotonic()
    apart = [name for name in wide.files if name not in COMMIT_FILES and wide.files[name]]
    while made.total() < mutations:
        damages = {name: wide.mutated(name, chance) for name in apart}
        reported = wide.reported({name: data for name, (_, data) in damages.items()})
        for name, (how, _) in damages.items():
            made[f"{kind_of(name)}: {how}"] += 1
            if not reported & names(name):
                undetected.append(f"{name}: {how} of seed {seed}, number {made.total()}")
    seconds, missed = time.monotonic() - began, len(undetected)
    print(f"\n{made.total():,} mutations in {len(made)} ways, {seconds:.0f} s, {missed} undetected")
    assert undetected == []


@every_compression
def test_no_damage_of_a_compressed_shard_is_undetected(found: ShardFormat, tmp_path: Path) -> None:
    compressed = Scenario(tmp_path, 12, (*SMALL, "--compression", found.name))
    chance = random.Random(found.name)
    for name, stored in compressed.files.items():
        if kind_of(name) == "shard":
            near = compressed.neighbors(name)
            files = near.siblings, near.older, near.foreign
            inside = Neighbors(*([unpacked(found, data) for data in some] for some in files))
            damages = [(how, how(stored, chance, near)) for how in BLIND * 5]
            content = unpacked(found, stored)
            damages += [(how, packed(found, how(content, chance, inside))) for how in RECORDS * 5]
            for mutate, data in damages:
                if data != stored:
                    assert name in compressed.reported({name: data}), mutate.__name__


@pytest.mark.parametrize("name", COMMIT_FILES)
def test_no_damage_of_the_checksums_is_undetected(small: Scenario, name: str) -> None:
    chance = random.Random(name)
    for _ in range(200):
        how, data = small.mutated(name, chance)
        assert small.reported({name: data}) & {*COMMIT_FILES}, how


def test_a_single_damage_is_found_in_every_file(small: Scenario) -> None:
    chance = random.Random(1)
    for name, content in small.files.items():
        if not content or name in COMMIT_FILES:
            continue
        for mutate in of_file(name):
            data = mutate(content, chance, small.neighbors(name))
            if _content(name, data) != _content(name, content):
                assert small.reported({name: data}) & names(name), f"{name}: {mutate.__name__}"


@pytest.mark.parametrize("kind", ["shard", "records", "idx"])
def test_swapped_files_are_reported(small: Scenario, kind: str) -> None:
    found = [name for name in small.files if kind_of(name) == kind]
    for one in found:
        for other in found:
            if one < other:
                reported = small.reported({one: small.files[other], other: small.files[one]})
                assert {one, other} <= reported


def test_a_missing_file_is_reported_with_exit_code_3(small: Scenario) -> None:
    for name, content in small.files.items():
        path = small.copy / name
        path.unlink()
        try:
            ended = recordmill("verify", small.copy)
            assert (ended.code, ended.out) == (3, ""), name
            assert any(called in ended.err for called in names(name))
        finally:
            path.write_bytes(content)
    assert recordmill("verify", small.copy).code == 0


def _numbers(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _numbers(inner, (*path, key))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from _numbers(inner, (*path, i))
    elif isinstance(value, int) and not isinstance(value, bool):
        yield path


def _edited(manifest: bytes, path: tuple[Any, ...], edit: Callable[[Any], Any]) -> bytes:
    document = json.loads(manifest)
    holder = document
    for part in path[:-1]:
        holder = holder[part]
    holder[path[-1]] = edit(holder[path[-1]])
    return json.dumps(document, indent=2).encode() + b"\n"


def test_every_wrong_count_is_found_even_under_a_new_checksum(small: Scenario) -> None:
    """Counts of the dataset's content can be recomputed without a checksum,

    unlike `config` and `format_version`, which describe how it was made.
    """
    manifest = small.files["manifest.json"]
    counted = {"input", "images", "content", "splits"}
    paths = [path for path in _numbers(json.loads(manifest)) if path[0] in counted]
    assert len(paths) >= 40
    unseen = []
    for path in paths:
        for step in (-1, 1):
            forged = _edited(manifest, path, lambda number, step=step: number + step)
            if not small.reported({"manifest.json": forged, "_SUCCESS": commit_marker(forged)}):
                unseen.append((path, step))
    assert unseen == []


def test_every_wrong_digest_is_found_even_under_a_new_checksum(small: Scenario) -> None:
    manifest = small.files["manifest.json"]
    document = json.loads(manifest)
    paths = [("lines", name) for name in document["lines"]]
    paths += [("sidecars", name) for name in document["sidecars"]]
    for split, entry in document["splits"].items():
        for i in range(len(entry["shards"])):
            place = ("splits", split, "shards", i)
            paths += [(*place, name) for name in ("sha256", "index_sha256", "file", "index_file")]
    assert len(paths) >= 20
    for path in paths:
        forged = _edited(manifest, path, lambda text: text[:-1] + ("0" if text[-1] != "0" else "1"))
        assert small.reported({"manifest.json": forged, "_SUCCESS": commit_marker(forged)}), path


def test_a_shard_of_an_older_run_with_its_index_is_reported(small: Scenario) -> None:
    for name, content in small._older.items():
        if kind_of(name) == "shard" and content != small.files[name]:
            index = name.replace("birds-", "records/records-").replace(".tfrecord", "")
            damaged = {name: content, f"{index}.parquet": small._older[f"{index}.parquet"]}
            assert {*damaged} <= small.reported(damaged)


@pytest.mark.parametrize(
    "stray",
    [
        "birds-train.tfrecord-00002-of-00003",
        "birds-validation.tfrecord-00000-of-00001",
        "birds-train.tfrecord-00000-of-00002.gz",
        "records/records-train-00002-of-00003.parquet",
        "idx/birds-train.tfrecord-00002-of-00003.idx",
        "rejects/rejects-00001-of-00002.jsonl",
        "dropped/dropped-00001-of-00002.jsonl",
    ],
)
def test_an_extra_file_is_reported(small: Scenario, stray: str) -> None:
    folder = stray.rpartition("/")[0]
    like = next(n for n in small.files if kind_of(n) == (folder or "shard"))
    (small.copy / stray).write_bytes(small.files[like])
    try:
        assert small.reported({}) & {stray, folder}
    finally:
        (small.copy / stray).unlink()
