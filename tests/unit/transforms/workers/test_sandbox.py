"""The sandbox: whatever happens in a child, the caller gets a value or an exception."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest
from PIL import Image

from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import ImageSettings
from recordmill.transforms.functional.images.transcode import transcode
from recordmill.transforms.shards.build_examples import read_image
from recordmill.transforms.workers.sandbox import (
    allow_children,
    reject_printed_errors,
    run_in_subprocess,
    stop_children,
)
from recordmill.transforms.workers.service_process import ServiceProcess
from tests.images import image_bytes, jpeg
from tests.unit.transforms.workers.tasks import (
    LONG,
    abort,
    complain,
    doubled,
    exit_with_3,
    hang_in_native_code,
    hog,
    hog_slowly,
    overrun,
    process_id,
    raise_,
    raise_an_unpicklable_error,
    segmentation_fault,
)


def reason_of(function, *arguments, timeout=LONG):
    with pytest.raises(RecordError) as raised:
        run_in_subprocess(function, *arguments, timeout=timeout)
    assert raised.value.detail
    return raised.value.reason


@pytest.fixture(autouse=True)
def still_works():
    yield
    started = time.monotonic()
    assert run_in_subprocess(doubled, 21, timeout=LONG) == 42
    assert time.monotonic() - started < 30


def test_the_result_is_computed_in_another_process():
    assert run_in_subprocess(doubled, 4, timeout=LONG) == 8
    assert run_in_subprocess(process_id, timeout=LONG) != os.getpid()


@pytest.mark.parametrize(
    ("function", "name"),
    [(abort, "Aborted"), (segmentation_fault, "Segmentation fault")],
    ids=["abort", "segfault"],
)
def test_a_crash_is_a_reject(function, name):
    with pytest.raises(RecordError) as raised:
        run_in_subprocess(function, timeout=LONG)
    assert raised.value.reason is Reason.DECODER_CRASH
    assert raised.value.detail == f"the decoder has died: {name}"


def test_an_exit_is_a_crash():
    assert reason_of(exit_with_3) is Reason.DECODER_CRASH


def test_a_task_that_exceeds_its_timeout_is_killed(tmp_path):
    started = time.monotonic()
    assert reason_of(overrun, tmp_path / "pid", timeout=0.5) is Reason.TIMEOUT
    assert time.monotonic() - started < 30
    child = int((tmp_path / "pid").read_text())
    for _ in range(100):
        if not os.path.exists(f"/proc/{child}"):
            break
        time.sleep(0.1)
    assert not os.path.exists(f"/proc/{child}")


def test_a_hang_in_native_code_is_killed():
    assert reason_of(hang_in_native_code, timeout=0.5) is Reason.TIMEOUT


@pytest.mark.parametrize("function", [hog, hog_slowly])
def test_a_task_that_exceeds_the_memory_limit_is_rejected(function):
    assert reason_of(function) is Reason.TOO_MANY_PIXELS


@pytest.mark.parametrize("reason", list(Reason))
def test_rejects_keep_their_reason_and_detail(reason):
    with pytest.raises(RecordError) as raised:
        run_in_subprocess(raise_, RecordError(reason, "because"), timeout=LONG)
    assert (raised.value.reason, raised.value.detail) == (reason, "because")


@pytest.mark.parametrize("error", [ValueError("x"), OSError(2, "x"), KeyError("x")], ids=repr)
def test_errors_keep_their_type(error):
    with pytest.raises(type(error), match="x"):
        run_in_subprocess(raise_, error, timeout=LONG)


def test_an_error_that_cannot_be_sent_is_a_crash_and_does_not_hang():
    assert reason_of(raise_an_unpicklable_error) is Reason.DECODER_CRASH


def test_the_timeout_does_not_include_waiting_for_a_free_child():
    with ThreadPoolExecutor(4 * (os.cpu_count() or 1)) as threads:
        waiting = [
            threads.submit(run_in_subprocess, time.sleep, 0.8, timeout=3)
            for _ in range(4 * (os.cpu_count() or 1))
        ]
        assert [future.result() for future in waiting] == [None] * len(waiting)


def test_concurrent_tasks_survive_crashes_of_others():
    def work(number):
        if number % 8 == 5:
            return reason_of(segmentation_fault)
        if number % 8 == 7:
            return reason_of(time.sleep, LONG, timeout=0.3)
        return run_in_subprocess(doubled, number, timeout=LONG)

    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(work, range(16)))
    special = {5: Reason.DECODER_CRASH, 7: Reason.TIMEOUT}
    assert found == [special.get(number % 8, 2 * number) for number in range(16)]


def test_killed_children_leave_no_task_waiting():
    """Kills every child as soon as it appears, like the kernel does when memory is short.

    Some have received a task without having acknowledged it.
    """
    over = threading.Event()

    def kill():
        while not over.wait(0.005):
            for child in psutil.Process().children():
                with contextlib.suppress(psutil.NoSuchProcess):
                    if "sandbox import serve" in " ".join(child.cmdline()):
                        child.kill()

    def work(number):
        try:
            return run_in_subprocess(doubled, number, timeout=20)
        except RecordError as error:
            return error.reason

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(work, range(8)))
    finally:
        over.set()
        killer.join()
    assert all(was in (Reason.DECODER_CRASH, 2 * number) for number, was in enumerate(found))


def test_a_task_succeeds_while_the_system_kills_all_children(monkeypatch):
    with ThreadPoolExecutor(2) as threads:
        running = set(threads.map(run_briefly, range(2)))
    # They have been killed, but have not ended yet.
    monkeypatch.setattr(ServiceProcess, "is_alive", True)
    for child in running:
        os.kill(child, signal.SIGKILL)
    assert run_in_subprocess(doubled, 4, timeout=LONG) == 8


def run_briefly(_):
    child = run_in_subprocess(process_id, timeout=LONG)
    run_in_subprocess(time.sleep, 0.2, timeout=LONG)
    return child


def test_no_child_starts_after_stop_children():
    assert run_in_subprocess(doubled, 2, timeout=LONG) == 4
    stop_children()
    try:
        assert reason_of(doubled, 2) is Reason.DECODER_CRASH
        # Other tests may have left children that ended, and that nobody has waited for.
        running = [p for p in psutil.Process().children() if p.status() != psutil.STATUS_ZOMBIE]
        assert not [p for p in running if "sandbox import serve" in " ".join(p.cmdline())]
    finally:
        allow_children()


def test_a_new_run_has_the_children_of_earlier_ones():
    child = run_in_subprocess(process_id, timeout=LONG)
    allow_children()
    assert run_in_subprocess(process_id, timeout=LONG) == child


def test_a_child_transcodes_images_to_the_same_bytes():
    for data in (
        image_bytes("TIFF", 40, 30),
        jpeg(40, 30, mode="CMYK"),
        image_bytes("WEBP", 40, 30),
    ):
        here = transcode(data, ImageSettings())
        assert run_in_subprocess(transcode, data, ImageSettings(), "full", timeout=LONG) == here


def test_an_image_that_exceeds_the_timeout_is_a_reject():
    run_in_subprocess(doubled, 1, timeout=LONG)  # a child is running: only the image counts
    slow = image_bytes("WEBP", 2000, 1500, lossless=True, method=0, quality=0)
    with pytest.raises(RecordError) as raised:
        read_image(slow, ImageSettings(timeout=0.01), "full")
    assert raised.value.reason is Reason.TIMEOUT


def test_a_child_prints_no_warnings_about_images(capfd):
    run_in_subprocess(complain, timeout=LONG)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("compression", "mode", "at", "detail"),
    [
        # Pillow returns wrong pixels for the first, and blank ones for the second.
        ("group4", "1", 1500, r"Fax4Decode: Bad code word at line \d+ of strip 0 \(x \d+\)"),
        ("jpeg", "RGB", 3000, r"JPEGLib: Unsupported marker type 0x\w+"),
        ("tiff_lzw", "RGB", 5000, r"decoder error -2: Using code not yet in table"),
    ],
)
def test_damage_that_libtiff_prints_is_a_reject_with_its_message(
    compression: str, mode: str, at: int, detail: str, capfd: pytest.CaptureFixture[str]
) -> None:
    samples = np.random.default_rng(0).integers(0, 255, (200, 200, 3), dtype=np.uint8)
    encoded = io.BytesIO()
    Image.fromarray(samples).convert(mode).save(encoded, "TIFF", compression=compression)
    intact = encoded.getvalue()
    assert read_image(intact, ImageSettings(), "full").width == 200
    damaged = intact[:at] + b"\xff" * 1000 + intact[at + 1000 :]
    with pytest.raises(RecordError) as raised:
        read_image(damaged, ImageSettings(), "full")
    assert raised.value.reason is Reason.CORRUPT
    assert re.fullmatch(detail, raised.value.detail)
    assert capfd.readouterr().err == ""


def test_warnings_that_libtiff_prints_are_ignored() -> None:
    printed = os.write, 2, b"tempfile.tif: Warning, unknown tag.\n"
    call = partial(run_in_subprocess, reject_printed_errors, timeout=LONG)
    assert call(*printed) == 36
    assert call(os.getpid) != os.getpid()  # an earlier image's error does not count
    with pytest.raises(RecordError, match=r"bad strip$"):
        call(os.write, 2, b"tempfile.tif: bad strip.\n")
    assert call(os.getpid) != os.getpid()


def test_children_do_not_run_the_main_module(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from recordmill.transforms.workers.sandbox import run_in_subprocess\n"
        "print('run', run_in_subprocess(abs, -3, timeout=60))\n"
    )
    command = [sys.executable, str(script)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout == "run 3\n"
