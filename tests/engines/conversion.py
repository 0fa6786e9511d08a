"""Runs a conversion with the real command, and compares results between engines."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.end_to_end import readers
from tests.engines.inputs import PLACEMENT
from tests.stores.kinds import Store

ROOT = Path(__file__).parents[2]
_SECONDS = 900  # a minute where nothing else runs


@dataclass(frozen=True)
class Ended:
    """The result of a conversion.

    Attributes:
        code: exit code.
        seconds: duration of the whole command.
        output: standard output and standard error.
        dataset: folder of the dataset, which may not exist.
    """

    code: int
    seconds: float
    output: str
    dataset: Path


class Conversion:
    """`recordmill convert` in a new process, including all processes that it starts."""

    def __init__(self, output: Path, flags: Sequence[str]) -> None:
        """Starts it."""
        self.dataset = output / "pics" / "1.0.0"
        self._log = output.with_suffix(".log")
        self._began = time.monotonic()
        output.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "recordmill", "convert", "--output", str(output)]
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [*command, "--name", "pics", *PLACEMENT, *flags],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env=environment,
                start_new_session=True,
            )
        self.pid = self._process.pid

    def running(self) -> bool:
        """Returns whether the conversion is running."""
        return self._process.poll() is None

    def wait(self) -> Ended:
        """Waits for its end."""
        try:
            code = self._process.wait(_SECONDS)
        finally:
            self.kill()
        seconds = time.monotonic() - self._began
        return Ended(code, seconds, self._log.read_text(), self.dataset)

    def kill(self) -> None:
        """Kills the command and all processes that it started, including job servers."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self._process.wait()


def convert(output: Path, *flags: str) -> Ended:
    """Runs a conversion, which must succeed."""
    ended = Conversion(output, flags).wait()
    assert ended.code == 0, ended.output
    return ended


def assert_the_same(dataset: Path, expected: Path) -> None:
    """Asserts that two datasets have the same content, and the same files and folders."""
    readers.assert_the_same(dataset, expected)
    names = [{str(path.relative_to(d)) for path in d.rglob("*")} for d in (dataset, expected)]
    assert names[0] == names[1], names[0] ^ names[1]


def assert_stored(store: Store, expected: Path, tmp_path: Path) -> None:
    """Asserts that a store holds a dataset below `out/`, and no other objects."""
    dataset = store.download("out/pics/1.0.0", tmp_path / "downloaded")
    assert_the_same(dataset, expected)
    assert len(store.names("out/")) == sum(path.is_file() for path in dataset.rglob("*"))


def shard_digest(dataset: Path) -> str:
    """Returns a digest of the names and contents of all shards."""
    digest = hashlib.sha256()
    for name, data in sorted(readers.shard_bytes(dataset).items()):
        digest.update(f"{name} {hashlib.sha256(data).hexdigest()}\n".encode())
    return digest.hexdigest()[:16]


def row_counts(dataset: Path) -> str:
    """Returns the row counts of a dataset: rows read = written + rejected + dropped."""
    found = json.loads((dataset / "manifest.json").read_bytes())["input"]
    parts = [found["records"], found["rejected"], found["duplicates"]]
    assert found["rows"] == sum(parts)
    return f"{found['rows']:,} = {' + '.join(f'{part:,}' for part in parts)}"
