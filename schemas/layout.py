"""The layout of a dataset's folder, DIR/NAME/VERSION, and the names of files that a run owns.

A run deletes only files that a run has written. File names alone are not enough, because TFDS
uses the same shard names. Therefore a folder is ours only if it contains a marker, which
`pipelines.run.target` checks; in such a folder, files with the names below are ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable

from recordmill.schemas.errors import UsageError
from recordmill.schemas.shard_format import SHARD_FORMATS, SUFFIX_PATTERN, format_of_file

SUCCESS = "_SUCCESS"
MANIFEST = "manifest.json"
RUN = "run.json"
LOST = "lost.jsonl"  # what --salvage could not save, one JSON object per line
FEATURES = "features.json"
DATASET_INFO = "dataset_info.json"
SCHEMA = "schema.pbtxt"
CROISSANT = "croissant.json"
DATASET_CARD = "README.md"
RECORDS = "records"
REJECTS = "rejects"
DROPPED = "dropped"

UNMATCHED_LABELS = "unmatched_labels"
UNMATCHED_IMAGES = "unmatched_images"

# The folders of JSON lines, whose order may differ between runs: those of every dataset, and those
# of some.
LINES = (REJECTS, DROPPED)
UNMATCHED = (UNMATCHED_LABELS, UNMATCHED_IMAGES)

INDEXES = "idx"
REPORT = "report.html"

# The certificate of a version that `recordmill forget` has made.
REMOVAL = "removal.json"

# The order in which people expect the splits; in files, they are in alphabetical order.
_SPLIT_ORDER = ("train", "validation", "valid", "val", "test")

# The folder of drafts of shards and of staged images, which exists only during a run.
STAGING = ".staging"

# The folder of checkpoints of finished shards, in a run's folder.
CHECKPOINTS = "checkpoints"

# The files beside the shards that have fixed names.
SIDECARS = (
    FEATURES, DATASET_INFO, SCHEMA, CROISSANT, DATASET_CARD, REMOVAL,
    MANIFEST, RUN, REPORT, SUCCESS,
)  # fmt: skip


# The subfolder of a run's folder for the previous dataset, if folders cannot be swapped.
REPLACED = "replaced"

_NO_NAMES = frozenset({"", ".", ".."})
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_url(path: str) -> bool:
    """Returns whether a path is a URL, such as of an object store."""
    return bool(_URL.match(path))


def is_web(path: str) -> bool:
    """Returns whether a path is a web address."""
    return path[:8].lower().startswith(("http://", "https://"))


def is_below(name: str) -> bool:
    """Returns whether a relative path stays within the folder that it is joined to.

    >>> [is_below(name) for name in ("records/a", "../a", "/a", "s3://b/a", "a//b", "")]
    [True, False, False, False, False, False]
    """
    # Kept cheap, since a manifest has up to 200,000 names. A URL has an empty part (`//`).
    return "\0" not in name and _NO_NAMES.isdisjoint(name.replace("\\", "/").split("/"))


def check_utf8(text: str) -> None:
    """Raises UsageError for a path or flag that Beam, Arrow and JSON cannot represent as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{text}: is not valid UTF-8. Rename the file or folder.") from error


def split_rank(split: str) -> tuple[int, str]:
    """Returns the sort key of a split in tables for people: train, validation, test, others.

    >>> sorted(["extra", "test", "train", "val"], key=split_rank)
    ['train', 'val', 'test', 'extra']
    """
    rank = _SPLIT_ORDER.index(split) if split in _SPLIT_ORDER else len(_SPLIT_ORDER)
    return rank, split


def join(folder: str, *names: str) -> str:
    """Returns a path below a folder, which is local or in an object store.

    >>> join("s3://bucket/out/", "birds", "1.0.0")
    's3://bucket/out/birds/1.0.0'
    """
    return "/".join([folder.rstrip("/"), *names])


def versions_folder(directory: str) -> str:
    """Returns the folder of all versions of a dataset, given that of one.

    >>> versions_folder("out/birds/1.0.0"), versions_folder("1.0.0")
    ('out/birds', '.')
    """
    return directory.rpartition("/")[0] or "."


def run_folder(parent: str, version: str) -> str:
    """Returns the run's own folder, beside that of the dataset.

    >>> run_folder("out/birds", "1.0.0")
    'out/birds/.1.0.0.run'
    """
    return join(parent, f".{version}.run")


def replaced_folder(run: str) -> str:
    """Returns the subfolder of a run's folder for the dataset that is being replaced."""
    return join(run, REPLACED)


def shard_stem(name: str, split: str) -> str:
    """Returns the prefix of a split's shard names, as TFDS expects it."""
    return f"{name}-{split}.tfrecord"


def shard_name(name: str, split: str, index: int, count: int, compression: str = "none") -> str:
    """Returns the file name of a shard.

    >>> shard_name("birds", "train", 3, 16)
    'birds-train.tfrecord-00003-of-00016'
    """
    return (
        f"{shard_stem(name, split)}-{index:05d}-of-{count:05d}{SHARD_FORMATS[compression].suffix}"
    )


def records_name(split: str, index: int, count: int) -> str:
    """Returns the path of a shard's index, relative to the dataset's folder."""
    return f"{RECORDS}/records-{split}-{index:05d}-of-{count:05d}.parquet"


def files_of_shard(name: str, shard: str) -> tuple[str, str]:
    """Returns the paths of a shard and its index, relative to the dataset's folder.

    >>> files_of_shard("birds", "birds-train.tfrecord-00003-of-00016.gz")[1]
    'records/records-train-00003-of-00016.parquet'
    """
    split, _, number = shard.removeprefix(f"{name}-").rpartition(".tfrecord-")
    return (
        shard,
        f"{RECORDS}/records-{split}-{number.removesuffix(format_of_file(shard).suffix)}.parquet",
    )


def lines_name(folder: str) -> str:
    """Returns the path of the file of rejects or dropped rows, relative to the dataset's folder.

    >>> lines_name("rejects")
    'rejects/rejects-00000-of-00001.jsonl'
    """
    return f"{folder}/{folder}-00000-of-00001.jsonl"


def index_name(shard: str) -> str:
    """Returns the path of a shard's index for readers of DALI and PyTorch.

    It is in a separate folder, because file patterns for shards would match it beside the shards.

    >>> index_name("birds-train.tfrecord-00003-of-00016")
    'idx/birds-train.tfrecord-00003-of-00016.idx'
    """
    return f"{INDEXES}/{shard}.idx"


def labels_name(feature: str) -> str:
    """Returns the file name of a feature's class names, as TFDS expects it.

    >>> labels_name("image/class/label")
    'image.class.label.labels.txt'
    """
    return feature.replace("/", ".") + ".labels.txt"


# Returns whether a run has written a file, which is given by its path relative to a folder.
Owned = Callable[[str], bool]

_UNFINISHED = re.compile(r"(?:\.[0-9a-f]{32})?\.partial$")

# Temporary files of Beam, for rejects and dropped rows.
_TEMPORARY = re.compile(r"(?:[a-z]+/)?beam-temp-[^/]+-[0-9a-f]{32}/[^/]+")

_DRAFT = re.compile(rf"{re.escape(STAGING)}/[0-9a-f]{{32}}(?:\.images)?")

_PROGRESS = re.compile(r"[0-9a-f-]{36}\.json")


def first_foreign(names: Iterable[str], owned: Owned) -> str | None:
    """Returns the first file, by name, that was not written by a run; None if there is none."""
    return min((name for name in names if not owned(name)), default=None)


def owned_in_published(files: Collection[str]) -> Owned:
    """Returns the check for files of a published dataset: those that its manifest lists."""
    return lambda name: _UNFINISHED.sub("", name) in files


def owned_in_leftover(dataset: str, named: Collection[str] = ()) -> Owned:
    """Returns the check for files of a run that did not publish; `named` are in its manifest."""
    numbered = r"[^/]+-\d{5,}-of-\d{5,}"
    shard = _shard_pattern(dataset)
    fixed = "|".join(map(re.escape, (*SIDECARS, *map(lines_name, (*LINES, *UNMATCHED)))))
    ours = re.compile(
        rf"{shard}|{fixed}|{RECORDS}/records-{numbered}\.parquet"
        rf"|{INDEXES}/{shard}\.idx"
    )

    def owned(name: str) -> bool:
        whole = _UNFINISHED.sub("", name)
        return whole in named or bool(ours.fullmatch(whole)) or is_temporary(name)

    return owned


def is_temporary(name: str) -> bool:
    """Returns whether a file in a dataset's folder exists only during a run."""
    return bool(_TEMPORARY.fullmatch(name) or _DRAFT.fullmatch(_UNFINISHED.sub("", name)))


def owned_in_run(parts: dict[str, Owned]) -> Owned:
    """Returns the check for files in the run's own folder."""

    def owned(name: str) -> bool:
        folder, _, below = name.partition("/")
        return folder in parts and parts[folder](below)

    return owned


def owned_in_checkpoints(dataset: str) -> Owned:
    """Returns the check for checkpoints of finished shards."""
    ours = re.compile(rf"{_shard_pattern(dataset)}\.json")
    return lambda name: bool(ours.fullmatch(_UNFINISHED.sub("", name)))


def _shard_pattern(dataset: str) -> str:
    return rf"{re.escape(dataset)}-[^/]+\.tfrecord-\d{{5,}}-of-\d{{5,}}{SUFFIX_PATTERN}"


def is_shard(dataset: str, file: str) -> bool:
    """Returns whether a file, relative to a dataset's folder, has the name of one of its shards."""
    return bool(re.fullmatch(_shard_pattern(dataset), file))


def owned_in_progress(name: str) -> bool:
    """Returns whether a file holds the progress counters of a worker."""
    return bool(_PROGRESS.fullmatch(_UNFINISHED.sub("", name)))
