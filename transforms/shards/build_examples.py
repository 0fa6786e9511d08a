"""Builds examples: reads and decodes each reference's image, and encodes its features."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import NamedTuple, TypeAlias, TypeVar

from recordmill.schemas.config import Decode
from recordmill.schemas.features import Schema
from recordmill.schemas.masking import masked_url
from recordmill.schemas.plan import Plan
from recordmill.schemas.records import BuiltFrame, ImageRef, SerializedExample, StoredImage
from recordmill.schemas.rejects import Reason, RecordError, Reject
from recordmill.schemas.settings import ImageSettings
from recordmill.transforms.functional.images.masks import (
    examine_mask_in_process,
    mask_from_file,
    mask_from_outlines,
)
from recordmill.transforms.functional.images.transcode import keep, pass_through_source, transcode
from recordmill.transforms.functional.read_ahead import Budget, batched, fetch_ahead, map_ahead
from recordmill.transforms.functional.records.examples import build_example, build_frame
from recordmill.transforms.storage.files import VersionTags, is_local, read_bytes
from recordmill.transforms.storage.local_files import UNRESTRICTED, ImageRootGuard
from recordmill.transforms.workers.cores import num_cores
from recordmill.transforms.workers.sandbox import run_in_subprocess

_TASK_REFS = 4
"""How many images make one task: handing over each by itself costs a tenth of the throughput."""

_TASKS_AHEAD = 3
"""Tasks that wait while others are worked on, so that no thread does while results are written."""

_BATCH_REFS = 256

_FETCH_REFS = 96
"""How many images are read from stores at once: 50 ms each, they are 1,900 a second."""

_FETCH_BYTES = 64 * 2**20
"""How much of them may be ahead of the decoding of one shard."""


class Fetched(NamedTuple):
    """A reference with the bytes of its files.

    Attributes:
        ref: the reference.
        image: of the image; empty for schemas without.
        mask: of the mask, where that has a file.
    """

    ref: ImageRef
    image: bytes = b""
    mask: bytes | None = None


T = TypeVar("T")

Built: TypeAlias = "SerializedExample | BuiltFrame | Reject"
"""What becomes of a reference: an example, the frame of a sequence, or a reject."""

Check: TypeAlias = Callable[[StoredImage, "bytes | None", Schema], None]
"""Raises a RecordError for an image, and its mask, that are not to be stored."""


def build_all(
    refs: Sequence[ImageRef | Fetched],
    plan: Plan,
    decode: Decode,
    pools: Pools,
    seen: VersionTags | None = None,
    guard: ImageRootGuard = UNRESTRICTED,
    check: Check | None = None,
) -> Iterator[Built]:
    """Yields the example, frame or reject of each reference, in order, worked ahead on by threads.

    Args:
        refs: what they are made of; with the image where that is at hand.
        plan: the resolved schema.
        decode: "full" or "header".
        pools: the threads.
        seen: takes the version tags of what was read.
        guard: keeps them from reading what is outside of it.
        check: is called with every image that is to be stored, and may reject it.
    """
    build = partial(build_one, plan=plan, decode=decode, check=check)
    if not plan.resolved.schema.has_image:  # nothing to wait for
        return (build(ref if isinstance(ref, Fetched) else Fetched(ref)) for ref in refs)
    read = partial(fetch, seen=seen, guard=guard)
    if all(
        isinstance(ref, Fetched) or is_local(ref.uri) for ref in refs
    ):  # read by the threads that decode
        return _in_tasks(lambda ref: build(read(ref)), refs, pools)
    # Waiting for a store takes many threads and no core. Bounded by number and bytes.
    budget = Budget(_FETCH_BYTES)
    fetched = fetch_ahead(read, refs, pools.waiting, _FETCH_REFS, budget, _bytes_of)
    return _in_tasks(build, fetched, pools)


def _in_tasks(build: Callable[[T], Built], items: Iterable[T], pools: Pools) -> Iterator[Built]:
    """Yields what is built of each item, in order; a thread is handed a few items at a time."""
    tasks, window = batched(items, _TASK_REFS), num_cores() + _TASKS_AHEAD
    built = map_ahead(lambda task: [build(item) for item in task], tasks, pools.working, window)
    return chain.from_iterable(built)


def fetch(
    ref: ImageRef | Fetched, seen: VersionTags | None = None, guard: ImageRootGuard = UNRESTRICTED
) -> Fetched | Reject:
    """Returns the bytes of a reference's files, or its reject if they cannot be had.

    Args:
        ref: the reference; with the image if only its mask has to be read.
        seen: takes the version tags of what was read.
        guard: keeps it from reading what is outside of it.
    """
    ref, held = (ref.ref, ref.image) if isinstance(ref, Fetched) else (ref, None)
    try:
        guard.check_ref(ref)
        image = read_bytes(ref.uri, ref.start, ref.stop, seen) if held is None else held
        if not ref.mask_uri or ref.segments is not None:
            return Fetched(ref, image)
        with _mask_errors(ref):
            return Fetched(ref, image, read_bytes(ref.mask_uri, seen=seen))
    except RecordError as error:
        return Reject.of(ref, error.reason, error.detail)


def _bytes_of(fetched: Fetched | Reject) -> int:
    return 0 if isinstance(fetched, Reject) else len(fetched.image) + len(fetched.mask or b"")


def build_one(
    fetched: Fetched | Reject, plan: Plan, decode: Decode, check: Check | None = None
) -> Built:
    """Returns the example or frame of a reference, or its reject.

    Args:
        fetched: the reference and its files; a reject is returned as it is.
        plan: the resolved schema.
        decode: "full" or "header".
        check: is called with the image that is to be stored, and may reject it.
    """
    if isinstance(fetched, Reject):
        return fetched
    ref, schema = fetched.ref, plan.resolved.schema
    try:
        image = read_image(fetched.image, schema.image, decode) if schema.has_image else None
        mask = read_mask(fetched, image, schema) if image and schema.mask_feature else None
        if image and check:
            check(image, mask, schema)
        build = build_example if schema.sequence is None else build_frame
        return build(schema, ref, image, mask)
    except RecordError as error:
        return Reject.of(ref, error.reason, error.detail)
    except MemoryError:
        return Reject.of(ref, Reason.TOO_MANY_PIXELS, "there is not the memory for it")


def read_image(data: bytes, settings: ImageSettings, decode: Decode) -> StoredImage:
    """Returns an image as the record will hold it.

    Plain ones are decoded right here. All others are in a subprocess, where they can take as long
    as they like, as much memory, or crash; their headers are examined again there, as this process
    trusts no more of them than it has time to look at.

    Args:
        data: the file.
        settings: limits and options.
        decode: "full" or "header".

    Raises:
        RecordError: if it is not to be stored.
    """
    source = pass_through_source(data, settings)
    kept = keep(data, source, settings, decode) if source else None
    if kept is not None:
        return kept
    return run_in_subprocess(transcode, data, settings, decode, timeout=settings.timeout)


def read_mask(fetched: Fetched, image: StoredImage, schema: Schema) -> bytes:
    """Returns the mask of a reference's image, from its own file or from the objects' outlines.

    Args:
        fetched: the reference, and the mask's file if it has one.
        image: the image as the record holds it.
        schema: what was done to it, and how masks are stored.

    Raises:
        RecordError: if it does not fit the image.
    """
    ref, data = fetched.ref, fetched.mask or b""
    if ref.segments is not None:
        return mask_from_outlines(ref.segments, image, schema)
    image = image._replace(data=b"")  # its size is enough
    with _mask_errors(ref):
        if header := examine_mask_in_process(data):
            return mask_from_file(data, image, schema, header)
        return run_in_subprocess(mask_from_file, data, image, schema, timeout=schema.image.timeout)


@contextmanager
def _mask_errors(ref: ImageRef) -> Iterator[None]:
    """Makes what a reject says begin with the mask that is at fault."""
    try:
        yield
    except RecordError as error:
        uri = masked_url(ref.mask_uri)
        detail = f"mask {uri}: {error.detail.removeprefix(f'{uri}: ')}"
        raise RecordError(error.reason, detail) from error


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
