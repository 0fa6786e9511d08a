"""Measures how many edited copies of photographs are found, and how many unrelated ones by mistake.

    python -m benchmarks.near_duplicates --photos FOLDER [--edited N] [--peers PYTHON]

The first N photographs are saved again, scaled, cropped, rotated, brightened and captioned by code,
17 copies of each. PYTHON is an interpreter with imagededup and cleanvision (`pip install --no-deps
imagededup`; `pip install cleanvision PyWavelets scikit-learn`): its results are shown side by side.
Unrelated are all pairs of different photographs, and of their copies of one kind.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from PIL import Image, ImageDraw, ImageEnhance

from recordmill.schemas.settings import ImageSettings
from recordmill.transforms.functional.images.transcode import transcode
from recordmill.transforms.functional.near_duplicates import (
    groups_of_bucket,
    merge_groups,
    pack,
    split_by_bucket,
)
from recordmill.transforms.functional.records.image_columns import (
    _find_issues,
    _values_of,
    describe,
)

Pairs: TypeAlias = set[frozenset[str]]

# Runs in the interpreter of the peers: the pairs within imagededup's distance of 10 of 64 bits, by
# two of its hashes, and cleanvision's issues of the photographs, whose names have no hyphen.
_PEERS = """
import json, sys, types
# The import of its neural networks, which the hashes do not use, would need torch.
networks = types.ModuleType("networks")
networks.__getattr__ = lambda name: None
for name in ("methods.cnn", "utils.data_generator", "utils.models"):
    sys.modules[f"imagededup.{name}"] = networks
from importlib.metadata import version
from pathlib import Path
from imagededup.methods.hashing import DHash, PHash
from cleanvision import Imagelab
folder = sys.argv[1]
pairs = {
    f"imagededup {version('imagededup')}, {method.__name__}": method(verbose=False).find_duplicates(
        image_dir=folder, max_distance_threshold=10
    )
    for method in (PHash, DHash)
}
lab = Imagelab(filepaths=[str(path) for path in Path(folder).iterdir() if "-" not in path.name])
names = ["dark", "light", "blurry", "low_information", "odd_aspect_ratio"]
lab.find_issues({name: {} for name in names}, verbose=False)
issues = {name: int(lab.issues[f"is_{name}_issue"].sum()) for name in names}
tool = f"cleanvision {version('cleanvision')}"
json.dump({"pairs": pairs, "issues": {tool: issues}}, open(sys.argv[2], "w"))
"""


def saved(image: Image.Image, quality: int = 90) -> bytes:
    """Returns an image as a JPEG.

    Args:
        image: the image.
        quality: the quality, 1 to 100.
    """
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=quality)
    return stream.getvalue()


def copies(image: Image.Image) -> Iterator[tuple[str, bytes]]:
    """Yields the kind and the content of each edited copy of a photograph."""
    width, height = image.size
    for quality in (30, 50, 70, 85, 95):
        yield "saved again", saved(image, quality)
    for scale in (0.5, 0.75, 1.5, 2):
        size = max(1, round(width * scale)), max(1, round(height * scale))
        yield "scaled", saved(image.resize(size, Image.Resampling.LANCZOS))
    for share in (0.99, 0.97, 0.95):
        left, top = width * (1 - share) / 2, height * (1 - share) / 2
        box = round(left), round(top), round(width - left), round(height - top)
        yield f"cropped to {share:.0%}", saved(image.crop(box))
    for degrees in (1, 2):
        yield f"rotated by {degrees}°", saved(image.rotate(degrees, Image.Resampling.BICUBIC))
    for factor in (0.8, 1.2):
        yield "brightness", saved(ImageEnhance.Brightness(image).enhance(factor))
    captioned = image.copy()
    draw = ImageDraw.Draw(captioned)
    draw.rectangle((0, round(height * 0.9), width, height), fill=(0, 0, 0))
    draw.text((width // 10, round(height * 0.92)), "A caption", fill=(255, 255, 255))
    yield "caption bar", saved(captioned)


def describe_all(files: dict[str, bytes]) -> pa.RecordBatch:
    """Returns the columns of `records/` that describe images, one row per file."""
    images = [transcode(data, ImageSettings()) for data in files.values()]
    return describe([image.shape for image in images])


def similar_pairs(hashes: dict[str, str]) -> Pairs:
    """Returns the pairs of files in one group.

    Args:
        hashes: the perceptual hash of each file, by its name.
    """
    names = list(hashes)
    packed = pack(np.arange(len(names), dtype=np.uint64), hashes.values())
    buckets = split_by_bucket(packed, len(names))
    groups = merge_groups([groups_of_bucket(b, [part]) for b, part in buckets])
    of_root: dict[int, list[str]] = {}
    for member, root in zip(groups.members, groups.roots, strict=True):
        of_root.setdefault(int(root), []).append(names[int(member)])
    return {frozenset(pair) for group in of_root.values() for pair in combinations(group, 2)}


def pairs_of_copies(files: dict[str, bytes], kinds: dict[str, tuple[str, str]]) -> Pairs:
    """Returns the similar pairs among all photographs and one copy of each at a time.

    With all copies together, a group would also connect copies that are similar only to others.

    Args:
        files: the content of each file, by its name.
        kinds: the kind of each copy and its photograph, by name of the file.
    """
    found = describe_all(files).column("phash").to_pylist()
    hashes = {name: phash for name, phash in zip(files, found, strict=True) if phash}
    photographs = {name: phash for name, phash in hashes.items() if name not in kinds}
    copies_of = {name: phash for name, phash in hashes.items() if name in kinds}
    numbers = {name.partition("-")[2] for name in kinds}
    subsets = (
        photographs
        | {name: phash for name, phash in copies_of.items() if name.endswith(f"-{number}")}
        for number in sorted(numbers)
    )
    return {pair for subset in subsets for pair in similar_pairs(subset)}


def show(title: str, pairs: Pairs, kinds: dict[str, tuple[str, str]]) -> None:
    """Prints the recall by kind of copy, and the precision.

    A pair with a copy of another photograph, or of two of them, is wrong.

    Args:
        title: the name of the tool.
        pairs: the pairs of files that it finds similar.
        kinds: the kind of each copy and its photograph, by name of the file.
    """
    found, total = Counter[str](), Counter[str]()
    for name, (kind, original) in kinds.items():
        total[kind] += 1
        found[kind] += frozenset((name, original)) in pairs
    photograph = {name: original for name, (_, original) in kinds.items()}
    wrong = sum(len({photograph.get(name, name) for name in pair}) > 1 for pair in pairs)
    print(f"{title}: precision {1 - wrong / max(1, len(pairs)):.4f} of {len(pairs):,} pairs")
    for kind, count in total.items():
        print(f"  {kind:16} recall {found[kind] / count:.3f} of {count:,}")


def peer_results(
    python: str, files: dict[str, bytes]
) -> tuple[dict[str, Pairs], dict[str, dict[str, int]]]:
    """Returns the pairs of imagededup, and the issues of photographs of cleanvision, by tool.

    Args:
        python: an interpreter that has both.
        files: the content of each file, by its name.
    """
    with tempfile.TemporaryDirectory() as folder:
        images, result = Path(folder) / "images", Path(folder) / "result.json"
        images.mkdir()
        for name, data in files.items():
            (images / name).write_bytes(data)
        command = [python, "-c", _PEERS, str(images), str(result)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        found = json.loads(result.read_text())
    pairs = {
        tool: {frozenset((a, b)) for a, others in of_files.items() for b in others}
        for tool, of_files in found["pairs"].items()
    }
    return pairs, found["issues"]


def main() -> None:
    """Prints recall and precision, and the number of quality issues in the photographs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", type=Path, required=True, help="JPEG and PNG files")
    parser.add_argument("--edited", type=int, default=300, help="photographs; default: 300")
    parser.add_argument("--peers", metavar="PYTHON")
    arguments = parser.parse_args()
    paths = sorted(path for path in arguments.photos.iterdir() if path.is_file())
    originals = {f"{i:04}.jpg": path.read_bytes() for i, path in enumerate(paths)}
    files, kinds = dict(originals), dict[str, tuple[str, str]]()
    for original in list(originals)[: arguments.edited]:
        with Image.open(io.BytesIO(originals[original])) as image:
            for i, (kind, data) in enumerate(copies(image.convert("RGB"))):
                name = f"{original.removesuffix('.jpg')}-{i:02}.jpg"
                files[name], kinds[name] = data, (kind, original)
    show("recordmill", pairs_of_copies(files, kinds), kinds)
    found = _find_issues(_values_of(pa.Table.from_batches([describe_all(originals)])))
    issues = {"recordmill": {name: int(image.sum()) for name, image in found.items()}}
    if arguments.peers:
        peers, of_peers = peer_results(arguments.peers, files)
        for tool, pairs in peers.items():
            show(tool, pairs, kinds)
        issues |= of_peers
    for tool, counts in issues.items():
        print(f"{tool}: issues of {len(originals):,} photographs:", dict(counts))


if __name__ == "__main__":
    main()
