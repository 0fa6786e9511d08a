"""The folders of a run: where a dataset is written, and where it is published.

On a local file system, a run writes the dataset in a folder of its own and publishes it by renaming
that folder, which is atomic. Object stores have no rename: there, the run writes the dataset in its
final folder, and publishes it by writing the commit marker last.

    DIR/NAME/VERSION            the dataset; without a commit marker, the output of a failed run,
                                whose run.json marks it as such for the next run
    DIR/NAME/.VERSION.lock      locked while a run is active
    DIR/NAME/.VERSION.run/      of the active run, or of the last run if it failed
        dataset/                the dataset while it is written
        checkpoints/            the checkpoints of its finished shards
        replaced/               the previous dataset, if the file system has no atomic swap
        progress/               progress counters of workers in other processes

Only files that a run has written are deleted (see `recordmill.schemas.layout`), and only in folders
that are marked by a run.json or a manifest.json.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain

from recordmill.pipelines.run.run_record import RUNNING, RunContext, read_record, running_record
from recordmill.schemas import layout
from recordmill.schemas.errors import RecordmillError, UsageError
from recordmill.schemas.manifest import Manifest
from recordmill.transforms.shards.checkpoints import Checkpoints
from recordmill.transforms.storage.files import (
    all_files_below,
    copy,
    delete,
    delete_files,
    exists,
    is_local,
    read,
    sizes,
    write_bytes,
    write_checked,
)
from recordmill.transforms.storage.published import find_manifest

DATASET = "dataset"
_PROGRESS = "progress"

_MARKERS = (layout.RUN, layout.MANIFEST)

# The files of a manifest that a dataset need not have.
_OPTIONAL = (layout.REPORT, *map(layout.lines_name, (*layout.LINES, *layout.UNMATCHED)))

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@dataclass(frozen=True)
class Contents:
    """The files in a dataset's folder: a dataset, the output of a failed run, or foreign files.

    Each property is computed on first access, and cached.
    """

    directory: str
    name: str

    @cached_property
    def is_published(self) -> bool:
        """Whether there is a commit marker."""
        return exists(layout.join(self.directory, layout.SUCCESS))

    @cached_property
    def names(self) -> list[str]:
        """The paths of all files, relative to the folder."""
        return all_files_below(self.directory)

    @cached_property
    def is_marked(self) -> bool:
        """Whether a run has written the folder, by its run.json or manifest.json."""
        manifest, is_committed = self._manifest
        return manifest is not None or is_committed or read_record(self.directory) is not None

    @cached_property
    def owned(self) -> layout.Owned:
        """A function that returns whether a file was written by a run."""
        manifest, is_committed = self._manifest
        if manifest and is_committed:
            return layout.owned_in_published(manifest.files)
        return layout.owned_in_leftover(self.name, manifest.files if manifest else ())

    @cached_property
    def _manifest(self) -> tuple[Manifest | None, bool]:
        return find_manifest(self.directory)

    def check(self) -> None:
        """Rejects a folder with files that were not written by a run.

        Raises UsageError if there is such a file, or the folder is a symbolic link.
        """
        if is_local(self.directory) and os.path.islink(self.directory):
            raise UsageError(
                f"{self.directory}: is a link to {os.path.realpath(self.directory)}; a dataset is "
                "published by renaming its folder. Delete the link, or choose another --output, "
                "--name or --version."
            )
        if foreign := layout.first_foreign(self.names, self.owned):
            _reject_foreign(self.directory, foreign)
        if self.names and not self.is_marked:
            what = "was not written by recordmill: there is no run.json"
            _reject_foreign(self.directory, self.names[0], what)

    def discard(self, keep: Collection[str] = ()) -> None:
        """Deletes the files that a run has written, except for those in `keep`."""
        _discard(self.directory, self.owned, keep, self.named)

    @property
    def named(self) -> Collection[str]:
        """The files that a committed manifest names, which a store's listing may omit."""
        manifest, is_committed = self._manifest
        is_listed = is_local(self.directory) or not is_committed
        return () if manifest is None or is_listed else manifest.files


@dataclass(frozen=True)
class Target:
    """The folders of a run."""

    final: str
    work: str  # the folder where the dataset is written
    run: str  # the run's own folder, which is deleted after publishing

    @property
    def checkpoints(self) -> Checkpoints:
        """The checkpoints of finished shards."""
        return Checkpoints(layout.join(self.run, layout.CHECKPOINTS), self.work, self._name)

    @property
    def progress(self) -> str:
        """The folder where workers in other processes report their progress."""
        return layout.join(self.run, _PROGRESS)

    def contents(self) -> Contents:
        """Returns the files that are in the final folder now."""
        return self._contents(self.final)

    @property
    def is_published(self) -> bool:
        """Whether the final folder has a published dataset."""
        return self.contents().is_published

    @property
    def failed_folder(self) -> str:
        """The folder for the output of a failed run: the final folder, unless it has a dataset."""
        return self.work if self.is_published else self.final

    def delete_temporary(self) -> None:
        """Deletes staged images, and temporary files of retried work.

        Lists only the folders that hold such files; the others grow with the dataset.
        """
        for folder in (layout.STAGING, *layout.LINES, *layout.UNMATCHED):
            _discard(layout.join(self.work, folder), partial(_is_temporary_below, folder))

    def delete_others(self, files: Collection[str]) -> None:
        """Deletes what is not part of a finished dataset before its commit marker is written.

        In a store, that includes files of a run that published at the same time.
        """
        if is_local(self.work):
            self.delete_temporary()
        else:
            _discard(self.work, layout.owned_in_leftover(self._name), keep=files)

    def publish(self, files: Collection[str], context: RunContext) -> None:
        """Moves a finished dataset to its final folder, and cleans up."""
        if is_local(self.final):
            self._rename_to_final()
        elif self.work != self.final:
            self._copy_to_final(files, context)
        self.clean_up_published(context)

    def clean_up_published(self, context: RunContext) -> str:
        """Deletes the folder of a run that has published, unless another run has taken it.

        Returns a warning if it cannot be deleted, or "".
        """
        try:
            if not self.is_taken(context):
                self.clean_up()
        except OSError as error:
            return f"{self.run}: cannot be deleted: {error}"
        return ""

    def clean_up(self) -> None:
        """Deletes the run's own folder, with the dataset that was replaced."""
        _discard(self.run, self._owned_in_run())

    def forget_damaged(self, files: Set[str], shards: Iterable[str]) -> None:
        """Deletes the checkpoints of damaged shards, so that the next run writes them again."""
        for shard in shards:
            if not files.isdisjoint(layout.files_of_shard(self._name, shard)):
                self.checkpoints.delete(shard)

    def keep_failed_output(self) -> None:
        """Moves the results of a failed run to the final folder, without the files of a dataset.

        Shards stay in the work folder, from which the next run resumes: a pattern such as
        `1.0.0/*.tfrecord*` must not match a dataset that was not published.
        """
        for name in (layout.SUCCESS, layout.DATASET_INFO):
            if self.work != self.final or not self.is_published:
                delete(layout.join(self.work, name))
        if not is_local(self.final) or self.work == self.failed_folder:
            return
        # run.json first, because it marks the folder as ours.
        for name in (layout.RUN, layout.REPORT, *map(layout.lines_name, layout.LINES)):
            source, target = layout.join(self.work, name), layout.join(self.final, name)
            if os.path.isfile(source):
                with contextlib.suppress(OSError):  # it stays where the next run deletes it
                    os.makedirs(os.path.dirname(target), exist_ok=True)
                    os.replace(source, target)

    def resume(self, context: RunContext) -> None:
        """Prepares the folders: keeps the finished shards of an earlier run, deletes the rest."""
        if is_local(self.final):
            self.recover()
            os.makedirs(self.run, exist_ok=True)
            if os.path.isdir(self.final) and not (contents := self.contents()).is_published:
                if os.path.isdir(self.work):
                    contents.discard()
                else:
                    os.rename(self.final, self.work)
        elif self.work == self.final:
            self.begin(context)
            self._contents(self._dataset).discard()
        work = self._contents(self.work)
        present = set(work.names)
        finished = {
            shard: files
            for shard in self.checkpoints.shards()
            if present.issuperset(files := layout.files_of_shard(self._name, shard))
        }
        self.checkpoints.keep(finished)
        marker = (layout.RUN,) if self.work == self.final else ()
        work.discard(keep={*marker, *chain.from_iterable(finished.values())})
        if self.work != self.final:
            self.begin(context)

    def begin(self, context: RunContext) -> None:
        """Marks the files as those of a run: any other run fails before it publishes them."""
        write_checked(layout.join(self.work, layout.RUN), running_record(context).to_json())

    def take_over(self) -> None:
        """Marks the files of an unfinished run as those of another: if active, it will fail."""
        record = running_record(RunContext.begin("")).to_json()
        for folder in (self._dataset, *(() if self.is_published else (self.final,))):
            if exists(layout.join(folder, layout.RUN)):
                write_bytes(layout.join(folder, layout.RUN), record)

    def check_active(self, context: RunContext) -> None:
        """Rejects a run whose files were deleted, or taken over by another run.

        Raises RecordmillError if the files are not those of the run.
        """
        record = read_record(self.work)
        if record is None or record.run_id != context.run_id:
            what = "has been deleted" if record is None else "is that of another run"
            raise RecordmillError(
                f"{layout.join(self.work, layout.RUN)}: {what}, so nothing is published; expected "
                f"run {context.run_id}. Let only one job at a time write or delete a version, and "
                "run again."
            )

    def is_taken(self, context: RunContext) -> bool:
        """Whether another run has begun to write the same version since."""
        records = map(read_record, (self.work, self._dataset))
        active = (record for record in records if record and record.state == RUNNING)
        return any(record.run_id != context.run_id for record in active)

    def clean_up_if_published(self) -> None:
        """Deletes the run's own folder if the run was killed after it had published.

        A run that was killed earlier has an incomplete dataset there: it can be resumed.
        """
        if not exists(self.work) or exists(layout.join(self.work, layout.SUCCESS)):
            self.clean_up()

    @property
    def needs_rollback(self) -> bool:
        """Whether a run was killed between two renames, so that no dataset has the final name."""
        return (
            is_local(self.final)
            and os.path.isdir(self._replaced)
            and not os.path.lexists(self.final)
        )

    def recover(self) -> None:
        """Restores the folders after a run was killed while publishing."""
        if self.needs_rollback:
            os.rename(self._replaced, self.final)
        self._contents(self._replaced).discard()

    def check_run(self) -> None:
        """Rejects a run folder that is a link, or has files that were not written by a run.

        Raises UsageError if it is, or there is such a file.
        """
        if is_local(self.run) and os.path.islink(self.run):
            raise UsageError(f"{self.run}: is a link to {os.path.realpath(self.run)}. Delete it.")
        if foreign := layout.first_foreign(all_files_below(self.run), self._owned_in_run()):
            _reject_foreign(self.run, foreign)

    def _contents(self, directory: str) -> Contents:
        return Contents(directory, self._name)

    def _owned_in_run(self) -> layout.Owned:
        return layout.owned_in_run(
            {
                DATASET: self._contents(self._dataset).owned,
                layout.REPLACED: self._contents(self._replaced).owned,
                layout.CHECKPOINTS: layout.owned_in_checkpoints(self._name),
                _PROGRESS: layout.owned_in_progress,
            }
        )

    @property
    def _dataset(self) -> str:
        return layout.join(self.run, DATASET)

    @property
    def _name(self) -> str:
        return self.final.rstrip("/").split("/")[-2]

    @property
    def _replaced(self) -> str:
        return layout.replaced_folder(self.run)

    def _rename_to_final(self) -> None:
        if not os.path.isdir(self.final):
            os.rename(self.work, self.final)
        elif not _swap(self.work, self.final):
            # Between the two renames no dataset has the final name; see needs_rollback.
            os.rename(self.final, self._replaced)
            os.rename(self.work, self.final)

    def _copy_to_final(self, files: Collection[str], context: RunContext) -> None:
        """Replaces a dataset in an object store, which has no rename.

        A retry after a worker died finds either all files in the work folder, and copies again, or
        all files in the final folder: the work folder is deleted last. The new run.json is written
        before old files are deleted, so that the final folder is marked as ours at any time.

        Both manifests say what is copied and deleted, because a listing may omit files.
        """
        work, final = self.work, self.final
        present = sizes(work, sorted(files))
        missing = [n for n, size in present.items() if size is None and n not in _OPTIONAL]
        if missing and not (self.is_published and context.record_in(final)):
            raise RecordmillError(
                f"{layout.join(work, missing[0])}: has been deleted, so nothing is published. Run "
                "again."
            )
        if not missing:
            old = self.contents()
            owned, named = old.owned, old.named  # while the commit marker of the old one exists
            run, marker = (read(layout.join(work, name)) for name in (layout.RUN, layout.SUCCESS))
            delete_files(final, [layout.SUCCESS])
            # Written instead of copied, because a copy in HDFS does not overwrite a file.
            write_checked(layout.join(final, layout.RUN), run)
            _discard(final, owned, (layout.RUN,), named)
            written = (layout.RUN, layout.SUCCESS)
            copied = {n: s for n, s in present.items() if s is not None and n not in written}
            _copy(work, final, copied)
            write_checked(layout.join(final, layout.SUCCESS), marker)
        self._contents(work).discard()
        if not missing and not self.is_published:  # the DELETE of the old marker has arrived twice
            write_checked(layout.join(final, layout.SUCCESS), marker)


def _discard(
    directory: str, owned: layout.Owned, keep: Collection[str] = (), named: Collection[str] = ()
) -> None:
    """Deletes the owned files of a folder, and the files that mark it as ours last.

    `owned`: returns whether a file was written by a run; other files are kept. `named`: names of
    files to delete even if they are not listed.
    """
    found = sorted({*all_files_below(directory), *named})
    names = [name for name in found if owned(name) and name not in keep]
    # If the process is killed before the markers are deleted, the next run can still clean up.
    markers = [name for name in names if name.rpartition("/")[2] in _MARKERS]
    delete_files(directory, [name for name in names if name not in markers])
    delete_files(directory, markers)


def _is_temporary_below(folder: str, name: str) -> bool:
    return layout.is_temporary(layout.join(folder, name))


def _swap(one: str, other: str) -> bool:
    """Swaps the names of two folders atomically, where the system supports it.

    Linux has renameat2, on ext4, XFS, Btrfs, tmpfs, overlayfs, and some network file systems.
    Source: renameat2(2). Returns whether the folders were swapped.
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
        f"{directory}: contains {name!r}, which {what}. "
        "Choose another --output, --name or --version, or move it elsewhere."
    )


def _copy(source: str, target: str, files: Mapping[str, int]) -> None:
    """Copies files of known sizes within a store, and compares the sizes of the copies."""
    wrong: Mapping[str, int | None] = files
    # A server that ignores the header of a copy, as fake-gcs-server does, writes an empty object.
    for by_reading in (False, True):
        copy({layout.join(source, n): layout.join(target, n) for n in wrong}, by_reading)
        found = sizes(target, wrong)
        if not (wrong := {name: size for name, size in found.items() if size != files[name]}):
            return
    for name, size in wrong.items():
        raise OSError(
            f"{layout.join(target, name)}: was not copied; expected {files[name]:,} bytes, "
            f"got {size or 0:,}"
        )
