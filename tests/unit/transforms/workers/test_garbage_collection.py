"""Garbage collection: it skips what a process has imported, and runs for many new objects only."""

from __future__ import annotations

import json
import subprocess
import sys

CODE = """
import gc, json
gc.disable()
from recordmill.transforms.workers.process import collect_garbage
before = gc.get_freeze_count()
collect_garbage()
print(json.dumps([before, gc.get_freeze_count() > 1000, gc.isenabled(), gc.get_threshold()[0]]))
"""


def test_new_objects_are_collected_and_older_ones_are_not() -> None:
    ended = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert json.loads(ended.stdout) == [0, True, True, 10_000]
