"""The verifier process returns the results of `verify_shard`, and ends with its parent.

Commands start one: tests/end_to_end/test_tables.py.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import PIPE

import psutil
import pytest
import tensorflow as tf
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.schemas.config import Verify
from recordmill.schemas.errors import RecordmillError
from recordmill.transforms.storage.shard_files import ShardFiles
from recordmill.transforms.storage.stores.beam import use_pipeline_options
from recordmill.transforms.verification import verifier_process
from recordmill.transforms.verification.verifier_process import (
    VerifierProcess,
    _current_verifier,
    _store_options,
    prepare,
    verifier_process_started,
)
from recordmill.transforms.verification.verify_shard import verify_shard
from tests.beam.direct import RESOLVED, example
from tests.images import png

ROOT = Path(__file__).parents[4]
ENDS_SECONDS = 60

START_VERIFIER = """
import sys
from recordmill.transforms.verification.verifier_process import VerifierProcess
verifier = VerifierProcess(1)
print(verifier.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def verifier() -> Iterator[VerifierProcess]:
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
def test_it_returns_the_result_of_verify_shard(
    verifier: VerifierProcess, shard: ShardFiles, verify: Verify
) -> None:
    found = verifier.verify(shard, RESOLVED, verify)
    assert found == verify_shard(shard, RESOLVED, verify)
    assert (found.entry.records, found.entry.converted, found.problems) == (3, 3, ())


def test_it_locates_damage(verifier: VerifierProcess, shard: ShardFiles) -> None:
    path = Path(shard.directory, shard.file)
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    found = verifier.verify(shard, RESOLVED, "parse")
    assert found == verify_shard(shard, RESOLVED, "parse")
    assert [(problem.file, problem.record) for problem in found.problems] == [("birds", 0)]


def test_it_answers_concurrent_requests(verifier: VerifierProcess, shard: ShardFiles) -> None:
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: verifier.verify(shard, RESOLVED, "parse"), range(12)))
    assert found == [verify_shard(shard, RESOLVED, "parse")] * 12


def test_a_missing_file_raises_file_not_found(verifier: VerifierProcess, shard: ShardFiles) -> None:
    with pytest.raises(FileNotFoundError) as error:
        verifier.verify(replace(shard, file="gone"), RESOLVED, "parse")
    assert error.value.filename.endswith("/gone")


def test_any_other_error_is_a_runtime_error(verifier: VerifierProcess, shard: ShardFiles) -> None:
    with pytest.raises(RuntimeError, match="AttributeError: 'NoneType' object has no attribute"):
        verifier.verify(shard, None, "parse")  # type: ignore[arg-type]


def test_its_death_fails_the_request(shard: ShardFiles) -> None:
    verifier = VerifierProcess(1)
    os.kill(verifier.pid, signal.SIGSEGV)
    with pytest.raises(RecordmillError) as error:
        verifier.verify(shard, RESOLVED, "parse")
    died = "the process that re-reads it with TensorFlow has died"
    assert str(error.value) == f"birds: {died}: Segmentation fault"
    verifier.end()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_with_the_process_that_started_it(end: signal.Signals) -> None:
    command = [sys.executable, "-c", START_VERIFIER]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True, cwd=ROOT) as parent:
        assert parent.stdout is not None
        started = psutil.Process(int(parent.stdout.readline()))
        parent.send_signal(end)
    started.wait(ENDS_SECONDS)


def test_a_worker_starts_one_and_replaces_it_if_it_has_died(
    shard: ShardFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifier_process, "_verifiers", {})
    monkeypatch.delitem(sys.modules, "tensorflow")  # as in a worker, which never imports it
    prepare(shard.directory)
    first = _current_verifier()
    assert first is not None
    prepare(shard.directory)
    assert _current_verifier() is first
    first.end()
    prepare(shard.directory)
    second = _current_verifier()
    assert second is not None
    assert second is not first
    assert verifier_process.verify(shard, RESOLVED, "parse").entry.records == 3
    second.end()


def test_a_worker_that_has_imported_tensorflow_verifies_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifier_process, "_verifiers", {})  # earlier tests may have started one
    prepare(str(tmp_path))
    assert _current_verifier() is None


def test_the_options_of_stores_are_used_in_the_process(shard: ShardFiles) -> None:
    handler = partial(SimpleHTTPRequestHandler, directory=shard.directory)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        remote = replace(shard, directory=f"http://127.0.0.1:{server.server_port}")
        use_pipeline_options(PipelineOptions(["--allow_private_hosts"]))
        try:
            assert _store_options(shard.directory) is None
            verifier = VerifierProcess(1, _store_options(remote.directory))
        finally:
            use_pipeline_options(PipelineOptions([]))
        assert verifier.verify(remote, RESOLVED, "parse").entry.records == 3
        verifier.end()
        server.shutdown()


def test_no_process_is_started_after_an_import_of_tensorflow() -> None:
    before = psutil.Process().children()
    with verifier_process_started():
        assert psutil.Process().children() == before


def test_a_library_that_cannot_be_loaded_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise ImportError("libtensorflow_cc.so.2: cannot be used")

    ours, theirs = multiprocessing.Pipe()
    ours.send({})
    monkeypatch.setattr(verifier_process.service_process, "end_with_parent", lambda: None)
    monkeypatch.setattr("recordmill.transforms.verification.tensorflow_reader.load", fails)
    with pytest.raises(SystemExit, match=r"^recordmill: libtensorflow_cc\.so\.2: cannot be used$"):
        verifier_process.serve([os.dup(theirs.fileno())])
