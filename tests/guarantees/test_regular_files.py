"""FIFOs, sockets and devices that a table or flag names are rejected without blocking."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.pipelines.options import config_of, load_schema
from recordmill.pipelines.record_files import _files_of
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import UsageError
from recordmill.schemas.records import SkippedInput
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.transforms.inputs.file_tree import FileTree
from recordmill.transforms.inputs.input_tables import probe_labels, probe_tables
from recordmill.transforms.storage.files import open_binary, read_bytes
from recordmill.transforms.storage.local_files import NotRegularError
from recordmill.transforms.storage.stores.beam import use_pipeline_options

pytestmark = pytest.mark.timeout(20)  # a hang fails soon


def fifo(path: Path) -> None:
    os.mkfifo(path)


def bound(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(path))  # their names may have 108 bytes


def linked(path: Path) -> None:
    path.symlink_to("/dev/zero")


SPECIAL: dict[str, tuple[Callable[[Path], None], str]] = {
    "fifo": (fifo, "is a FIFO; expected a regular file"),
    "socket": (bound, "is a socket; expected a regular file"),
    "device": (linked, "is a character device; expected a regular file"),
    "folder": (Path.mkdir, "Is a directory"),
}


@pytest.fixture(params=SPECIAL)
def special(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """The path of something else than a regular file, and what is said of it."""
    make, said = SPECIAL[request.param]
    path = tmp_path / "x.csv"
    make(path)
    return path, said


@pytest.fixture
def limit() -> Iterator[int]:
    use_pipeline_options(PipelineOptions(["--max_image_bytes=1000"]))
    yield 1000
    use_pipeline_options(PipelineOptions([]))


def why(path: object, *span: int) -> str:
    """Returns why a file cannot be read."""
    with pytest.raises(RecordError) as caught:
        read_bytes(str(path), *span)
    assert caught.value.reason == Reason.READ_ERROR
    return caught.value.detail.removeprefix(f"{path}: ")


def test_an_image_that_is_not_a_regular_file_is_a_read_error(special: tuple[Path, str]) -> None:
    path, said = special
    assert why(path) == said
    assert why(path, 0, 10) == said
    with pytest.raises((NotRegularError, IsADirectoryError)):
        open_binary(str(path))


def test_an_image_above_the_limit_is_a_read_error(limit: int, tmp_path: Path) -> None:
    said = "is larger than 1,000 bytes; --max_image_bytes allows no more"
    path = tmp_path / "1.jpg"
    path.write_bytes(bytes(limit))
    assert read_bytes(str(path)) == bytes(limit)
    os.truncate(path, 2**40)  # takes no space on the disk, and would not fit into memory
    assert why(path) == said
    assert why(path, 5, 2**39) == said
    assert read_bytes(str(path), 5, 5 + limit) == bytes(limit)
    assert read_bytes(str(path), 2**40 - 3, 2**40 + 2**41) == bytes(3)


@pytest.mark.skipif(not os.path.exists("/proc/self/mountinfo"), reason="no /proc")
def test_a_file_that_says_to_be_empty_and_is_not_is_read_up_to_the_limit(limit: int) -> None:
    assert read_bytes("/proc/self/comm") == Path("/proc/self/comm").read_bytes()
    assert why("/proc/kallsyms").startswith("is larger than 1,000 bytes")


def test_the_bytes_of_a_range_end_with_the_file(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"0123456789")
    assert read_bytes(f"{tmp_path}/x", 2, 5) == b"234"
    assert read_bytes(f"{tmp_path}/x", 8, 20) == b"89"
    assert read_bytes(f"{tmp_path}/x", 20, 30) == b""


def test_memory_that_ends_is_a_read_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(*_: object) -> bytes:
        raise MemoryError

    monkeypatch.setattr("recordmill.transforms.storage.local_files._read_regular", ends)
    assert why("1.jpg") == "no memory for it"


def test_in_a_folder_they_are_skipped_and_counted(tmp_path: Path) -> None:
    (tmp_path / "1.jpg").write_bytes(b"x")
    (tmp_path / "gone.jpg").symlink_to("nowhere")
    fifo(tmp_path / "2.jpg")
    linked(tmp_path / "3.jpg")
    found = list(FileTree(str(tmp_path)).walk())
    assert sorted(name for name in found if isinstance(name, str)) == ["1.jpg", "gone.jpg"]
    assert sorted(one for one in found if isinstance(one, SkippedInput)) == [
        SkippedInput("FIFOs, sockets and devices", 1, ("2.jpg",)),
        SkippedInput("FIFOs, sockets and devices", 1, ("3.jpg",)),
    ]


def config(**flags: str) -> ConvertConfig:
    return config_of({"input": ["t.csv"], "output": "out", "name": "x", **flags})


@pytest.mark.parametrize("flag", ["input", "labels"])
def test_a_table_that_is_not_a_regular_file_is_a_usage_error(
    special: tuple[Path, str], flag: str
) -> None:
    path, said = special
    if said == "Is a directory":
        return  # which is a source
    changed = config().model_copy(
        update={"inputs": (str(path),)} if flag == "input" else {"labels": str(path)}
    )
    probe = probe_tables if flag == "input" else probe_labels
    remedy = "because tables are read more than once. Write it to a file first."
    with pytest.raises(UsageError) as caught:
        probe(changed)
    assert str(caught.value) == f"--{flag} {path}: {said}, {remedy}"


def test_a_file_of_classes_that_is_none_is_a_usage_error(special: tuple[Path, str]) -> None:
    path, said = special
    what = "is a folder" if said == "Is a directory" else said.partition(";")[0]
    with pytest.raises(UsageError) as caught:
        config(classes=str(path))
    expected = (
        "expected a file of class names, one per line, in JSON (.json) or a label map (.pbtxt)"
    )
    assert str(caught.value) == f"--classes {path}: {what}; {expected}"


def test_classes_that_are_no_text_are_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_bytes(b"cat\n\xff\n")
    with pytest.raises(
        UsageError, match="byte 4 is not valid UTF-8; expected a file of class names"
    ):
        config(classes=str(tmp_path / "c.txt"))


def test_a_schema_that_is_not_a_regular_file_is_a_usage_error(special: tuple[Path, str]) -> None:
    path, said = special
    what = "is a folder" if said == "Is a directory" else said.partition(";")[0]
    with pytest.raises(UsageError) as caught:
        load_schema(str(path))
    assert str(caught.value).startswith(f"--schema {path}: {what}; expected a YAML file or one of")


def test_an_image_root_that_is_a_file_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    changed = config().model_copy(update={"image_root": f"{tmp_path}/x"})
    with pytest.raises(UsageError, match=r"^--image_root .*/x: is a file; expected a folder$"):
        probe_tables(changed)


UNREACHABLE = "http://127.0.0.1:1/a.b"
"""An address that is not fetched: it is of this machine."""


READERS: dict[str, Callable[[str], object]] = {
    "--schema": load_schema,
    "--classes": lambda path: config(classes=path),
    "inspect": _files_of,
    "--input": lambda path: probe_tables(config().model_copy(update={"inputs": (path,)})),
    "--labels": lambda path: probe_labels(config().model_copy(update={"labels": path})),
}


@pytest.mark.parametrize("flag", READERS)
def test_a_path_that_cannot_be_reached_is_a_usage_error(flag: str) -> None:
    use_pipeline_options(PipelineOptions([]))
    with pytest.raises(
        UsageError, match=r"is at 127\.0\.0\.1, which is not a public address"
    ) as caught:
        READERS[flag](UNREACHABLE)
    assert UNREACHABLE in str(caught.value)
