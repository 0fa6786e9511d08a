"""Target folders: no run deletes, replaces or hides a foreign file."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.pipelines.run import lock as lock_module
from recordmill.pipelines.run import target as target_module
from recordmill.pipelines.run.lock import Lock, lock_target
from recordmill.pipelines.run.run_record import RunContext, finished_record, running_record
from recordmill.pipelines.run.target import Target, _discard, _swap
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.dataset_info import DatasetInfo, ShardVerification, manifest_of
from recordmill.schemas.errors import DatasetExists, RecordmillError, UsageError
from recordmill.schemas.layout import owned_in_leftover
from recordmill.schemas.manifest import ShardEntry
from recordmill.schemas.plan import Plan, ResolvedSchema
from recordmill.schemas.row_counts import RowCounts, SplitCounts
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.reconcile_counts import digest_of_lines
from recordmill.transforms.storage.published import commit_marker, current_folder

CONTEXT = RunContext("run", 0.0, "DirectRunner")
SHARD = "birds-train.tfrecord-00000-of-00001"
INDEX = "records/records-train-00000-of-00001.parquet"
ENTRY = ShardEntry(
    **{"file": SHARD, "records": 1, "bytes": 25, "payload": 9, "sha256": "aa", "crc32c": 1},
    **{"index_file": INDEX, "index_sha256": "bb", "images": {}},
)
VERIFIED = ShardVerification("train", 0, ENTRY, 2)
CHECKPOINT = f"checkpoints/{SHARD}.json"
TFDS = (
    *("dataset_info.json", "features.json", "label.labels.txt"),
    *("birds-train.tfrecord-00000-of-00001", "birds-test.tfrecord-00000-of-00001"),
)
HADOOP = ("_SUCCESS", "part-00000.parquet", "._SUCCESS.crc")


def config(output: Path, if_exists: str = "fail") -> ConvertConfig:
    schema = preset("image_classification")
    return ConvertConfig(
        inputs=("t.csv",), output=str(output), name="birds", schema=schema, if_exists=if_exists
    )


def manifest(output: Path) -> bytes:
    """Returns the manifest of a dataset of one shard, with a file of class names."""
    resolved = ResolvedSchema(preset("image_classification"), {"label": ("cat",)})
    splits = {"train": SplitCounts(rows=1, records=1, rejected=0, duplicates=0)}
    plan, counts = Plan(resolved, {"train": 1}, 1), RowCounts.of(1, splits)
    info = DatasetInfo(plan, counts, splits, (VERIFIED,), ())
    sidecars = {"label.labels.txt": "cc", f"idx/{SHARD}.idx": "dd", "dataset_info.json": "ee"}
    lines = {"rejects": digest_of_lines([b"{}\n"])}
    found = manifest_of(info, config(output), sidecars, lines=lines)
    return found.to_json()


def write(folder: Path, name: str, data: bytes = b"precious") -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def put_dataset(output: Path, folder: Path) -> None:
    data = manifest(output)
    for name in (SHARD, INDEX, "label.labels.txt", f"idx/{SHARD}.idx", "dataset_info.json"):
        write(folder, name, b"ours")
    write(folder, "rejects/rejects-00000-of-00001.jsonl", b"")
    write(folder, "report.html", b"ours")
    write(folder, "run.json", finished_record(CONTEXT, None, None).to_json())
    write(folder, "manifest.json", data)
    write(folder, "_SUCCESS", commit_marker(data))


def put_leftover(folder: Path) -> None:
    for name in (SHARD, INDEX, "rejects/rejects-00000-of-00001.jsonl", "report.html"):
        write(folder, name, b"ours")
    write(folder, "rejects/beam-temp-rejects-" + "a" * 32 + "/b1f5", b"ours")
    write(folder, "run.json", finished_record(CONTEXT, None, None).to_json())


def put_run(folder: Path) -> None:
    write(folder, CHECKPOINT, b"{}")
    write(folder, "dataset/.staging/" + "b" * 32 + ".images", b"ours")
    write(folder, "dataset/.staging/" + "c" * 32 + ".partial", b"ours")
    write(folder, f"dataset/{INDEX}", b"ours")
    write(folder, "progress/" + "1" * 8 + "-1111-1111-1111-" + "1" * 12 + ".json", b"{}")


def everything(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@contextmanager
def output_with(state: str) -> Iterator[tuple[Path, Path, Path]]:
    """Yields the output folder of an earlier run, the dataset's folder and the run's folder."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder)
        final, run = output / "birds/1.0.0", output / "birds/.1.0.0.run"
        if "published" in state:
            put_dataset(output, final)
        if "leftover" in state:
            put_leftover(final)
        if "killed" in state:
            put_run(run)
        if "replaced" in state:
            put_dataset(output, run / "replaced")
        yield output, final, run


NAMES = st.one_of(
    st.sampled_from(
        (
            *("NOTES.md", "checkpoints/best.ckpt", ".DS_Store", "metadata.json", "cat.labels.txt"),
            *("records/mine.parquet", "records/s/x.parquet", "rejects/more.jsonl", "idx/a.idx"),
            *("dropped/notes.txt", ".staging/mine.png", "beam-temp-mine/x", f"{SHARD}.bak"),
            *(".birds-train.tfrecord-00000-of-00001", "other-train.tfrecord-00000-of-00001"),
            *("_SUCCESS.txt", "rejects/rejects-00001-of-00002.jsonl", "run.json/x", "run.json.old"),
        )
    ),
    st.lists(
        st.text("abc. -_%[*é", min_size=1, max_size=5).filter(lambda n: n.strip(".")),
        min_size=1,
        max_size=3,
    ).map("/".join),
)


@given(
    state=st.sampled_from(
        ["", "published", "leftover", "killed", "published killed", "leftover killed"]
    ),
    names=st.sets(NAMES, max_size=3),
    in_run=st.booleans(),
    if_exists=st.sampled_from(["fail", "skip", "replace"]),
)
@settings(max_examples=60)
def test_a_foreign_file_is_rejected_and_kept(
    state: str, names: set[str], in_run: bool, if_exists: str
) -> None:
    with output_with(state) as (output, final, run):
        for name in names:
            try:
                write((run / "dataset") if in_run else final, name)
            except (OSError, ValueError):
                return  # a folder is there, or a file where a folder has to be
        before = everything(output)
        foreign = [name for name, data in before.items() if data == b"precious"]
        rejection: RecordmillError | None = None
        chosen = None
        try:
            chosen = lock_target(config(output, if_exists), CONTEXT)
        except RecordmillError as error:
            rejection = error
        if rejection is not None:
            assert everything(output) == before or not foreign
            assert rejection.exit_code == (2 if foreign and "contains" in str(rejection) else 5)
            return
        if chosen is None:
            assert (if_exists, "published" in state) == ("skip", True)
            assert {name: everything(output).get(name) for name in foreign} == dict.fromkeys(
                foreign, b"precious"
            )
            return
        assert not foreign
        chosen[1].release()


@given(
    state=st.sampled_from(["", "published", "leftover", "killed"]), name=NAMES, last=st.booleans()
)
@settings(max_examples=30)
def test_a_foreign_file_added_during_the_run_is_not_lost(state: str, name: str, last: bool) -> None:
    """Before the swap, it is rejected; after the last check, it survives the swap."""
    with output_with(state) as (output, final, _):
        chosen = lock_target(config(output, "replace"), CONTEXT)
        assert chosen is not None
        target, held = chosen
        put_dataset(output, Path(target.work))
        try:
            write(final, name)
        except (OSError, ValueError):
            held.release()
            return
        try:
            if not last:
                with pytest.raises(UsageError):
                    target.contents().check()
            target.publish([SHARD], CONTEXT)
        finally:
            held.release()
        assert b"precious" in everything(output).values()


@pytest.mark.parametrize("files", [TFDS, HADOOP, ("run.json",), ("manifest.json",), ("x",)])
@pytest.mark.parametrize("if_exists", ["fail", "skip", "replace"])
@pytest.mark.parametrize("killed", [False, True], ids=["", "beside a killed run"])
def test_a_folder_without_a_marker_is_left_unchanged(
    files: tuple[str, ...], if_exists: str, killed: bool, tmp_path: Path
) -> None:
    if killed:
        put_run(tmp_path / "birds/.1.0.0.run")
    for name in files:
        write(tmp_path / "birds/1.0.0", name)
    before = everything(tmp_path)
    with pytest.raises(UsageError, match=r"1\.0\.0: contains '[^']+', which (is not|was not)"):
        lock_target(config(tmp_path, if_exists), CONTEXT)
    assert everything(tmp_path) == before


@pytest.mark.parametrize("kind", ["a link", "a link to a folder", "a FIFO", "a hidden folder"])
def test_foreign_links_fifos_and_folders_are_rejected(kind: str, tmp_path: Path) -> None:
    final = tmp_path / "birds/1.0.0"
    put_dataset(tmp_path, final)
    write(tmp_path / "elsewhere", "x")
    if kind == "a FIFO":
        os.mkfifo(final / "odd")
    elif kind == "a hidden folder":
        write(final, ".odd/x")
    else:
        (final / "odd").symlink_to("nowhere" if kind == "a link" else tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="odd"):
        lock_target(config(tmp_path, "replace"), CONTEXT)
    assert (tmp_path / "elsewhere/x").read_bytes() == b"precious"


@pytest.mark.parametrize("there", ["a dataset", "nothing"])
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_link_in_place_of_a_dataset_is_not_replaced(
    there: str, dry_run: bool, tmp_path: Path
) -> None:
    """Renaming would move the link, but not its target."""
    final, elsewhere = tmp_path / "birds/1.0.0", tmp_path / "elsewhere"
    put_dataset(tmp_path, elsewhere) if there == "a dataset" else elsewhere.mkdir()
    final.parent.mkdir()
    final.symlink_to(elsewhere)
    before = everything(tmp_path)
    with pytest.raises(UsageError, match=r"1\.0\.0: is a link to /.*elsewhere; "):
        lock_target(config(tmp_path, "replace"), CONTEXT, dry_run)
    assert (everything(tmp_path), os.readlink(final)) == (before, str(elsewhere))
    if there == "a dataset":
        assert lock_target(config(tmp_path, "skip"), CONTEXT) is None


def test_the_folder_of_a_killed_run_is_recognized_by_its_name(tmp_path: Path) -> None:
    put_run(tmp_path / "birds/.1.0.0.run")
    write(tmp_path / "birds/.1.0.0.run/dataset", f"{SHARD}.partial", b"ours")
    chosen = lock_target(config(tmp_path), CONTEXT)
    assert chosen is not None
    chosen[1].release()
    assert set(everything(tmp_path / "birds/.1.0.0.run/dataset")) == {"run.json"}


@pytest.mark.parametrize("missing", ["", SHARD, INDEX, CHECKPOINT])
def test_a_finished_shard_is_kept_if_both_files_and_its_checkpoint_exist(
    missing: str, tmp_path: Path
) -> None:
    run = tmp_path / "birds/.1.0.0.run"
    put_run(run)
    write(run, f"dataset/{SHARD}", b"ours")
    write(run, "dataset/birds-test.tfrecord-00000-of-00001", b"ours")
    (run / ("" if missing == CHECKPOINT else "dataset") / missing).unlink() if missing else None
    chosen = lock_target(config(tmp_path), CONTEXT)
    assert chosen is not None
    chosen[1].release()
    kept = set() if missing else {CHECKPOINT, f"dataset/{SHARD}", f"dataset/{INDEX}"}
    left = {name for name in everything(run) if not name.startswith("progress/")}
    assert left == {"dataset/run.json", *kept}


@pytest.mark.parametrize("name", ["x", f"{SHARD}.txt", f"x/{SHARD}.json", "other.json"])
def test_a_foreign_file_among_checkpoints_is_an_error(name: str, tmp_path: Path) -> None:
    run = tmp_path / "birds/.1.0.0.run"
    put_run(run)
    write(run, f"checkpoints/{name}")
    before = everything(tmp_path)
    with pytest.raises(UsageError, match="contains 'checkpoints/"):
        lock_target(config(tmp_path), CONTEXT)
    assert everything(tmp_path) == before


def test_a_damaged_dataset_of_ours_can_be_replaced(tmp_path: Path) -> None:
    final = tmp_path / "birds/1.0.0"
    put_dataset(tmp_path, final)
    document = json.loads((final / "manifest.json").read_bytes())
    document["version"] = "6.6.6"
    (final / "manifest.json").write_text(json.dumps(document))
    (final / "run.json").unlink()
    chosen = lock_target(config(tmp_path, "replace"), CONTEXT)
    assert chosen is not None
    chosen[1].release()


# Where two folders cannot be swapped atomically: NFS, macOS.


def interrupted_swap(output: Path) -> Path:
    """Kills a replacement between its two renames."""
    final, run = output / "birds/1.0.0", output / "birds/.1.0.0.run"
    put_dataset(output, run / "replaced")
    put_dataset(output, run / "dataset")
    write(run / "replaced", "rejects/rejects-00000-of-00001.jsonl", b"old\n")
    (run / "published").mkdir()
    return final


def test_an_interrupted_swap_is_rolled_back_first(tmp_path: Path) -> None:
    final = interrupted_swap(tmp_path)
    with pytest.raises(DatasetExists):
        lock_target(config(tmp_path), CONTEXT)
    assert (final / "rejects/rejects-00000-of-00001.jsonl").read_bytes() == b"old\n"
    shutil.rmtree(tmp_path / "birds")
    final = interrupted_swap(tmp_path)
    assert lock_target(config(tmp_path, "skip"), CONTEXT) is None
    assert (final / "_SUCCESS").exists()


def test_readers_find_the_dataset_of_an_interrupted_swap_and_a_dry_run_keeps_it(
    tmp_path: Path,
) -> None:
    final = interrupted_swap(tmp_path)
    before = everything(tmp_path)
    assert current_folder(str(final)) == str(tmp_path / "birds/.1.0.0.run/replaced")
    with pytest.raises(DatasetExists):
        lock_target(config(tmp_path), CONTEXT, dry_run=True)
    assert everything(tmp_path) == before


# A crash at any step of a deletion leaves what the next run knows as its own.


class Struck(BaseException):
    """A simulated end of the process."""


@pytest.mark.parametrize("state", ["published", "leftover killed"])
@pytest.mark.parametrize("swaps", [True, False])
def test_after_a_crash_at_any_deletion_the_folder_is_still_recognized(
    state: str, swaps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_module, "lock", lambda path, _: Lock(path, None))
    if not swaps:
        monkeypatch.setattr(target_module, "_swap", lambda *_: False)
    for steps in range(60):
        with output_with(state) as (output, final, _):
            countdown = iter(range(steps))
            with pytest.MonkeyPatch.context() as patch, suppress(Struck):
                for name in ("rename", "unlink", "rmdir", "replace"):
                    patch.setattr(os, name, struck_after(countdown, getattr(os, name)))
                replace_dataset(output)
            done = next(countdown, None) is not None
            replace_dataset(output)
            assert [p.name for p in (output / "birds").iterdir()] == ["1.0.0"]
            assert (final / "_SUCCESS").exists()
        if done:
            return
    pytest.fail("60 steps are not all")


def struck_after(countdown: Iterator[int], call: Callable[..., object]) -> Callable[..., object]:
    def step(*args: object, **kwargs: object) -> object:
        if next(countdown, None) is None:
            raise Struck
        return call(*args, **kwargs)

    return step


def replace_dataset(output: Path) -> None:
    chosen = lock_target(config(output, "replace"), CONTEXT)
    assert chosen is not None
    target, held = chosen
    put_dataset(output, Path(target.work))
    target.publish([SHARD], CONTEXT)
    held.release()


def test_the_marker_of_a_folder_is_deleted_last(tmp_path: Path) -> None:
    put_leftover(tmp_path)
    order: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        unlink = os.unlink
        patch.setattr(os, "unlink", lambda path: (order.append(Path(path).name), unlink(path)))
        _discard(str(tmp_path), owned_in_leftover("birds"))
    assert order[-1] == "run.json"
    assert not tmp_path.exists()


def test_the_record_of_an_active_run_is_not_its_result(tmp_path: Path) -> None:
    write(tmp_path, "run.json", running_record(CONTEXT).to_json())
    record = json.loads((tmp_path / "run.json").read_bytes())
    assert (record["state"], record["exit_code"]) == ("running", 1)
    assert CONTEXT.record_in(str(tmp_path / "missing"), str(tmp_path)) is None
    write(tmp_path, "run.json", finished_record(CONTEXT, None, None).to_json())
    found = CONTEXT.record_in(str(tmp_path / "missing"), str(tmp_path))
    assert found is not None
    assert found.state == "published"


# In object stores nothing is renamed: files are written in place, and replaced by copies.


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treats local folders as folders of an object store."""

    def copy(files: dict[str, str], _: bool) -> None:
        for source, target in files.items():
            write(Path(target).parent, Path(target).name, Path(source).read_bytes())

    for module in (target_module, lock_module):
        monkeypatch.setattr(module, "is_local", lambda _: False)
    monkeypatch.setattr(target_module, "copy", copy)


@pytest.mark.usefixtures("store")
def test_a_run_in_a_store_marks_its_folder_before_it_writes_or_deletes(tmp_path: Path) -> None:
    put_leftover(tmp_path / "birds/1.0.0")
    chosen = lock_target(config(tmp_path), CONTEXT)
    assert chosen is not None
    assert chosen[0].work == chosen[0].final == str(tmp_path / "birds/1.0.0")
    ((name, data),) = everything(tmp_path).items()
    assert (name, json.loads(data)["state"]) == ("birds/1.0.0/run.json", "running")


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("files", [TFDS, HADOOP])
@pytest.mark.parametrize("if_exists", ["fail", "skip", "replace"])
def test_a_foreign_folder_in_a_store_is_left_unchanged(
    files: tuple[str, ...], if_exists: str, tmp_path: Path
) -> None:
    for name in files:
        write(tmp_path / "birds/1.0.0", name)
    before = everything(tmp_path)
    with pytest.raises(
        UsageError, match=r"which (is not part of a dataset|was not written by recordmill)"
    ):
        lock_target(config(tmp_path, if_exists), CONTEXT)
    assert everything(tmp_path) == before


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("state", ["published", "leftover killed"])
def test_after_a_crash_at_any_step_in_a_store_the_folder_is_still_recognized(state: str) -> None:
    for steps in range(60):
        with output_with(state) as (output, final, run):
            countdown = iter(range(steps))
            with pytest.MonkeyPatch.context() as patch, suppress(Struck):
                patch.setattr(os, "replace", struck_after(countdown, os.replace))
                patch.setattr(os, "unlink", struck_after(countdown, os.unlink))
                patch.setattr(target_module, "copy", struck_after(countdown, target_module.copy))
                replace_dataset(output)
            done = next(countdown, None) is not None
            replace_dataset(output)
            assert (final / "_SUCCESS").exists()
            assert not everything(run)
        if done:
            return
    pytest.fail("60 steps are not all")


@pytest.mark.skipif(sys.platform != "linux", reason="renameat2 is Linux's")
def test_two_folders_are_swapped_atomically(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    assert _swap(str(tmp_path / "a"), str(tmp_path / "b"))
    assert (os.listdir(tmp_path / "a"), os.listdir(tmp_path / "b")) == (["b"], ["a"])
    assert not _swap(str(tmp_path / "a"), str(tmp_path / "nowhere"))
    assert os.listdir(tmp_path / "a") == ["b"]


def test_damaged_shards_lose_their_checkpoints(tmp_path: Path) -> None:
    run = tmp_path / "birds/.1.0.0.run"
    target = Target(str(tmp_path / "birds/1.0.0"), str(run / "dataset"), str(run))
    for damaged, is_kept in {"schema.pbtxt": True, INDEX: False, SHARD: False}.items():
        write(run, CHECKPOINT, b"{}")
        target.forget_damaged({damaged}, [SHARD])
        assert (run / CHECKPOINT).exists() == is_kept


def test_a_run_folder_that_cannot_be_deleted_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "birds/.1.0.0.run"
    put_run(run)
    target = Target(str(tmp_path / "birds/1.0.0"), str(run / "dataset"), str(run))

    def denied(*_: object) -> None:
        raise PermissionError("access denied")

    with monkeypatch.context() as patch:
        patch.setattr(target_module, "delete_files", denied)
        assert target.clean_up_published(CONTEXT) == f"{run}: cannot be deleted: access denied"
    assert target.clean_up_published(CONTEXT) == ""
    assert not run.exists()
