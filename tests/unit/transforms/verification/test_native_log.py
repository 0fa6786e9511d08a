"""Informational lines of native code are dropped; all other output is printed."""

from __future__ import annotations

import os
import threading

import pytest

from recordmill.transforms.verification.native_log import filtered_native_log

NOTES = (
    b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n",
    b"I0000 00:00:1795380594.342717   15430 port.cc:153] oneDNN custom operations are on.\n",
    b"To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow\n",
)
WARNING = b"W0000 00:00:1795380594.342717   15430 port.cc:153] the disk is full\n"


def test_only_informational_lines_are_dropped(capfd: pytest.CaptureFixture[str]) -> None:
    printed = [b"\r 7 rows", *NOTES, b"\xff text\n", WARNING, *NOTES, b"\r 8 rows"]

    def print_all() -> None:
        for text in printed:
            os.write(2, text)

    with filtered_native_log():
        thread = threading.Thread(target=print_all)
        thread.start()
        thread.join()
    os.write(2, b" after\n")
    assert capfd.readouterr().err.encode("utf-8", "replace").decode() == (
        "\r 7 rows" + "\ufffd text\n" + WARNING.decode() + "\r 8 rows after\n"
    )


def test_standard_error_is_restored_after_a_failure(capfd: pytest.CaptureFixture[str]) -> None:
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    with pytest.raises(ImportError), filtered_native_log():
        raise ImportError
    os.write(2, NOTES[0])
    assert capfd.readouterr().err.encode() == NOTES[0]
    assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == (threads, descriptors)
