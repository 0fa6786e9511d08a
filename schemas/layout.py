"""Where everything is within a dataset's folder, DIR/NAME/VERSION, and which files a run owns.

A run never deletes a file that no run has written. Names alone do not say that: TFDS names its
shards as we do. So a folder is one of ours only if it holds a marker, which `pipelines.run.target`
looks for; in such a folder the names below are ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable

from recordmill.schemas.errors import UsageError

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
"""The folders of lines whose order is not fixed."""

INDEXES = "idx"
REPORT = "report.html"
STAGING = ".staging"
"""Holds the images that tables had embedded, while a run lasts."""

SIDECARS = (FEATURES, DATASET_INFO, SCHEMA, MANIFEST, RUN, REPORT, SUCCESS)
"""The files beside the shards whose names are fixed."""


REPLACED = "replaced"
"""In a run's folder: the old dataset, where two folders cannot be swapped atomically."""

_NO_NAMES = frozenset({"", ".", ".."})
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
    # A manifest has up to 200,000 names. That of a URL has an empty part.
    return "\0" not in name and _NO_NAMES.isdisjoint(name.replace("\\", "/").split("/"))


def check_utf8(text: str) -> None:
    """Rejects a path or flag that neither Beam, Arrow nor JSON can hold.

    Raises:
        UsageError: if its bytes are not UTF-8.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{text}: is not text in UTF-8; rename the file or folder") from error


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
    """Returns the prefix of all file names of a split's shards: TFDS's convention."""
    return f"{name}-{split}.tfrecord"


def shard_suffix(compression: str) -> str:
    """Returns the suffix of the shard file names."""
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


Owned = Callable[[str], bool]
"""Returns whether a file, named as below a folder, was written by a run."""

_UNFINISHED = re.compile(r"(?:\.[0-9a-f]{32})?\.partial$")
_TEMPORARY = re.compile(r"(?:[a-z]+/)?beam-temp-[^/]+-[0-9a-f]{32}/[^/]+")
"""Beam's, for the lines of rejects and of dropped rows."""

_IMAGES = re.compile(rf"{re.escape(STAGING)}/[0-9a-f]{{32}}\.images")

_STAGED = re.compile(
    r"""(?:checkpoints|receipts)/[^/]+-\d{5,}\.json
    | (?:shards|records)-[^/]+/\d{5,}-[0-9a-f-]{36}[^/]*
    | (?:shards|records)-[^/]+/beam-temp-[^/]+/[^/]+""",
    re.VERBOSE,
)
_PROGRESS = re.compile(r"[0-9a-f-]{36}\.json")


def first_foreign(names: Iterable[str], owned: Owned) -> str | None:
    """Returns the first file in the order of names that no run has written; None if all are."""
    return min((name for name in names if not owned(name)), default=None)


def owned_in_published(files: Collection[str]) -> Owned:
    """Returns the owned files of a published dataset: those that its manifest names."""
    return lambda name: _UNFINISHED.sub("", name) in files or bool(_TEMPORARY.fullmatch(name))


def owned_in_leftover(dataset: str, named: Collection[str] = ()) -> Owned:
    """Returns the owned files of a run that did not publish.

    Args:
        dataset: the dataset's name.
        named: the files of the manifest, if the run came as far as writing one.
    """
    numbered = r"[^/]+-\d{5,}-of-\d{5,}"
    shard = rf"{re.escape(dataset)}-[^/]+\.tfrecord-\d{{5,}}-of-\d{{5,}}(?:\.gz)?"
    fixed = "|".join(map(re.escape, (*SIDECARS, *map(lines_name, LINES))))
    ours = re.compile(
        rf"{shard}|{fixed}|{RECORDS}/records-{numbered}\.parquet"
        rf"|{INDEXES}/{shard}\.idx"
    )

    def owned(name: str) -> bool:
        whole = _UNFINISHED.sub("", name)
        return whole in named or bool(ours.fullmatch(whole)) or is_temporary(name)

    return owned


def is_temporary(name: str) -> bool:
    """Returns whether a file of a dataset's folder is only there while a run is at work."""
    return bool(_TEMPORARY.fullmatch(name) or _IMAGES.fullmatch(_UNFINISHED.sub("", name)))


def owned_in_run(parts: dict[str, Owned]) -> Owned:
    """Returns the owned files of the folder that a run has to itself.

    Args:
        parts: subfolder to what is owned in it.
    """

    def owned(name: str) -> bool:
        folder, _, below = name.partition("/")
        return folder in parts and parts[folder](below)

    return owned


def owned_in_staging(name: str) -> bool:
    """Returns whether a file of the staging area is of a shard, or a checkpoint."""
    return bool(_STAGED.fullmatch(_UNFINISHED.sub("", name)))


def owned_in_progress(name: str) -> bool:
    """Returns whether a file holds a worker's progress."""
    return bool(_PROGRESS.fullmatch(_UNFINISHED.sub("", name)))
