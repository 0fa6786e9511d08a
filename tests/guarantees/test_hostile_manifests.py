"""An untrusted manifest is read or rejected with a message, and names no files outside."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from recordmill.pipelines.dataset import verify
from recordmill.pipelines.dataset.verify import verify_dataset
from recordmill.schemas.dataset_info import Problem
from recordmill.schemas.errors import VerificationFailed
from recordmill.schemas.manifest import Manifest
from recordmill.transforms.storage import published
from recordmill.transforms.storage.dataset import DatasetFolder
from recordmill.transforms.storage.published import commit_marker
from tests.unit.pipelines.run.test_target import INDEX, SHARD, VERIFIED, manifest, put_dataset

DOCUMENT = json.loads(manifest(Path("out")))
OUTSIDE = (
    "../x",
    "/etc/passwd",
    "a/../../x",
    "s3://b/k",
    "http://h/x",
    "file:///x",
    "",
    ".",
    "a//b",
)
ABSURD = st.one_of(
    st.sampled_from([10**30, -1, 2**63, 1e308, None, True, "", "9" * 5000, *OUTSIDE]),
    st.recursive(
        st.none() | st.text(max_size=3),
        lambda v: st.lists(v) | st.dictionaries(st.text(max_size=3), v),
    ),
)


def paths(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Returns the path of every value in a document."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [place, *(p for key, below in items for p in paths(below, (*place, key)))]


def changed(document: Any, place: tuple[Any, ...], value: Any) -> Any:
    if not place:
        return value
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[place[0]] = changed(copy[place[0]], place[1:], value)
    return copy


@given(place=st.sampled_from(paths(DOCUMENT)), value=ABSURD)
@settings(max_examples=400)
@example(("splits", "train", "shards", 0, "file"), "../x")
@example(("splits", "train", "shards", 0, "index_file"), "/etc/passwd")
@example(("input", "records"), 10**30)
def test_a_changed_manifest_is_read_or_rejected(place: tuple[Any, ...], value: Any) -> None:
    data = json.dumps(changed(DOCUMENT, place, value)).encode()
    answers = {"d/manifest.json": data, "d/_SUCCESS": commit_marker(data)}
    try:
        dataset = DatasetFolder.open_unchecked("d", answers.get)
    except VerificationFailed as error:
        assert str(error).startswith("d/manifest.json: is ")  # noqa: PT017
        return
    found = dataset.manifest
    assert dataset.is_committed
    list(found.count_mismatches())
    assert not {*OUTSIDE} & found.files
    assert found.resolved.schema == found.dataset_schema


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("field", ["file", "index_file", "sidecars"])
def test_no_manifest_names_a_file_outside_of_its_dataset(field: str, name: str) -> None:
    if field == "sidecars":
        document = changed(DOCUMENT, ("sidecars",), {name: "aa"})
    else:
        document = changed(DOCUMENT, ("splits", "train", "shards", 0, field), name)
    with pytest.raises(ValidationError, match="is not a path within the dataset's folder"):
        Manifest.model_validate_json(json.dumps(document))


def test_endless_nesting_is_rejected_with_a_message() -> None:
    for deep in ("[" * 10**6, '{"config": ' * 10**5):
        with pytest.raises(VerificationFailed, match="is not a manifest that this version reads"):
            DatasetFolder.open("d", lambda path, deep=deep: deep.encode())  # type: ignore[misc]


# Foreign, missing and special files beside a good manifest.


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset whose shard matches its manifest."""
    monkeypatch.setattr(verify.verifier_process, "verify", lambda *_: VERIFIED)
    monkeypatch.setattr(verify, "shard_tally", lambda *_: {})
    put_dataset(tmp_path, tmp_path / "1.0.0")
    return tmp_path / "1.0.0"


def problems_of(dataset: Path) -> dict[str, str]:
    """Returns the problems by file."""
    return {problem.file: problem.message for problem in verify_dataset(str(dataset), "parse")[1]}


FOREIGN = (
    *("t2-train.tfrecord-00000-of-00001", "birds-train.tfrecord-00001-of-00002", f".{SHARD}"),
    *("records/s/x.parquet", f"{INDEX}.bak", "cat.labels.txt", "metadata.json", ".DS_Store"),
    *("rejects/more.jsonl", "rejects/rejects-00001-of-00002.jsonl", "a/b/c/d", "x.partial"),
)


def test_every_foreign_file_is_reported(dataset: Path) -> None:
    before = problems_of(dataset)
    for name in FOREIGN:
        (dataset / name).parent.mkdir(parents=True, exist_ok=True)
        (dataset / name).write_bytes(b"")
    (dataset / "dangling").symlink_to("nowhere")
    found = problems_of(dataset)
    assert found.keys() - before.keys() == {*FOREIGN, "dangling"}
    assert all("is not part of this dataset" in found[name] for name in FOREIGN)
    assert "run.json" not in found
    assert "report.html" not in found


COMMIT_FILES = ("manifest.json", "_SUCCESS")
FILES = (
    *(SHARD, INDEX, "label.labels.txt", f"idx/{SHARD}.idx", "dataset_info.json"),
    *("rejects/rejects-00000-of-00001.jsonl", *COMMIT_FILES),
)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", ["folder", "full folder", "FIFO", "dangling link", "unreadable"])
def test_a_sidecar_that_is_not_a_regular_file_is_reported(
    dataset: Path, name: str, kind: str
) -> None:
    path = dataset / name
    path.unlink()
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "dangling link":
        path.symlink_to("nowhere")
    elif kind == "unreadable":
        path.symlink_to(path.name)  # as for root: nothing can follow it
    else:
        path.mkdir()
        if kind == "full folder":
            (path / "x").write_bytes(b"")
    if name in COMMIT_FILES:
        with pytest.raises(
            VerificationFailed, match=rf"{name}.*(cannot be read|is missing)|no {name}"
        ):
            verify_dataset(str(dataset), "parse")
        return
    found = problems_of(dataset)
    assert name in found or name.startswith("rejects/")
    if name.startswith("rejects/"):
        is_missing = kind == "dangling link"
        expected = "is missing" if is_missing else "cannot be read"
        assert found["rejects"].startswith(expected)
    else:
        assert found[name].startswith(("is missing", "cannot be read: "))


def test_a_missing_list_of_rejects_is_reported_even_if_it_was_empty(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "digest_of_lines", lambda _: "")
    (dataset / "rejects/rejects-00000-of-00001.jsonl").unlink()
    assert problems_of(dataset)["rejects"] == "is missing"


@pytest.mark.parametrize("field", ["file", "index_file"])
def test_no_manifest_lists_a_shard_twice(field: str) -> None:
    train = DOCUMENT["splits"]["train"]
    (shard,) = train["shards"]
    other = {**shard, "file": "birds-test.tfrecord-00000-of-00001", "index_file": "records/x"}
    splits = {"train": train, "test": {**train, "shards": [{**other, field: shard[field]}]}}
    with pytest.raises(ValidationError, match="is listed twice"):
        Manifest.model_validate_json(json.dumps({**DOCUMENT, "splits": splits}))


def test_a_line_of_rejects_nested_without_end_is_reported(dataset: Path) -> None:
    (dataset / "rejects/rejects-00000-of-00001.jsonl").write_text("[" * 10**6)
    assert "a line that is not a reject" in problems_of(dataset)["rejects"]


def test_damaged_records_are_named_first(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damage = Problem(SHARD, "Invalid PNG data (key 'a.png')", 0, 0)
    entry = VERIFIED.entry.model_copy(update={"sha256": "ff"})
    verification = replace(VERIFIED, entry=entry, problems=(damage,))
    monkeypatch.setattr(verify.verifier_process, "verify", lambda *_: verification)
    (dataset / "NOTES.md").write_bytes(b"")
    (dataset / "_SUCCESS").write_bytes(b"")
    files = [problem.file for problem in verify_dataset(str(dataset), "parse")[1]]
    assert (files[0], files[-1]) == (SHARD, "manifest.json")


@pytest.mark.parametrize("kind", ["shards", "names", "missing"])
def test_invalid_values_are_not_kept_with_an_error_each(kind: str) -> None:
    document = json.loads(json.dumps(DOCUMENT))
    if kind == "shards":
        next(iter(document["splits"].values()))["shards"] = [{}] * 1000
    else:
        document.update({f"{i}": {} for i in range(1000)})
        if kind == "missing":
            del document["format_version"]
    with pytest.raises(ValidationError) as raised:
        published._parse_manifest(json.dumps(document).encode())
    assert raised.value.error_count() < 20
