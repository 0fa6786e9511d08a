"""The benchmark of slow file systems delays the files of the images, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import slow_files
from tests.images import png

# Prints the seconds in which a file is opened, in a process of its own: the library is preloaded.
_OPEN = """
import os, sys, time
start = time.time()
os.close(os.open(sys.argv[1], 0))
print(time.time() - start)
"""

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("cc"), reason="needs Linux and a C compiler"
)


def test_files_below_the_folder_are_opened_slowly(tmp_path: Path) -> None:
    library = slow_files.compile_delays(tmp_path)
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "a").write_text("")
    environment = {
        "LD_PRELOAD": str(library),
        "SLOW_ROOT": f"{tmp_path}/slow/",
        "SLOW_OPEN": "300",
    }
    command = [sys.executable, "-c", _OPEN, str(tmp_path / "slow" / "a")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    assert float(done.stdout) > 0.25  # the clock may be adjusted meanwhile


def test_a_case_is_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3):
        (tmp_path / f"{number}.png").write_bytes(png(seed=number))
    table = tmp_path / "t.csv"
    table.write_text("image,label\n0.png,a\n1.png,b\n2.png,a\n")
    arguments = [str(table), "--image_root", str(tmp_path), "--turns", "1", "--cases", "1,1"]
    assert slow_files.main(arguments) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["open", "ms", "stat", "ms", "median", "s", "ratio"]
    assert [row.split()[:2] + row.split()[3:] for row in rows] == [["1", "1", "1.00"]]
