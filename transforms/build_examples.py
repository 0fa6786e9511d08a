"""Builds examples: reads and decodes each reference's image, and encodes its features."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import NamedTuple, TypeAlias

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput
from apache_beam.utils.shared import Shared

from recordmill.schemas.config import Decode
from recordmill.schemas.errors import UsageError
from recordmill.schemas.features import Schema
from recordmill.schemas.masking import masked_url
from recordmill.schemas.plan import Plan
from recordmill.schemas.records import BuiltFrame, ImageRef, SerializedExample, StoredImage
from recordmill.schemas.rejects import Reason, RecordError, Reject
from recordmill.schemas.settings import ImageSettings
from recordmill.transforms.functional.images.masks import is_plain, mask_of_file, mask_of_outlines
from recordmill.transforms.functional.images.transcode import keep, plain_source, transcode
from recordmill.transforms.functional.read_ahead import Budget, fetch_ahead, in_groups, map_ahead
from recordmill.transforms.functional.records.examples import build_example
from recordmill.transforms.functional.records.sequence_examples import build_frame
from recordmill.transforms.outcome import REJECTS, Outcome, rejected
from recordmill.transforms.storage.files import Stamps, is_local, read_bytes
from recordmill.transforms.storage.image_root import OPEN, Fence
from recordmill.transforms.workers.cores import num_cores
from recordmill.transforms.workers.sandbox import run_apart

_TASK_REFS = 4
"""How many images make one task: handing over each by itself costs a tenth of the throughput."""

_TASKS_AHEAD = 3
"""Tasks that wait while others are worked on, so that no thread does while results are written."""

_BATCH_REFS = 256

_FETCH_REFS = 96
"""How many images are read from stores at once: 50 ms each, they are 1,900 a second."""

_FETCH_BYTES = 64 * 2**20
"""How much of them may be ahead of the decoding of one shard."""


class Files(NamedTuple):
    """What is in the files of a reference, or why they cannot be had.

    Attributes:
        image: of the image.
        mask: of the mask, where that has a file.
    """

    image: bytes | RecordError
    mask: bytes | RecordError | None


Built: TypeAlias = "SerializedExample | BuiltFrame | Reject"
"""What becomes of a reference: an example, the frame of a sequence, or a reject."""

Check: TypeAlias = Callable[[StoredImage, "bytes | None", Schema], None]
"""Raises a RecordError for an image, and its mask, that are not to be stored."""

Source: TypeAlias = tuple[ImageRef, Files | None]
"""A reference with its files; None where they have yet to be read."""


@dataclass(eq=False)
class BuildExamples(beam.PTransform):
    """Builds serialized examples: PCollection[ImageRef] → Outcome(bytes).

    For a plain `beam.io.WriteToTFRecord`, which shuffles the bytes and gives no fixed order. Not
    for sequences, whose rows have to meet first.

    Attributes:
        plan: settles the schema.
        decode: "full" or "header".
    """

    plan: PCollection[Plan]
    decode: Decode = "full"

    def expand(self, refs: PCollection[ImageRef]) -> Outcome:
        """Adds the building, in batches that a pool of threads works ahead on."""
        built = (
            refs
            | "BatchRefs" >> beam.BatchElements(min_batch_size=1, max_batch_size=_BATCH_REFS)
            | "Build"
            >> beam.ParDo(_BuildBatch(self.decode), AsSingleton(self.plan))
            .with_outputs(REJECTS, main="examples")
            .with_output_types(bytes)
        )
        return Outcome(built.examples, built[REJECTS])


class _BuildBatch(beam.DoFn):
    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._shared = Shared()

    def setup(self) -> None:
        self._pools = self._shared.acquire(Pools)

    def process(self, refs: list[ImageRef], plan: Plan) -> Iterator[bytes | TaggedOutput]:
        if plan.resolved.schema.sequence is not None:
            raise UsageError("BuildExamples makes a record of each row: sequences need WriteShards")
        for built in build_all(refs, plan, self._decode, self._pools):
            if isinstance(built, SerializedExample):
                yield built.data
            elif isinstance(built, Reject):
                yield rejected(built)


def build_all(
    refs: Sequence[ImageRef],
    plan: Plan,
    decode: Decode,
    pools: Pools,
    seen: Stamps | None = None,
    fence: Fence = OPEN,
    check: Check | None = None,
) -> Iterator[Built]:
    """Yields the example, frame or reject of each reference, in order, worked ahead on by threads.

    Args:
        refs: what they are made of.
        plan: settles the schema.
        decode: "full" or "header".
        pools: the threads.
        seen: takes the version tags of what was read.
        fence: keeps them from reading what is outside of it.
        check: is called with every image that is to be stored, and may reject it.
    """
    if not plan.resolved.schema.has_image:  # nothing to wait for
        return (build_one(ref, plan, decode) for ref in refs)
    if all(is_local(ref.uri) for ref in refs):
        # read where they are decoded
        sources: Iterable[Source] = ((ref, refused(ref, fence)) for ref in refs)
    else:
        sources = fetch_all(refs, pools.waiting, seen, fence)
    tasks = in_groups(sources, _TASK_REFS)
    window = num_cores() + _TASKS_AHEAD
    build = partial(build_each, plan=plan, decode=decode, check=check)
    built = map_ahead(build, tasks, pools.working, window)
    return chain.from_iterable(built)


def fetch_all(
    refs: Iterable[ImageRef],
    executor: Executor,
    seen: Stamps | None = None,
    fence: Fence = OPEN,
) -> Iterator[Source]:
    """Yields each reference with its image, in order: read ahead, bounded by number and bytes."""
    read = partial(fetch, seen=seen, fence=fence)
    return fetch_ahead(read, refs, executor, _FETCH_REFS, Budget(_FETCH_BYTES), _bytes_of)


def refused(ref: ImageRef, fence: Fence) -> Files | None:
    """Returns that a reference's files are not to be read, or None if they may be."""
    refusal = fence.refusal(ref)
    return Files(refusal, None) if refusal else None


def fetch(ref: ImageRef, seen: Stamps | None = None, fence: Fence = OPEN) -> Source:
    """Returns a reference with what is in its files."""
    if refusal := refused(ref, fence):
        return ref, refusal
    image = _had(ref.uri, ref.start, ref.stop, seen)
    wanted = ref.mask_uri and ref.segments is None and isinstance(image, bytes)
    return ref, Files(image, _had(ref.mask_uri, seen=seen) if wanted else None)


def _had(
    uri: str, start: int | None = None, stop: int | None = None, seen: Stamps | None = None
) -> bytes | RecordError:
    try:
        return read_bytes(uri, start, stop, seen)
    except RecordError as error:
        return error


def _bytes_of(source: Source) -> int:
    return sum(len(data) for data in source[1] or () if isinstance(data, bytes))


def build_each(
    sources: Iterable[Source], plan: Plan, decode: Decode, check: Check | None = None
) -> list[Built]:
    """Returns the example, frame or reject of each reference."""
    return [build_one(ref, plan, decode, files, check) for ref, files in sources]


def build_one(
    ref: ImageRef,
    plan: Plan,
    decode: Decode,
    files: Files | None = None,
    check: Check | None = None,
) -> Built:
    """Returns the example or frame of a reference, or its reject."""
    schema = plan.resolved.schema
    try:
        image = read_image(ref, files, schema.image, decode) if schema.has_image else None
        mask = read_mask(ref, files, image, schema) if image and schema.mask_feature else None
        if image and check:
            check(image, mask, schema)
        build = build_example if schema.sequence is None else build_frame
        return build(schema, ref, image, mask)
    except RecordError as error:
        return Reject.of(ref, error.reason, error.detail)
    except MemoryError:
        return Reject.of(ref, Reason.TOO_MANY_PIXELS, "there is not the memory for it")


def read_image(
    ref: ImageRef, files: Files | None, settings: ImageSettings, decode: Decode
) -> StoredImage:
    """Returns a reference's image as the record will hold it.

    Plain ones are decoded right here; all others in a process of their own, where they can take as
    long as they like, as much memory, or crash.

    Raises:
        RecordError: if it cannot be had, or is not to be stored.
    """
    data = given(files.image) if files else read_bytes(ref.uri, ref.start, ref.stop)
    source = plain_source(data, settings)
    kept = keep(data, source, settings, decode) if source else None
    if kept is not None:
        return kept
    return run_apart(transcode, data, settings, decode, timeout=settings.timeout)


def read_mask(ref: ImageRef, files: Files | None, image: StoredImage, schema: Schema) -> bytes:
    """Returns the mask of a reference's picture, from its own file or from the objects' outlines.

    Raises:
        RecordError: if it cannot be had, or does not fit the picture.
    """
    if ref.segments is not None:
        return mask_of_outlines(ref.segments, image, schema)
    try:
        data = given(files.mask) if files else read_bytes(ref.mask_uri)
        image = image._replace(data=b"")  # its size is enough
        if is_plain(data):
            return mask_of_file(data, image, schema)
        return run_apart(mask_of_file, data, image, schema, timeout=schema.image.timeout)
    except RecordError as error:
        uri = masked_url(ref.mask_uri)
        raise RecordError(
            error.reason, f"mask {uri}: {error.detail.removeprefix(f'{uri}: ')}"
        ) from error


def given(data: bytes | RecordError | None) -> bytes:
    """Returns what was read.

    Raises:
        RecordError: if it could not be.
    """
    if isinstance(data, RecordError):
        raise data
    return data or b""


def new_executor() -> ThreadPoolExecutor:
    """Returns a process's pool of threads that work, one a core."""
    return ThreadPoolExecutor(num_cores(), thread_name_prefix="build")


class Pools:
    """A process's threads.

    Attributes:
        working: as many as there are cores.
        waiting: those that stores are waited for with; they are made as they are needed.
    """

    def __init__(self) -> None:
        self.working: Executor = new_executor()
        self.waiting: Executor = ThreadPoolExecutor(_FETCH_REFS, thread_name_prefix="fetch")
