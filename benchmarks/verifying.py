"""Measures `recordmill verify` against reading the same bytes through CRC-32C, on one core.

python -m benchmarks.verifying [--records N]

A file of records of 110 kB and one of 120 bytes are written to a temporary folder, and read from
the page cache. CPU times are compared, the best of five: other processes do not count.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path

import google_crc32c
import numpy as np

from recordmill.schemas.example_pb2 import Example
from recordmill.transforms.functional.records.framing import framed
from recordmill.transforms.verification.verify_file import verify_file

_SIZES = {110_000: 1, 60: 50}  # of images; and how many times `--records` records have it
_CHUNK_BYTES = 2**20
_ROUNDS = 5


def _example(image: bytes, label: int) -> bytes:
    example = Example()
    features = example.features.feature
    features["image"].bytes_list.value.append(image)
    features["image/filename"].bytes_list.value.append(b"photos/1.jpg")
    features["label"].int64_list.value.append(label)
    return example.SerializeToString(deterministic=True)


def _cat(path: Path) -> None:
    crc = 0
    with path.open("rb", buffering=0) as stream:
        while data := stream.read(_CHUNK_BYTES):
            crc = google_crc32c.extend(crc, data)


def _seconds(function: Callable[[Path], object], path: Path) -> float:
    best = float("inf")
    for _ in range(_ROUNDS):
        start = time.process_time()
        function(path)
        best = min(best, time.process_time() - start)
    return best


def main() -> None:
    """Prints a line for each size of records."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000, help="number of records of 110 kB")
    records = parser.parse_args().records
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        for size, times in _SIZES.items():
            number = times * records
            path = Path(folder, f"{size}.tfrecord")
            made = [framed(_example(random.bytes(size), label)) for label in range(100)]
            path.write_bytes(b"".join(islice(cycle(made), number)))
            cat, verify = _seconds(_cat, path), _seconds(lambda p: verify_file(str(p)), path)
            stored = os.path.getsize(path)
            print(
                f"images of {size:,} bytes: verify {stored / verify / 1e9:.2f} GB/s, "
                f"{verify / number * 1e6:.1f} µs per record; "
                f"{cat / verify:.2f} of reading through CRC ({stored / cat / 1e9:.2f} GB/s)"
            )


if __name__ == "__main__":
    main()
