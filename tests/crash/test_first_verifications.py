"""The first verifications of a process, in concurrent threads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import tensorflow as tf

from tests.beam.direct import example
from tests.images import png

ROOT = Path(__file__).parents[2]
PROCESSES = 100

VERIFICATIONS = """
import os, sys, threading
from tests.beam.direct import RESOLVED
from recordmill.transforms.verification.verify_shard import verify_shard
from recordmill.transforms.storage.shard_files import ShardFiles
from recordmill.transforms.verification.tensorflow_reader import load

load()
sys.setswitchinterval(1e-5)
begin = threading.Barrier(4)

def verify():
    begin.wait()
    verify_shard(ShardFiles(sys.argv[1], "train", 0, "birds", ""), RESOLVED, "decode")

ended = []
for _ in range(int(sys.argv[2])):
    child = os.fork()
    if not child:
        threads = [threading.Thread(target=verify) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        os._exit(0)
    ended.append(os.waitpid(child, 0)[1])
print(ended.count(0))
"""
"""Each child has loaded TensorFlow, and not yet used it."""


def test_concurrent_first_verifications_never_crash(tmp_path: Path) -> None:
    with tf.io.TFRecordWriter(str(tmp_path / "birds")) as writer:
        writer.write(example("0.png", png()))
    command = [sys.executable, "-c", VERIFICATIONS, str(tmp_path), str(PROCESSES)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split() == [str(PROCESSES)]
