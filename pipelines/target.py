"""Where a dataset is written and where it belongs, and what may already be there.

On this machine a dataset is written in a folder of the run's own, and gets its name when it is
whole: all at once. Object stores rename nothing: there it is written in its place, and the commit
mark, last, makes it a dataset.

    DIR/NAME/VERSION            the dataset; without its commit mark, what a failed run has left
    DIR/NAME/.VERSION.lock      held while a run is at work
    DIR/NAME/.VERSION.run/      of the run at work, or of the last one if it did not publish
        dataset/                what it writes
        staging/                finished shards
        published/              the same, once the dataset goes to its place
        replaced/               the old dataset, where two folders cannot be exchanged at once
        progress/               how far the workers of other processes are
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import os
from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.exchange import exchange
from pipelines.lock import Lock, lock
from schemas import layout
from schemas.config import ConvertConfig
from schemas.errors import DatasetExists, UsageError
from transforms.files import copy, delete, exists, files_below, is_local
from transforms.finished_shards import Staging

_TEMPORARY = "beam-temp-"
_SUBFOLDERS = (layout.RECORDS, layout.REJECTS, layout.DROPPED)
_DATASET = "dataset"
_STAGING = "staging"
_PUBLISHED = "published"
_REPLACED = "replaced"
_PROGRESS = "progress"


@dataclass(frozen=True)
class Target:
    """The folders of a run.

    Attributes:
        final: where the dataset is published.
        work: where it is written.
        run: what this run has to itself; deleted once the dataset is published.
    """

    final: str
    work: str
    run: str

    @property
    def staging(self) -> Staging:
        """Where finished shards wait: on this machine by its absolute path, as Beam's sinks do."""
        directory = os.path.abspath(self._staging) if is_local(self.run) else self._staging
        return Staging(directory, self.work)

    @property
    def progress(self) -> str:
        """Where workers of other processes tell how far they are."""
        return layout.join(self.run, _PROGRESS)

    @property
    def is_published(self) -> bool:
        """Whether a dataset is in its place."""
        return exists(layout.join(self.final, layout.SUCCESS))

    @property
    def left(self) -> str:
        """Where a run that fails leaves what it wrote: in its place, unless a dataset is there."""
        return self.work if self.is_published else self.final

    def tidy(self) -> None:
        """Deletes staged images, and the temporary folders that retried work has left."""
        for folder in (self.work, *(layout.join(self.work, n) for n in _SUBFOLDERS)):
            for entry in sorted(_entries(folder)):
                if entry == layout.STAGING or entry.startswith(_TEMPORARY):
                    delete(layout.join(folder, entry))

    def promote(self, shards: Sequence[str]) -> None:
        """Puts a finished dataset, which has these shards, in its place, and clears up."""
        if is_local(self.final):
            os.makedirs(self._staging, exist_ok=True)
            os.rename(self._staging, self._published)
            self._put_in_place()
        elif self.work != self.final:
            _copy_over(self.work, self.final, shards)
        self.clear()

    def clear(self) -> None:
        """Deletes what only the run needed."""
        delete(self.run)

    def lay_down(self) -> None:
        """Leaves what a failed run has written where people look for it: never as a dataset."""
        for name in (layout.SUCCESS, layout.DATASET_INFO):
            if self.work != self.final or not self.is_published:
                delete(layout.join(self.work, name))
        if is_local(self.final) and self.work != self.left and os.path.isdir(self.work):
            with contextlib.suppress(OSError):  # there is something: then it stays where it is
                os.rename(self.work, self.final)

    def take_up(self) -> None:
        """Takes up what an earlier run has left: its finished shards stay, all else is deleted."""
        if is_local(self.final):
            self._recover()
            os.makedirs(self.run, exist_ok=True)
            if self.left == self.final and os.path.isdir(self.final):
                if os.path.isdir(self.work):
                    delete(self.final)
                else:
                    os.rename(self.final, self.work)
        elif self.work == self.final:
            delete(self._dataset)
        self.staging.reclaim()
        for entry in sorted(_entries(self.work)):
            delete(layout.join(self.work, entry))

    def sweep(self) -> None:
        """Deletes what a run has left that was killed when its dataset was in its place already.

        One that was killed before has a staging area, and no whole dataset: the next may go on.
        """
        if not exists(self._staging) or exists(layout.join(self.work, layout.SUCCESS)):
            self.clear()

    @property
    def _dataset(self) -> str:
        return layout.join(self.run, _DATASET)

    @property
    def _staging(self) -> str:
        return layout.join(self.run, _STAGING)

    @property
    def _published(self) -> str:
        return layout.join(self.run, _PUBLISHED)

    @property
    def _replaced(self) -> str:
        return layout.join(self.run, _REPLACED)

    def _put_in_place(self) -> None:
        if not os.path.isdir(self.final):
            os.rename(self.work, self.final)
        elif not exchange(self.work, self.final):
            os.rename(self.final, self._replaced)
            os.rename(self.work, self.final)

    def _recover(self) -> None:
        """Undoes what a run was at that was killed while it put a dataset in its place."""
        if os.path.isdir(self._replaced) and not os.path.isdir(self.final):
            os.rename(self._replaced, self.final)
        if os.path.isdir(self._published) and not os.path.isdir(self._staging):
            os.rename(self._published, self._staging)
        for folder in (self._replaced, self._published):
            delete(folder)


def choose_target(config: ConvertConfig, dry_run: bool = False) -> tuple[Target, Lock] | None:
    """Returns where to write, locked; None if the dataset is there and is to be left (`skip`).

    What a run that did not finish has left is deleted, but for its finished shards; in a dry run
    nothing is touched.

    Raises:
        DatasetExists: if it is there and is not to be replaced, or another run is writing it.
        UsageError: if the folder holds files that no run of this program has left.
    """
    _check_directory(config.directory, dry_run)
    try:
        return _choose(config, _target(config), dry_run)
    except OSError as error:
        raise UsageError(f"--output: {config.directory} cannot be used: {error}") from error


def _choose(config: ConvertConfig, target: Target, dry_run: bool) -> tuple[Target, Lock] | None:
    if target.is_published and config.if_exists != "replace":
        if not dry_run:
            _sweep(target)
        _refuse(config)
        return None
    for folder in {target.left, target.work}:
        _check_ours(folder, config.name)
    if dry_run:
        return target, Lock(_lock_path(target), None)
    held = _lock(target)
    try:
        if target.is_published and config.if_exists != "replace":  # by a run that just ended
            _refuse(config)
            held.release()
            return None
        target.take_up()
    except BaseException:
        held.release()
        raise
    return target, held


def _target(config: ConvertConfig) -> Target:
    final = config.directory
    run = layout.join(config.output, config.name, f".{config.version}.run")
    work = layout.join(run, _DATASET)
    if not is_local(final) and not exists(layout.join(final, layout.SUCCESS)):
        work = final
    return Target(final, work, run)


def _refuse(config: ConvertConfig) -> None:
    if config.if_exists == "fail":
        raise DatasetExists(
            f"{config.directory}: a published dataset is there; raise --version, or choose "
            "--if_exists skip to keep it or --if_exists replace to write it anew"
        )


def _sweep(target: Target) -> None:
    """Clears up after a killed run, if there was one and none is at work."""
    if is_local(target.final) and (exists(target.run) or exists(_lock_path(target))):
        with contextlib.suppress(DatasetExists, UsageError):  # it is at work, or not to be touched
            held = _lock(target)
            try:
                target.sweep()
            finally:
                held.release()


def _lock(target: Target) -> Lock:
    if not is_local(target.final):
        return Lock(_lock_path(target), None)
    return lock(_lock_path(target), target.final)


def _lock_path(target: Target) -> str:
    return target.run.removesuffix(".run") + ".lock"


def _check_directory(directory: str, dry_run: bool) -> None:
    """Refuses folders that cannot be made, or that Beam's sinks would take for patterns."""
    if "[" in directory:
        raise UsageError(
            f"--output: {directory} holds '[', which Beam's sinks take for a pattern of names; "
            "choose a folder without it"
        )
    if layout.is_web(directory):
        raise UsageError(
            f"--output: {directory} is a web address, which is only read from; "
            "choose a folder on this machine, or in s3://, gs://, azfs:// or hdfs://"
        )
    if is_local(directory):
        try:
            if dry_run:
                _check_folder(directory)
                return
            os.makedirs(os.path.dirname(directory), exist_ok=True)
            if os.path.lexists(directory) and not os.path.isdir(directory):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), directory)
        except OSError as error:
            raise UsageError(
                f"--output: {directory} cannot be made: {error.strerror}{_file_above(directory)}; "
                "choose a folder that can be written to"
            ) from error


def _file_above(directory: str) -> str:
    """Returns which file stands where a folder has to be, if one does."""
    while directory and not os.path.lexists(directory):
        directory = os.path.dirname(directory)
    return f", {directory} is a file" if os.path.isfile(directory) else ""


def _check_folder(directory: str) -> None:
    """Does what making a folder does where it cannot be made: the nearest that is there decides."""
    while not os.path.lexists(directory):
        directory = os.path.dirname(os.path.abspath(directory))
    if not os.path.isdir(directory):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), directory)
    if not os.access(directory, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), directory)


def _check_ours(directory: str, name: str) -> None:
    """Refuses a folder with what no run has left: nothing else is ever deleted."""
    if exists(layout.join(directory, layout.SUCCESS)):
        return
    if foreign := sorted(entry for entry in _entries(directory) if not _ours(entry, name)):
        raise UsageError(
            f"{directory}: holds {foreign[0]!r}, which is no part of a dataset; "
            "choose another --output, --name or --version, or move it away"
        )


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
        layout.DROPPED,
        layout.INDEXES,
        layout.STAGING,
    )
    return any(fnmatch.fnmatchcase(entry, pattern) for pattern in patterns)


def _copy_over(work: str, final: str, shards: Sequence[str]) -> None:
    """Does the same in an object store, where a dataset without its mark is none.

    The copy is whole before anything of it is deleted. So whoever does this anew, because a worker
    died over it, finds all shards in the first place, or all files in the second.
    """
    files = files_below(work, "**")
    if set(shards) <= set(files):
        delete(layout.join(final, layout.SUCCESS))
        delete(final)
        files.remove(layout.SUCCESS)
        for batch in (files, [layout.SUCCESS]):
            copy([layout.join(work, n) for n in batch], [layout.join(final, n) for n in batch])
    delete(work)
