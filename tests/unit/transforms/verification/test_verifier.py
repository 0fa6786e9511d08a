"""The process that audits shards for another: the same verdicts, and an end of its own.

Covers `recordmill.transforms.storage.shard_files`.

Commands have one: tests/end_to_end/test_tables.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE

import psutil
import pytest
import tensorflow as tf

from recordmill.schemas.config import Verify
from recordmill.schemas.errors import RecordmillError
from recordmill.transforms.storage.shard_files import ShardFiles
from recordmill.transforms.verification.verifier import VerifierProcess, verifier_process_started
from recordmill.transforms.verification.verify_shard import verify_shard
from tests.beam.direct import RESOLVED, example
from tests.images import png

ROOT = Path(__file__).parents[4]
ENDS_SECONDS = 60

STARTS_ONE = """
import sys
from recordmill.transforms.verification.verifier import VerifierProcess
auditor = VerifierProcess(1)
print(auditor.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def auditor() -> Iterator[VerifierProcess]:
    started = VerifierProcess(2)
    yield started
    started.end()


@pytest.fixture
def shard(tmp_path: Path) -> ShardFiles:
    """A shard of three records, without an index."""
    with tf.io.TFRecordWriter(str(tmp_path / "birds")) as writer:
        for seed in range(3):
            writer.write(example(f"{seed}.png", png(seed=seed), label=seed % 2))
    return ShardFiles(str(tmp_path), "train", 0, "birds", "")


@pytest.mark.parametrize("verify", ["parse", "decode"])
def test_it_finds_what_is_found_here(
    auditor: VerifierProcess, shard: ShardFiles, verify: Verify
) -> None:
    found = auditor.audit(shard, RESOLVED, verify)
    assert found == verify_shard(shard, RESOLVED, verify)
    assert (found.entry.records, found.entry.converted, found.problems) == (3, 3, ())


def test_it_finds_damage(auditor: VerifierProcess, shard: ShardFiles) -> None:
    path = Path(shard.directory, shard.file)
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    found = auditor.audit(shard, RESOLVED, "parse")
    assert found == verify_shard(shard, RESOLVED, "parse")
    assert [(problem.file, problem.record) for problem in found.problems] == [("birds", 0)]


def test_it_works_on_several_at_once(auditor: VerifierProcess, shard: ShardFiles) -> None:
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: auditor.audit(shard, RESOLVED, "parse"), range(12)))
    assert found == [verify_shard(shard, RESOLVED, "parse")] * 12


def test_a_file_that_is_gone_is_reported_here(auditor: VerifierProcess, shard: ShardFiles) -> None:
    with pytest.raises(FileNotFoundError) as told:
        auditor.audit(replace(shard, file="gone"), RESOLVED, "parse")
    assert told.value.filename.endswith("/gone")


def test_any_other_error_is_reported_here(auditor: VerifierProcess, shard: ShardFiles) -> None:
    with pytest.raises(RuntimeError, match="AttributeError: 'NoneType' object has no attribute"):
        auditor.audit(shard, None, "parse")  # type: ignore[arg-type]


def test_its_death_ends_the_run(shard: ShardFiles) -> None:
    auditor = VerifierProcess(1)
    os.kill(auditor.pid, signal.SIGSEGV)
    with pytest.raises(RecordmillError) as told:
        auditor.audit(shard, RESOLVED, "parse")
    died = "the process that re-reads it with TensorFlow has died"
    assert str(told.value) == f"birds: {died}: Segmentation fault"
    auditor.end()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_with_the_process_that_began_it(end: signal.Signals) -> None:
    command = [sys.executable, "-c", STARTS_ONE]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True, cwd=ROOT) as began:
        assert began.stdout is not None
        started = psutil.Process(int(began.stdout.readline()))
        began.send_signal(end)
    started.wait(ENDS_SECONDS)


def test_none_is_begun_where_tensorflow_is() -> None:
    before = psutil.Process().children()
    with verifier_process_started():
        assert psutil.Process().children() == before
