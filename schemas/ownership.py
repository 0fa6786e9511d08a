"""Which files below a dataset's folders a run has written: it never deletes any other.

Names alone are not enough: TFDS names its shards as we do. So a folder is one of ours only if it
holds a marker, which `pipelines.run.target` looks for; in such a folder these names are ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable

from recordmill.schemas import layout
from recordmill.schemas.manifest import Manifest

Owned = Callable[[str], bool]
"""Returns whether a file, named as below a folder, was written by a run."""

_UNFINISHED = re.compile(r"(?:\.[0-9a-f]{32})?\.partial$")
_TEMPORARY = re.compile(r"(?:[a-z]+/)?beam-temp-[^/]+-[0-9a-f]{32}/[^/]+")
"""Beam's, for the lines of rejects and of dropped rows."""

_IMAGES = re.compile(rf"{re.escape(layout.STAGING)}/[0-9a-f]{{32}}\.images")

_STAGED = re.compile(
    r"""receipts/[^/]+-\d{5,}\.json
    | (?:shards|records)-[^/]+/\d{5,}-[0-9a-f-]{36}[^/]*
    | (?:shards|records)-[^/]+/beam-temp-[^/]+/[^/]+""",
    re.VERBOSE,
)
_PROGRESS = re.compile(r"[0-9a-f-]{36}\.json")


def first_foreign(names: Iterable[str], owned: Owned) -> str | None:
    """Returns the first file in the order of names that no run has written; None if all are."""
    return min((name for name in names if not owned(name)), default=None)


def owned_in_published(manifest: Manifest) -> Owned:
    """Returns what is owned in a dataset whose manifest is sealed: what that names."""
    files = manifest.files
    return lambda name: _UNFINISHED.sub("", name) in files or bool(_TEMPORARY.fullmatch(name))


def owned_in_leftover(dataset: str, manifest: Manifest | None = None) -> Owned:
    """Returns what is owned in what a run has left that did not publish.

    Args:
        dataset: the dataset's name.
        manifest: the one that the run had written already, if it came that far.
    """
    named: Collection[str] = manifest.files if manifest else ()
    numbered = r"[^/]+-\d{5,}-of-\d{5,}"
    shard = rf"{re.escape(dataset)}-[^/]+\.tfrecord-\d{{5,}}-of-\d{{5,}}(?:\.gz)?"
    fixed = "|".join(map(re.escape, (*layout.SIDECARS, *map(layout.lines_name, layout.LINES))))
    ours = re.compile(
        rf"{shard}|{fixed}|{layout.RECORDS}/records-{numbered}\.parquet"
        rf"|{layout.INDEXES}/{shard}\.idx"
    )

    def owned(name: str) -> bool:
        whole = _UNFINISHED.sub("", name)
        return whole in named or bool(ours.fullmatch(whole)) or is_temporary(name)

    return owned


def is_temporary(name: str) -> bool:
    """Returns whether a file of a dataset's folder is only there while a run is at work."""
    return bool(_TEMPORARY.fullmatch(name) or _IMAGES.fullmatch(_UNFINISHED.sub("", name)))


def owned_in_run(parts: dict[str, Owned]) -> Owned:
    """Returns what is owned in the folder that a run has to itself.

    Args:
        parts: subfolder to what is owned in it.
    """

    def owned(name: str) -> bool:
        folder, _, below = name.partition("/")
        return folder in parts and parts[folder](below)

    return owned


def owned_in_staging(name: str) -> bool:
    """Returns whether a file of the staging area is a finished or an open shard, or a receipt."""
    return bool(_STAGED.fullmatch(_UNFINISHED.sub("", name)))


def owned_in_progress(name: str) -> bool:
    """Returns whether a file holds a worker's progress."""
    return bool(_PROGRESS.fullmatch(_UNFINISHED.sub("", name)))
