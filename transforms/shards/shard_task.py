"""Writes one shard from its references: reuses it, links it, or builds its records."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

from apache_beam.io.filebasedsink import FileBasedSink

from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.dataset_info import Checkpoint, WrittenShard
from recordmill.schemas.manifest import Base
from recordmill.schemas.plan import Plan
from recordmill.schemas.records import ImageRef, SerializedExample
from recordmill.schemas.rejects import RecordError, Reject
from recordmill.transforms.elements import EncodedRefs, ShardId, joined
from recordmill.transforms.functional.read_ahead import first_results, map_in_threads
from recordmill.transforms.functional.rows.batches import RefBatch
from recordmill.transforms.functional.rows.placement import arrange_shard, assemble_sequences
from recordmill.transforms.shards.base_shards import KeptShard, link_identical
from recordmill.transforms.shards.build_examples import Pools, build_all
from recordmill.transforms.shards.checkpoints import Checkpoints, Fingerprint, is_reusable
from recordmill.transforms.shards.writer import ShardWriter
from recordmill.transforms.storage.files import ABSENT, VersionTags, exists, is_local, store_of
from recordmill.transforms.storage.local_files import ImageRootGuard
from recordmill.transforms.storage.shard_files import ShardFiles
from recordmill.transforms.workers.progress import advance

# Concurrent requests for version tags: they wait for a store or a network, not for a core.
_THREADS = 64


def _file_version_tags(
    refs: Sequence[ImageRef], guard: ImageRootGuard, remote: bool, known: Collection[str] = ()
) -> VersionTags:
    """Returns the version tags of the files of references, except for known ones.

    Files on the web and in HDFS have no tags. Images staged by the run need none, because their
    references have a hash of the bytes. `guard`: confines files to the image root; files outside
    have no tag. `remote`: whether to request the tags of objects in stores, with one request per
    file.
    """
    # Each file once, in a deterministic order: many references can share an archive.
    files = dict.fromkeys(
        uri for uri in chain.from_iterable(_files_of(refs)) if uri and uri not in known
    )
    tag = partial(_guarded_version_tag, guard=guard)
    local_files = [uri for uri in files if is_local(uri)]
    first, is_slow = first_results(tag, local_files)
    rest = local_files[len(first) :]
    tags: VersionTags = dict(zip(local_files, first, strict=False))
    waiting = [uri for uri in files if not is_local(uri)] if remote else []
    if is_slow:
        waiting += rest
    else:
        tags.update(zip(rest, map(tag, rest), strict=True))
    tags.update(zip(waiting, map_in_threads(tag, waiting, _THREADS), strict=True))
    return tags


def _ref_version_tags(refs: Sequence[ImageRef], tags: VersionTags) -> list[str] | None:
    """Returns the version tags of each reference, joined; None if that of any file is unknown."""
    joined = []
    for files in _files_of(refs):
        found = [tag for uri in files if (tag := tags.get(uri) if uri else "") is not None]
        if len(found) < len(files):
            return None
        joined.append("\n".join(found))
    return joined if len(joined) == len(refs) else joined * len(refs)


def _files_of(refs: Sequence[ImageRef]) -> Iterator[tuple[str, ...]]:
    """Yields the files of each reference, without files staged by the run.

    If no row has other files than the first, they are yielded once.
    """
    for uri, staged, others in RefBatch.of(refs).select("uri", "staged", "others"):
        image = () if staged else (uri,)
        yield (*image, *(file[0] for file in others if not file[-1])) if others else image


def _guarded_version_tag(uri: str, guard: ImageRootGuard) -> str | None:
    try:
        guard.check(uri)
        return store_of(uri).version_tag(uri)
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    # Of a file outside of the root, the reject depends on where links lead, which no tag shows.
    except (OSError, ValueError, RecordError):
        return None


@dataclass(frozen=True, eq=False)
class ShardTask:
    """What all shards of a run have in common."""

    sink: FileBasedSink  # Beam's sink, which frames and compresses records
    checkpoints: Checkpoints  # the checkpoints of finished shards, and the dataset's folder
    config: ConvertConfig
    base: Base | None  # the base version, whose unchanged shards are linked; None if there is none
    plan: Plan
    settings: str

    def run(
        self, shard: ShardId, rows: Iterable[EncodedRefs], pools: Pools
    ) -> Iterator[Reject | WrittenShard]:
        """Yields the rejects of a shard, and then the shard.

        Holds its references and a window of images in memory.
        """
        guard = ImageRootGuard(self.config.guard)
        files = ShardFiles.planned(self.checkpoints.dataset, self.config, self.plan, *shard)
        old = KeptShard.of(self.base, *shard)
        assigned = joined(rows)
        refs, duplicates = arrange_shard(
            old.take_removals(assigned) if old else assigned, self.plan.resolved
        )
        settings = old.fingerprint(self.settings) if old else self.settings
        for reject in duplicates:
            yield replace(reject, split=shard[0])
        checkpoint = self.checkpoints.read(files.file)
        # Version tags cost one request each, so they are requested only if a checkpoint or base
        # shard may match. Otherwise reading the images yields them for free.
        remote = bool(checkpoint or (self.base and not old))
        tags = _file_version_tags(refs, guard, remote) if checkpoint or self.base else {}
        fingerprint = self._fingerprint(settings, shard, refs, tags)
        if checkpoint and fingerprint and is_reusable(checkpoint, fingerprint.digest, files):
            yield from _reused(checkpoint, refs)
            return
        if checkpoint:  # before its files are replaced, so that it never describes others
            self.checkpoints.delete(files.file)
        replaced = checkpoint.versions if checkpoint else (None, None)
        if old and not refs and not old.removed:
            yield old.link(files, replaced)
            return
        if self.base and fingerprint and not old:  # whose rows are counted beside those it keeps
            linked = link_identical(self.base, fingerprint, files, replaced)
            if linked:
                advance("written", linked.converted)
                yield linked
                return
        hashed = self.config.near_duplicates != "none"
        writer = ShardWriter(self.sink, files, self.plan, old.entry if old else None, hashed)
        seen = dict(tags)
        built = _build_records(refs, self.plan, self.config, pools, seen, guard)
        yield from writer.write(old.merged(built, self.plan.resolved) if old else built)
        if seen != tags:  # reading has added version tags, except of files beside unread images
            if self.plan.resolved.schema.other_columns:
                seen.update(_file_version_tags(refs, guard, remote=True, known=seen))
            fingerprint = self._fingerprint(settings, shard, refs, seen)
        yield self._finished(writer, writer.close(replaced), files, fingerprint)

    def _fingerprint(
        self, settings: str, shard: ShardId, refs: RefBatch, versions: VersionTags
    ) -> Fingerprint | None:
        """Returns the fingerprint of a shard; None if the version tag of an image is unknown."""
        tags = _ref_version_tags(refs, versions)
        if tags is None:
            return None
        return Fingerprint(settings, *shard, refs, tags, self.plan.resolved)

    def _finished(
        self,
        writer: ShardWriter,
        written: WrittenShard,
        files: ShardFiles,
        fingerprint: Fingerprint | None,
    ) -> WrittenShard:
        """Writes the checkpoint of a new shard, and returns the shard with its fingerprint."""
        if fingerprint is None:
            return written
        faults = writer.faults
        shard = replace(written, fingerprint=fingerprint.without(faults))
        # A checkpoint that is written after another attempt has published would stay forever.
        marker = layout.join(self.checkpoints.dataset, layout.SUCCESS)
        is_published = writer.is_late and exists(marker)
        # After a transient fault (a timeout, say) the next run must try the image again.
        if not is_published and not any(fault.is_transient for fault in faults):
            checkpoint = Checkpoint(
                fingerprint=fingerprint.digest,
                shard=shard,
                sizes=writer.sizes,
                versions=writer.versions,
                faults=tuple(faults),
            )
            self.checkpoints.write(checkpoint, files.file)
        return shard


def _reused(checkpoint: Checkpoint, refs: Sequence[ImageRef]) -> Iterator[Reject | WrittenShard]:
    """Yields the rejects of a finished shard, and then the shard."""
    advance("written", checkpoint.shard.converted)
    for reject in checkpoint.rejects(refs):
        advance("rejected")
        yield reject
    yield replace(checkpoint.shard, reused=1)


def _build_records(
    refs: Sequence[ImageRef],
    plan: Plan,
    config: ConvertConfig,
    pools: Pools,
    seen: VersionTags,
    guard: ImageRootGuard,
) -> Iterator[SerializedExample | Reject]:
    """Yields a shard's records and rejects in order; threads build a few of them ahead."""
    built: Iterator[Any] = build_all(refs, plan, config, pools, guard, seen)
    schema = plan.resolved.schema
    return built if schema.sequence is None else assemble_sequences(built, refs, schema)
