"""Where everything lies within a dataset's folder, DIR/NAME/VERSION."""

from __future__ import annotations

import re

SUCCESS = "_SUCCESS"
MANIFEST = "manifest.json"
RUN = "run.json"
FEATURES = "features.json"
DATASET_INFO = "dataset_info.json"
SCHEMA = "schema.pbtxt"
RECORDS = "records"
REJECTS = "rejects"
DROPPED = "dropped"
LINES = (REJECTS, DROPPED)
"""The folders of lines that stand in no fixed order."""

INDEXES = "idx"
REPORT = "report.html"
STAGING = ".staging"
"""Holds the images that tables had embedded, while a run lasts."""

SIDECARS = (FEATURES, DATASET_INFO, SCHEMA, MANIFEST, RUN, REPORT, SUCCESS)
"""The files beside the shards whose names are fixed."""


REPLACED = "replaced"
"""In a run's folder: the old dataset, where two folders cannot be exchanged at once."""

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_url(path: str) -> bool:
    """Returns whether a path is in an object store, and not on this machine."""
    return bool(_URL.match(path))


def is_web(path: str) -> bool:
    """Returns whether a path is a web address."""
    return path[:8].lower().startswith(("http://", "https://"))


def is_below(name: str) -> bool:
    """Returns whether a name, joined to a folder, is that of something below it.

    >>> [is_below(name) for name in ("records/a", "../a", "/a", "s3://b/a", "a//b", "")]
    [True, False, False, False, False, False]
    """
    parts = re.split(r"[/\\]", name)
    return not is_url(name) and "\0" not in name and not {"", ".", ".."} & set(parts)


def join(folder: str, *names: str) -> str:
    """Returns the path of something below a folder, local or in an object store.

    >>> join("s3://bucket/out/", "birds", "1.0.0")
    's3://bucket/out/birds/1.0.0'
    """
    return "/".join([folder.rstrip("/"), *names])


def run_folder(parent: str, version: str) -> str:
    """Returns the folder that a run has to itself, beside that of the dataset.

    >>> run_folder("out/birds", "1.0.0")
    'out/birds/.1.0.0.run'
    """
    return join(parent, f".{version}.run")


def replaced_folder(run: str) -> str:
    """Returns where in a run's folder the dataset is that it replaces, for a moment."""
    return join(run, REPLACED)


def shard_stem(name: str, split: str) -> str:
    """Returns what all file names of a split's shards begin with: TFDS's convention."""
    return f"{name}-{split}.tfrecord"


def shard_suffix(compression: str) -> str:
    """Returns what they end in."""
    return ".gz" if compression == "gzip" else ""


def shard_name(name: str, split: str, index: int, count: int, compression: str = "none") -> str:
    """Returns a shard's file name.

    >>> shard_name("birds", "train", 3, 16)
    'birds-train.tfrecord-00003-of-00016'
    """
    return f"{shard_stem(name, split)}-{index:05d}-of-{count:05d}{shard_suffix(compression)}"


def records_name(split: str, index: int, count: int) -> str:
    """Returns the path of the index of one shard's records, below the dataset's folder."""
    return f"{RECORDS}/records-{split}-{index:05d}-of-{count:05d}.parquet"


def lines_name(folder: str) -> str:
    """Returns the path of the file of rejects or dropped rows, below the dataset's folder.

    >>> lines_name("rejects")
    'rejects/rejects-00000-of-00001.jsonl'
    """
    return f"{folder}/{folder}-00000-of-00001.jsonl"


def index_name(shard: str) -> str:
    """Returns the path of the index that DALI and PyTorch readers take, of one shard.

    In a folder of its own: beside the shards, their readers' patterns would take it for one.

    >>> index_name("birds-train.tfrecord-00003-of-00016")
    'idx/birds-train.tfrecord-00003-of-00016.idx'
    """
    return f"{INDEXES}/{shard}.idx"


def labels_name(feature: str) -> str:
    """Returns the file of a feature's class names, as TFDS looks for it.

    >>> labels_name("image/class/label")
    'image.class.label.labels.txt'
    """
    return feature.replace("/", ".") + ".labels.txt"
