"""Lines that any code or child process prints to standard error are rewritten, in order."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from recordmill.transforms.workers.process import rewritten_standard_error
from recordmill.transforms.workers.sandbox import allow_children, stop_children

PROGRAM = "import os, sys; os.write(2, b'started\\n'); sys.stdin.read(); os.write(2, b'ended\\n')"


def test_each_line_is_rewritten(capfd: pytest.CaptureFixture[str]) -> None:
    printed = [b"\r 7 rows", b" of 9\n", b"note\n", b"\xff text\n", b"\r 8 rows"]

    def print_all() -> None:
        for text in printed:
            os.write(2, text)

    with rewritten_standard_error(lambda line: b"" if line == b"note\n" else line.upper()):
        thread = threading.Thread(target=print_all)
        thread.start()
        thread.join()
    os.write(2, b" after\n")
    assert capfd.readouterr().err == "\r 7 ROWS OF 9\n\ufffd TEXT\n\r 8 ROWS after\n"


def test_standard_error_is_restored_after_a_failure(capfd: pytest.CaptureFixture[str]) -> None:
    stop_children()  # those of earlier tests are replaced at any time, with new descriptors
    allow_children()
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    with pytest.raises(ImportError), rewritten_standard_error(lambda line: b""):
        raise ImportError
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "after\n"
    end = time.monotonic() + 10
    while threading.active_count() > threads and time.monotonic() < end:
        time.sleep(0.01)
    assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == (threads, descriptors)


def test_a_child_process_that_outlives_the_body(capfd: pytest.CaptureFixture[str]) -> None:
    with rewritten_standard_error(bytes.upper):
        child = subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE)
    os.write(2, b"after\n")
    child.communicate()
    end, printed = time.monotonic() + 10, ""
    while printed.count("\n") < 3 and time.monotonic() < end:
        printed += capfd.readouterr().err
    assert child.returncode == 0
    assert sorted(printed.splitlines()) == ["ENDED", "STARTED", "after"]
