"""Where a dataset is written and where it belongs, and what may already be there.

On this machine a dataset is written in a folder of the run's own, and gets its name when it is
whole: all at once. Object stores rename nothing: there it is written in its place, and the commit
mark, last, makes it a dataset.

    DIR/NAME/VERSION            the dataset; without its commit mark, what a failed run has left,
                                with a run.json by which the next one knows that it is ours
    DIR/NAME/.VERSION.lock      held while a run is at work
    DIR/NAME/.VERSION.run/      of the run at work, or of the last one if it did not publish
        dataset/                what it writes
        staging/                finished shards
        published/              the same, once the dataset goes to its place
        replaced/               the old dataset, where the file system has no atomic swap of two
        progress/               how far the workers of other processes are

Only files that a run has written are deleted (`recordmill.schemas.layout`), in folders that a
run has marked as its own: by a run.json, or by a manifest.json.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from recordmill.pipelines.run.run_record import RunContext, read_record, running
from recordmill.schemas import layout
from recordmill.schemas.errors import UsageError
from recordmill.schemas.layout import (
    Owned,
    first_foreign,
    is_temporary,
    owned_in_leftover,
    owned_in_progress,
    owned_in_published,
    owned_in_run,
    owned_in_staging,
)
from recordmill.schemas.manifest import Manifest
from recordmill.transforms.shards.checkpoints import Staging
from recordmill.transforms.storage.dataset import find_manifest
from recordmill.transforms.storage.files import (
    all_files_below,
    copy,
    delete,
    delete_files,
    exists,
    is_local,
    read_bytes,
    write_bytes,
)

DATASET = "dataset"
_STAGING = "staging"
_PUBLISHED = "published"
_PROGRESS = "progress"
_MARKERS = (layout.RUN, layout.MANIFEST)
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@dataclass(frozen=True)
class Contents:
    """What is in a dataset's folder: nothing, a dataset, what a run has left, or foreign files.

    Each fact is read when it is first asked for, and only once.

    Attributes:
        directory: the folder.
        name: the dataset's name.
    """

    directory: str
    name: str

    @cached_property
    def is_published(self) -> bool:
        """Whether there is a commit marker."""
        return exists(layout.join(self.directory, layout.SUCCESS))

    @cached_property
    def names(self) -> list[str]:
        """Every file, as named below the folder."""
        return all_files_below(self.directory)

    @cached_property
    def is_marked(self) -> bool:
        """Whether a run has marked the folder as its own."""
        manifest, is_committed = self._manifest
        return manifest is not None or is_committed or read_record(self.directory) is not None

    @cached_property
    def owned(self) -> Owned:
        """Which of the files a run has written."""
        manifest, is_committed = self._manifest
        if manifest and is_committed:
            return owned_in_published(manifest.files)
        return owned_in_leftover(self.name, manifest.files if manifest else ())

    @cached_property
    def _manifest(self) -> tuple[Manifest | None, bool]:
        return find_manifest(self.directory)

    def check(self) -> None:
        """Passes a folder where only files of a run would be replaced.

        Raises:
            UsageError: naming the first file that no run has written.
        """
        if is_local(self.directory) and os.path.islink(self.directory):
            raise UsageError(
                f"{self.directory}: is a link to {os.path.realpath(self.directory)}; a dataset "
                "gets its place by renaming its folder: delete the link, or choose another "
                "--output, --name or --version"
            )
        if foreign := first_foreign(self.names, self.owned):
            _reject_foreign(self.directory, foreign)
        if self.names and not self.is_marked:
            what = "was not written by recordmill: no run.json says so"
            _reject_foreign(self.directory, self.names[0], what)

    def discard(self, keep: Collection[str] = ()) -> None:
        """Deletes the files that a run has written, except for those to keep."""
        discard(self.directory, self.owned, keep)


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
        """The folder where workers in other processes report their progress."""
        return layout.join(self.run, _PROGRESS)

    def contents(self) -> Contents:
        """Returns what is in the dataset's place now: one value for one decision."""
        return self._contents(self.final)

    @property
    def is_published(self) -> bool:
        """Whether a dataset is in its place."""
        return self.contents().is_published

    @property
    def failed_folder(self) -> str:
        """Where a run that fails leaves what it wrote: in its place, unless a dataset is there."""
        return self.work if self.is_published else self.final

    def delete_temporary(self) -> None:
        """Deletes staged images, and the temporary files that retried work has left."""
        discard(self.work, is_temporary)

    def publish(self, shards: Sequence[str]) -> None:
        """Puts a finished dataset, which has these shards, in its place, and clears up."""
        if is_local(self.final):
            os.makedirs(self._staging, exist_ok=True)
            os.rename(self._staging, self._published)
            self._put_in_place()
        elif self.work != self.final:
            self._copy_over(shards)
        self.clean_up()

    def clean_up(self) -> None:
        """Deletes what only the run needed, and the dataset that it has replaced."""
        discard(self.run, self._owned_in_run())

    def keep_failed_output(self) -> None:
        """Leaves what a failed run has written where people look for it: never as a dataset."""
        for name in (layout.SUCCESS, layout.DATASET_INFO):
            if self.work != self.final or not self.is_published:
                delete(layout.join(self.work, name))
        if is_local(self.final) and self.work != self.failed_folder and os.path.isdir(self.work):
            with contextlib.suppress(OSError):  # there is something: then it stays where it is
                os.rename(self.work, self.final)

    def resume(self, context: RunContext) -> None:
        """Takes up what an earlier run has left: its finished shards stay, all else is deleted."""
        if is_local(self.final):
            self.recover()
            os.makedirs(self.run, exist_ok=True)
            if os.path.isdir(self.final) and not (there := self.contents()).is_published:
                if os.path.isdir(self.work):
                    there.discard()
                else:
                    os.rename(self.final, self.work)
        elif self.work == self.final:
            write_bytes(layout.join(self.final, layout.RUN), running(context).to_json())
            self._contents(self._dataset).discard()
        self.staging.recover()
        marker = (layout.RUN,) if self.work == self.final else ()
        self._contents(self.work).discard(keep=marker)

    def clean_up_if_published(self) -> None:
        """Deletes what a run has left that was killed when its dataset was in its place already.

        One that was killed before has a staging area, and no whole dataset: the next may go on.
        """
        if not exists(self._staging) or exists(layout.join(self.work, layout.SUCCESS)):
            self.clean_up()

    @property
    def needs_rollback(self) -> bool:
        """Whether a run was killed between two renames, and the old dataset waits to go back."""
        return (
            is_local(self.final)
            and os.path.isdir(self._replaced)
            and not os.path.lexists(self.final)
        )

    def recover(self) -> None:
        """Undoes what a run was at that was killed while it put a dataset in its place."""
        if self.needs_rollback:
            os.rename(self._replaced, self.final)
        if os.path.isdir(self._published) and not os.path.isdir(self._staging):
            os.rename(self._published, self._staging)
        self._contents(self._replaced).discard()
        discard(self._published, owned_in_staging)

    def check_final(self) -> None:
        """Passes a place for the dataset where only a run's own files would be replaced.

        Raises:
            UsageError: naming the first file that no run has written.
        """
        self.contents().check()

    def check_run(self) -> None:
        """Passes a folder of an earlier run that holds only what a run writes.

        Raises:
            UsageError: naming the first file that no run has written.
        """
        if foreign := first_foreign(all_files_below(self.run), self._owned_in_run()):
            _reject_foreign(self.run, foreign)

    def _contents(self, directory: str) -> Contents:
        return Contents(directory, self.final.rstrip("/").split("/")[-2])

    def _owned_in_run(self) -> Owned:
        return owned_in_run(
            {
                DATASET: self._contents(self._dataset).owned,
                layout.REPLACED: self._contents(self._replaced).owned,
                _STAGING: owned_in_staging,
                _PUBLISHED: owned_in_staging,
                _PROGRESS: owned_in_progress,
            }
        )

    @property
    def _dataset(self) -> str:
        return layout.join(self.run, DATASET)

    @property
    def _staging(self) -> str:
        return layout.join(self.run, _STAGING)

    @property
    def _published(self) -> str:
        return layout.join(self.run, _PUBLISHED)

    @property
    def _replaced(self) -> str:
        return layout.replaced_folder(self.run)

    def _put_in_place(self) -> None:
        if not os.path.isdir(self.final):
            os.rename(self.work, self.final)
        elif not swap(self.work, self.final):
            os.rename(self.final, self._replaced)
            os.rename(self.work, self.final)

    def _copy_over(self, shards: Sequence[str]) -> None:
        """Does the same in an object store, where a dataset without its mark is none.

        The copy is whole before anything of the old one is deleted. So whoever does this again,
        because a worker died over it, finds all shards in the first place, or all files in the
        second. The run.json goes first, so that the folder is marked as ours all the time.
        """
        work, final = self.work, self.final
        files = all_files_below(work)
        if set(shards) <= set(files):
            owned = self.contents().owned  # by the old manifest, while its marker is there
            delete(layout.join(final, layout.SUCCESS))
            # Written, not copied: HDFS copies over no file, and the old one has to stay till then.
            write_bytes(layout.join(final, layout.RUN), read_bytes(layout.join(work, layout.RUN)))
            discard(final, owned, keep=(layout.RUN,))
            others = [name for name in files if name not in (layout.RUN, layout.SUCCESS)]
            _copy(work, final, others)
            _copy(work, final, [layout.SUCCESS])
        self._contents(work).discard()


def discard(directory: str, owned: Owned, keep: Collection[str] = ()) -> None:
    """Deletes the files of a folder that are owned; those that mark it as ours at last.

    Args:
        directory: the folder.
        owned: which of its files a run has written; no other is deleted.
        keep: names that stay.
    """
    names = [name for name in all_files_below(directory) if owned(name) and name not in keep]
    markers = [name for name in names if name.rpartition("/")[2] in _MARKERS]
    delete_files(directory, [name for name in names if name not in markers])
    delete_files(directory, markers)


def swap(one: str, other: str) -> bool:
    """Gives each of two folders the name of the other, atomically; returns whether it could.

    By Linux's renameat2, on file systems that know it: ext4, XFS, Btrfs, tmpfs, overlayfs, and
    some network file systems. Source: renameat2(2).
    """
    if not sys.platform.startswith("linux"):
        return False
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:  # glibc before 2.28
        return False
    paths = os.fsencode(one), os.fsencode(other)
    return bool(renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0)


def _reject_foreign(directory: str, name: str, what: str = "is not part of a dataset") -> None:
    raise UsageError(
        f"{directory}: holds {name!r}, which {what}; "
        "choose another --output, --name or --version, or move it away"
    )


def _copy(source: str, target: str, names: Sequence[str]) -> None:
    copy([layout.join(source, name) for name in names], [layout.join(target, n) for n in names])
