"""Where a dataset is written and where it belongs, and what may already be there."""

from __future__ import annotations

import fnmatch
import os
import shutil
from dataclasses import dataclass

from apache_beam.io.filesystems import FileSystems

from schemas import layout
from schemas.config import ConvertConfig
from schemas.errors import DatasetExists, UsageError
from transforms.files import delete, exists, files_below, is_local

_TEMPORARY = "beam-temp-"
_SUBFOLDERS = (layout.RECORDS, layout.REJECTS)


@dataclass(frozen=True)
class Target:
    """The folders of a run.

    Attributes:
        final: where the dataset is published.
        work: where it is written: the same folder, unless a published dataset is there.
    """

    final: str
    work: str

    def tidy(self) -> None:
        """Deletes the temporary folders that retried work has left."""
        for folder in (self.work, *(layout.join(self.work, n) for n in _SUBFOLDERS)):
            for entry in sorted(_entries(folder)):
                if entry.startswith(_TEMPORARY):
                    delete(layout.join(folder, entry))

    def promote(self) -> None:
        """Puts a finished dataset in the place of the one that it replaces."""
        if self.work == self.final or not exists(self.work):
            return
        if is_local(self.final):
            _swap(self.work, self.final)
        else:
            _copy_over(self.work, self.final)


def choose_target(config: ConvertConfig) -> Target | None:
    """Returns where to write; None if the dataset is there and `--if_exists skip` says to leave it.

    Leftovers of a run that did not finish are deleted.

    Raises:
        DatasetExists: if it is there and is not to be replaced.
        UsageError: if the folder holds files that no run of this program has left.
    """
    final = config.directory
    _check_directory(final)
    if not exists(layout.join(final, layout.SUCCESS)):
        _clean(final, config.name)
        return Target(final, final)
    if config.if_exists == "skip":
        return None
    if config.if_exists == "fail":
        raise DatasetExists(
            f"{final}: a published dataset is there; raise --version, or choose "
            "--if_exists skip to keep it or --if_exists replace to write it anew"
        )
    work = layout.join(config.output, config.name, f".{config.version}.replacement")
    _clean(work, config.name)
    return Target(final, work)


def _check_directory(directory: str) -> None:
    """Refuses folders that cannot be made, or that Beam's sinks would take for patterns."""
    if "[" in directory:
        raise UsageError(
            f"--output: {directory} holds '[', which Beam's sinks take for a pattern of names; "
            "choose a folder without it"
        )
    if is_local(directory):
        try:
            os.makedirs(directory, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"--output: {directory} cannot be made: {error.strerror}; "
                "choose a folder that can be written to"
            ) from error


def _clean(directory: str, name: str) -> None:
    """Deletes what an unfinished run has left; nothing else is ever deleted."""
    entries = _entries(directory)
    if foreign := sorted(entry for entry in entries if not _ours(entry, name)):
        raise UsageError(
            f"{directory}: holds {foreign[0]!r}, which is no part of a dataset; "
            "choose another --output, --name or --version, or move it away"
        )
    for entry in sorted(entries):
        delete(layout.join(directory, entry))


def _entries(directory: str) -> set[str]:
    """Returns the names at the top of a folder; none if there is no such folder."""
    if is_local(directory):
        return set(os.listdir(directory)) if os.path.isdir(directory) else set()
    return {name.partition("/")[0] for name in files_below(directory, "**")}


def _ours(entry: str, name: str) -> bool:
    patterns = (
        f"{name}-*.tfrecord-*",
        f"{_TEMPORARY}*",
        "*.labels.txt",
        "*.partial",
        *layout.SIDECARS,
        layout.RECORDS,
        layout.REJECTS,
    )
    return any(fnmatch.fnmatchcase(entry, pattern) for pattern in patterns)


def _swap(work: str, final: str) -> None:
    """Puts a folder in another's place by two renames: readers find the old one or the new."""
    old = f"{work}.replaced"
    shutil.rmtree(old, ignore_errors=True)
    os.rename(final, old)
    os.rename(work, final)
    shutil.rmtree(old)


def _copy_over(work: str, final: str) -> None:
    """Does the same in an object store, where a dataset without its mark is none."""
    delete(layout.join(final, layout.SUCCESS))
    delete(final)
    files = files_below(work, "**")
    for name in sorted(files, key=lambda name: (name == layout.SUCCESS, name)):
        FileSystems.rename([layout.join(work, name)], [layout.join(final, name)])
