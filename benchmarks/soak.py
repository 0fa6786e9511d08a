"""Soak test: converts a million small images while sampling memory and progress.

    python -m benchmarks.soak --images 1000000 --folder /tmp/soak

generates tars of tiny PNGs of ten classes, truncates every hundredth image, converts them on the
DirectRunner, and checks that the row counts are exact, that memory is flat, and that the last
tenth of the images took as long as the first. It writes soak.json and soak.svg to the folder.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import struct
import subprocess
import sys
import tarfile
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

CLASSES = 10
BAD_EVERY = 100
TAR_IMAGES = 50_000
SIDE = 16
SECONDS = 1.0
"""Interval between two samples of memory."""

MAX_GROWTH = 1.10
"""Limit of the peak memory of the second half of writing, relative to the first half."""

MAX_SLOWER = 1.25
"""Limit of the time for the last tenth of the images, relative to the first tenth."""

_WARM_UP = 0.2


class Sample(NamedTuple):
    """A sample of memory.

    Attributes:
        seconds: Unix time.
        megabytes: resident memory of the command and all its children.
    """

    seconds: float
    megabytes: float


def image(number: int) -> bytes:
    """Returns a PNG of 16 × 16 gray pixels, different for each number; some are truncated."""
    row = b"\0" + number.to_bytes(8, "big") * (SIDE // 8)
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(row * SIDE, 1)),
        (b"IEND", b""),
    )
    data = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )
    return data[: len(data) // 2 + 8] if is_bad(number) else data


def is_bad(number: int) -> bool:
    """Returns whether an image is truncated."""
    return number % BAD_EVERY == BAD_EVERY - 1


def draw(folder: Path, images: int) -> None:
    """Writes tars with two members per image: its pixels and its class.

    Args:
        folder: to create.
        images: number of images.
    """
    folder.mkdir(parents=True)
    for first in range(0, images, TAR_IMAGES):
        with tarfile.open(folder / f"{first:08d}.tar", "w") as tar:
            for number in range(first, min(images, first + TAR_IMAGES)):
                _add(tar, f"{number:08d}.png", image(number))
                _add(tar, f"{number:08d}.cls", b"class %d" % (number % CLASSES))


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def convert(folder: Path, images: int) -> tuple[list[Sample], dict[str, Any]]:
    """Converts the tars; returns samples of memory and the content of run.json.

    Args:
        folder: of the soak test.
        images: number of images.

    Raises:
        RuntimeError: if the run fails.
    """
    command = [sys.executable, "-m", "recordmill", "convert", "--input", str(folder / "tars/*.tar")]
    command += ["--output", str(folder / "out"), "--name", "soak", "--num_shards", "160"]
    command += ["--max_rejects", f"truncated={images // BAD_EVERY}", "--no_report"]
    with open(folder / "soak.log", "wb") as log:
        run = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        samples = list(_samples(run))
    if run.returncode:
        raise RuntimeError(
            f"the conversion failed with exit code {run.returncode}; see {folder / 'soak.log'}"
        )
    return samples, json.loads((folder / "out/soak/1.0.0/run.json").read_bytes())


def _samples(run: subprocess.Popen[bytes]) -> Iterator[Sample]:
    process = psutil.Process(run.pid)
    while run.poll() is None:
        yield Sample(time.time(), _resident(process) / 2**20)
        time.sleep(SECONDS)


def _resident(process: psutil.Process) -> int:
    total = 0
    try:
        for each in [process, *process.children(recursive=True)]:
            total += each.memory_info().rss
    except psutil.NoSuchProcess:  # a process ended between listing and reading
        pass
    return total


def finished(folder: Path) -> list[float]:
    """Returns when each shard of a dataset was finished, in order, as Unix times."""
    return sorted(shard.stat().st_mtime for shard in folder.glob("*.tfrecord-*"))


def growth(samples: Sequence[Sample], shards: Sequence[float]) -> float:
    """Returns the peak memory of the second half of writing, relative to the first half.

    Start-up, and verification after writing, are excluded.

    Args:
        samples: of memory.
        shards: when each shard was finished.
    """
    begins, ends = shards[0] + _WARM_UP * (shards[-1] - shards[0]), shards[-1]
    steady = [sample for sample in samples if begins <= sample.seconds < ends]
    middle = len(steady) // 2
    first, second = steady[:middle], steady[middle:]
    if not first:
        return 1.0
    return max(s.megabytes for s in second) / max(s.megabytes for s in first)


def slowdown(shards: Sequence[float]) -> float:
    """Returns the time for the last tenth of the shards, relative to the first tenth."""
    tenth = len(shards) // 10
    return (shards[-1] - shards[-1 - tenth]) / (shards[tenth] - shards[0])


def wrong_row_counts(manifest: dict[str, Any], images: int) -> list[str]:
    """Returns a message for each row count that differs from the generated images.

    Args:
        manifest: content of manifest.json.
        images: number of images generated.
    """
    bad, row_counts = images // BAD_EVERY, manifest["input"]
    expected = {"rows": images, "records": images - bad, "rejected": bad, "duplicates": 0}
    expected["reasons"] = {"truncated": bad} if bad else {}
    wrong = [
        f"{k}: {row_counts[k]}, expected {v}" for k, v in expected.items() if row_counts[k] != v
    ]
    classes: dict[str, int] = {}
    for split in manifest["splits"].values():
        for label, count in split["classes"]["label"].items():
            classes[label] = classes.get(label, 0) + count
    drawn: dict[str, int] = {}
    for number in range(images):
        if not is_bad(number):
            label = str(number % CLASSES)
            drawn[label] = drawn.get(label, 0) + 1
    return wrong if classes == drawn else [*wrong, f"classes: {classes}, expected {drawn}"]


def plot(samples: Sequence[Sample], title: str) -> str:
    """Returns a plot of memory over time as SVG.

    Args:
        samples: of memory.
        title: of the plot.
    """
    width, height, margin = 800, 300, 84
    start, most = samples[0].seconds, max(s.megabytes for s in samples) * 1.1
    last = samples[-1].seconds - start or 1.0
    line = " ".join(
        f"{margin + (s.seconds - start) / last * (width - 2 * margin):.1f},"
        f"{height - margin - s.megabytes / most * (height - 2 * margin):.1f}"
        for s in samples
    )
    bottom = height - margin
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>{title}</title><rect width="{width}" height="{height}" fill="white"/>
<g font-family="sans-serif" font-size="13"><text x="{margin}" y="30">{title}</text>
<text x="{margin}" y="{bottom + 20}">0 s</text>
<text x="{width - margin}" y="{bottom + 20}" text-anchor="end">{last:,.0f} s</text>
<text x="{margin - 6}" y="{margin}" text-anchor="end">{most:,.0f} MB</text></g>
<path d="M{margin},{margin}V{bottom}H{width - margin}" fill="none" stroke="gray"/>
<polyline points="{line}" fill="none" stroke="#0b5fff" stroke-width="2"/></svg>
"""


def faults(
    samples: Sequence[Sample], shards: Sequence[float], manifest: dict[str, Any]
) -> list[str]:
    """Returns a message for each wrong count and each exceeded limit.

    Args:
        samples: of memory.
        shards: when each shard was finished.
        manifest: content of manifest.json.
    """
    wrong = wrong_row_counts(manifest, manifest["input"]["rows"])
    if (grown := growth(samples, shards)) > MAX_GROWTH:
        wrong.append(f"memory: grew by a factor of {grown:.2f}; expected at most {MAX_GROWTH}")
    if (slower := slowdown(shards)) > MAX_SLOWER:
        wrong.append(
            f"last tenth: took {slower:.2f} times the first; expected at most {MAX_SLOWER}"
        )
    return wrong


def main(argv: Sequence[str] | None = None) -> int:
    """Generates, converts and checks images; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--images", type=int, default=1_000_000)
    parser.add_argument(
        "--folder", type=Path, required=True, help="folder to work in; deleted first"
    )
    flags = parser.parse_args(argv)
    shutil.rmtree(flags.folder, ignore_errors=True)
    draw(flags.folder / "tars", flags.images)
    samples, run = convert(flags.folder, flags.images)
    manifest = json.loads((flags.folder / "out/soak/1.0.0/manifest.json").read_bytes())
    shards = finished(flags.folder / "out/soak/1.0.0")
    wrong = faults(samples, shards, manifest)
    if manifest["input"]["rows"] != flags.images:
        wrong.append(f"rows: {manifest['input']['rows']:,}, expected {flags.images:,}")
    found = {
        "images": flags.images,
        "seconds": run["seconds"],
        "images_per_second": run["records_per_second"],
        "peak_megabytes": round(max(s.megabytes for s in samples)),
        "memory_second_half_over_first": round(growth(samples, shards), 3),
        "last_tenth_over_first": round(slowdown(shards), 3),
        "wrong": wrong,
    }
    (flags.folder / "soak.json").write_text(json.dumps({**found, "samples": samples}) + "\n")
    title = f"Resident memory, {flags.images:,} images"
    (flags.folder / "soak.svg").write_text(plot(samples, title), encoding="utf-8")
    print(json.dumps(found, indent=2))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
