"""Builds examples: reads and decodes each reference's image, and encodes its features."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, repeat
from typing import NamedTuple, TypeAlias, TypeVar

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.features import MASK, Schema
from recordmill.schemas.masking import masked_url
from recordmill.schemas.origins import Origin
from recordmill.schemas.plan import Plan, ResolvedSchema
from recordmill.schemas.records import (
    BuiltFrame,
    ImageRef,
    Place,
    RowOutlines,
    SerializedExample,
    StoredImage,
)
from recordmill.schemas.rejects import Reason, RecordError, Reject
from recordmill.schemas.settings import Decode, ImageSettings
from recordmill.transforms.functional import read_ahead
from recordmill.transforms.functional.images.masks import (
    check_segments,
    examine_mask_in_process,
    mask_from_file,
    mask_from_outlines,
    read_segments,
)
from recordmill.transforms.functional.images.sniffing import is_16_bit
from recordmill.transforms.functional.images.transcode import pass_through, transcode
from recordmill.transforms.functional.records import examples
from recordmill.transforms.functional.records.image_columns import check_image
from recordmill.transforms.storage.files import VersionTags, is_local, note_tag, read_bytes
from recordmill.transforms.storage.local_files import ImageRootGuard
from recordmill.transforms.verification.verifier_process import check_decodes
from recordmill.transforms.workers.process import num_cores
from recordmill.transforms.workers.progress import Measurements
from recordmill.transforms.workers.sandbox import reject_printed_errors, run_in_subprocess

# Queued tasks beyond one per core, so that no thread idles while a record is being written.
_TASKS_AHEAD = 3

# Rows without an image that are encoded together.
_BATCH_ROWS = 256

# Concurrent reads of what is far away: at 50 ms each, they give 1,900 images per second.
_FETCH_REFS = 96

# Limit of the bytes fetched ahead of decoding, per shard.
_FETCH_BYTES = 64 * 2**20


class Fetched(NamedTuple):
    """A reference with the bytes of its files."""

    ref: ImageRef
    # The bytes of its image file, empty for schemas without images; None if it is not read yet.
    image: bytes | None = None
    others: tuple[bytes | None, ...] = ()  # those of `ref.others`; () if none is read yet
    is_complete: bool = False  # whether nothing is left to read or to check


T = TypeVar("T")

# A reference before its files are read, with some of them, or with all.
ToRead: TypeAlias = "ImageRef | Fetched | Reject"

# The result for one reference: an example, the frame of a sequence, or a reject.
Built: TypeAlias = "SerializedExample | BuiltFrame | Reject"


def build_all(
    refs: Sequence[ImageRef | Fetched],
    plan: Plan,
    config: ConvertConfig,
    pools: Pools,
    guard: ImageRootGuard,
    seen: VersionTags | None = None,
) -> Iterator[Built]:
    """Yields the example, frame or reject of each reference, in order; threads work ahead."""
    schema = plan.resolved.schema
    if not schema.has_image:  # cheaper than a task of a thread pool
        rows = read_ahead.batched(
            (ref.ref if isinstance(ref, Fetched) else ref for ref in refs), _BATCH_ROWS
        )
        build_rows = examples.build_examples if schema.sequence is None else _build_frames
        return chain.from_iterable(build_rows(schema, batch) for batch in rows)
    images = ImageBuilder(plan, config, guard, seen)
    # Files in the page cache or on a disk are so near that one task reads and decodes.
    first, waits = read_ahead.first_results(images.read, refs) if are_near(refs) else ([], True)
    files: Iterable[ToRead] = chain(first, refs[len(first) :])
    if waits:  # waiting needs many threads and no core, so they have a pool of their own
        budget = read_ahead.Budget(_FETCH_BYTES)
        ahead = read_ahead.fetch_ahead(
            images.read, files, pools.waiting, _FETCH_REFS, budget, _bytes_of
        )
        files = ahead
    tasks, window = read_ahead.batched(files, pools.task_refs), num_cores() + _TASKS_AHEAD
    built = read_ahead.map_ahead(partial(pools.build, images), tasks, pools.working, window)
    return images.measured.reported(chain.from_iterable(built))


# The version tags of files that were read, and measurements.
Notes: TypeAlias = "tuple[VersionTags, list[tuple[str, int]]]"


@dataclass(frozen=True)
class ImageBuilder:
    """Reads and builds references with images, in any thread, and measures the times."""

    plan: Plan
    config: ConvertConfig  # how images are decoded, and checked before they are stored
    guard: ImageRootGuard
    seen: VersionTags | None
    measured: Measurements = field(default_factory=Measurements)

    def read(self, ref: ToRead) -> Fetched | Reject:
        """Returns the bytes of a reference's files, or its reject."""
        if isinstance(ref, Reject) or (isinstance(ref, Fetched) and ref.is_complete):
            return ref  # has been read ahead
        with self.measured.timed("read_us"):
            names = self.plan.resolved.schema.image_names
            fetched = _fetch(ref, self.seen, self.guard, names)
        self.measured.add("read_bytes", _bytes_of(fetched))
        return fetched

    def build(self, fetched: Fetched | Reject) -> Built:
        """Returns the example or frame of a reference, or its reject; a reject is unchanged."""
        with self.measured.timed("build_us"):
            if isinstance(fetched, Reject):
                return fetched
            try:
                return self._record(fetched)
            except RecordError as error:
                return Reject.of(fetched.ref, error.reason, error.detail)
            except MemoryError:
                reason = Reason.TOO_MANY_PIXELS
                return Reject.of(fetched.ref, reason, "not enough memory to decode it")

    def _record(self, fetched: Fetched) -> SerializedExample | BuiltFrame:
        schema, decode = self.plan.resolved.schema, self.config.decode
        image = read_image(fetched.image or b"", schema.image, decode)
        masks = _read_masks(fetched, image, self.plan.resolved)
        others = tuple(_read_others(fetched, schema, decode)) if schema.image_names else ()
        self._check(image, masks.classes, others)
        build = examples.build_example if schema.sequence is None else examples.build_frame
        return build(schema, fetched.ref, image, masks, others)

    def _check(self, image: StoredImage, mask: bytes | None, others: Sequence[StoredImage]) -> None:
        """Checks the images of a record, as options ask for; RecordError rejects it."""
        check_image(image, self.config)
        if self.config.verify == "decode":
            schema = self.plan.resolved.schema
            check_decodes(image, mask, schema)
            for name, other in zip(schema.image_names, others, strict=True):
                check_decodes(other, None, schema, name)

    def read_and_build(self, refs: Sequence[ToRead]) -> list[Built]:
        """Reads references and builds them."""
        return [self.build(self.read(ref)) for ref in refs]

    def without_notes(self) -> ImageBuilder:
        """Returns the builder for another process, in which it notes what it reads."""
        seen: VersionTags | None = None if self.seen is None else {}
        return replace(self, seen=seen, measured=Measurements())

    def take_notes(self) -> Notes:
        """Returns the notes since the last call."""
        seen = dict(self.seen or {})
        if self.seen:
            self.seen.clear()
        return seen, list(self.measured.taken())

    def add_notes(self, notes: Notes) -> None:
        """Adds what was noted in another process."""
        tags, measured = notes
        if self.seen is not None:
            for uri, tag in tags.items():
                note_tag(self.seen, uri, tag)
        for name, value in measured:
            self.measured.add(name, value)


def _build_frames(schema: Schema, refs: Sequence[ImageRef]) -> list[BuiltFrame]:
    return [examples.build_frame(schema, ref, None) for ref in refs]


def are_near(refs: Iterable[ImageRef | Fetched]) -> bool:
    """Returns whether all images have been read, or are in local files."""
    known = (ref if isinstance(ref, Fetched) else Fetched(ref) for ref in refs)
    return all(one.image is not None or is_local(one.ref.uri) for one in known)


def _fetch(
    ref: ImageRef | Fetched, seen: VersionTags | None, guard: ImageRootGuard, names: Sequence[str]
) -> Fetched | Reject:
    """Returns the bytes of a reference's files, or its reject with the name of the file."""
    ref, image, others, _ = ref if isinstance(ref, Fetched) else Fetched(ref)
    try:
        is_regular = guard.check_ref(ref)
    except RecordError as error:
        if seen is not None:  # no tag shows where links lead, on which the reject depends
            seen[ref.uri] = None
        return Reject.of(ref, error.reason, error.detail)
    try:
        if image is None:
            # Files staged by the run need no version tags.
            tags = None if ref.staged else seen
            image = read_bytes(ref.uri, ref.start, ref.stop, tags, is_regular)
        if not ref.others:
            return Fetched(ref, image, is_complete=True)
        found = list[bytes]()
        held_of = (*others, *repeat(None, len(ref.others) - len(others)))
        for name, file, held in zip((*names, MASK), ref.others, held_of, strict=False):
            with _errors_of(name, file):
                uri, start, stop, staged = file
                tags = None if staged else seen
                found.append(read_bytes(uri, start, stop, tags) if held is None else held)
        return Fetched(ref, image, tuple(found), is_complete=True)
    except RecordError as error:
        return Reject.of(ref, error.reason, error.detail)


def _bytes_of(fetched: Fetched | Reject) -> int:
    if isinstance(fetched, Reject):
        return 0
    return sum(len(data or b"") for data in (fetched.image, *fetched.others))


def read_image(data: bytes, settings: ImageSettings, decode: Decode) -> StoredImage:
    """Returns an image in the form that is stored in its record.

    Images that are stored unchanged are decoded in this process. All others are transcoded in a
    subprocess, where a hang, a crash or excessive memory use costs only that image. The subprocess
    examines the header again, because this process reads only the fields that the choice needs.
    """
    kept = pass_through(data, settings, decode)
    if kept is None:
        call = partial(reject_printed_errors, transcode, data, settings, decode)
        kept = run_in_subprocess(call, timeout=settings.timeout)
    if settings.bit_depth == 16 and not (is_16_bit(kept.data) and kept.channels == 1):
        found = f"{kept.channels} of {16 if is_16_bit(kept.data) else 8} bits"
        detail = f"expected one channel of 16 bits (bit_depth: 16), got {found}"
        raise RecordError(Reason.UNSUPPORTED_FEATURE, detail)
    return kept


def _read_others(fetched: Fetched, schema: Schema, decode: Decode) -> Iterator[StoredImage]:
    """Yields the other images of a record as they are stored, in the order of their names."""
    files = zip(fetched.others, fetched.ref.others or (), strict=True)
    for name, (data, file) in zip(schema.image_names, files, strict=False):
        with _errors_of(name, file):
            yield read_image(data or b"", schema.image_settings[name], decode)


def _read_masks(fetched: Fetched, image: StoredImage, resolved: ResolvedSchema) -> examples.Masks:
    """Returns the mask of classes, from a file or outlines, and the segments of outlines."""
    ref, schema, classes, segments = fetched.ref, resolved.schema, None, None
    remarks: tuple[str, ...] = ()
    if not schema.mask_feature and not ref.outlines:
        return examples.NO_MASKS
    data, file = None, _NO_FILE
    if ref.others and len(ref.others) > (at := len(schema.image_names)):  # that of masks is last
        data, file = fetched.others[at], ref.others[at]
    mask = schema.features[schema.mask_feature] if schema.mask_feature else None
    sized = image._replace(data=b"")  # only its size is used: less to send to the subprocess
    outlines = RowOutlines(*ref.outlines) if ref.outlines else None
    if outlines and data is not None and any("segment" in o for _, o in outlines.objects):
        segments = _from_file(read_segments, data, file, sized, schema)
        check_segments(outlines, segments)
    if mask and mask.source.origin is Origin.MASK:
        read = partial(mask_from_file, classes=resolved.mask_classes)
        classes, remarks = _from_file(read, data or b"", file, sized, schema)
    elif mask and outlines is not None:
        classes = mask_from_outlines(outlines, sized, schema, segments)
    return examples.Masks(classes, segments, remarks)


_NO_FILE: Place = ("", None, None, b"")


def _from_file(
    read: Callable[..., T], data: bytes, file: Place, image: StoredImage, schema: Schema
) -> T:
    """Reads a mask file, in a subprocess if it is over the work limits."""
    with _errors_of(MASK, file):
        if header := examine_mask_in_process(data):
            return read(data, image, schema, header)
        call = partial(reject_printed_errors, read, data, image, schema)
        return run_in_subprocess(call, timeout=schema.image.timeout)


@contextmanager
def _errors_of(name: str, file: Place) -> Iterator[None]:
    """Prefixes the detail of a RecordError with the name and path of a file of a record."""
    try:
        yield
    except RecordError as error:
        uri = masked_url(file[0])
        shown = "" if file[-1] else f" {uri}"  # a staging file of the run is none that users know
        detail = f"{name}{shown}: {error.detail.removeprefix(f'{uri}: ')}"
        raise RecordError(error.reason, detail) from error


def new_executor() -> ThreadPoolExecutor:
    """Returns a pool of one thread per core."""
    return ThreadPoolExecutor(num_cores(), thread_name_prefix="build")


Build: TypeAlias = Callable[[ImageBuilder, Sequence[ToRead]], list[Built]]

# Submitting images to threads one by one costs a tenth of the throughput.
_TASK_REFS = 4


class Pools:
    """The thread pools of a process.

    `working`: decodes and encodes, with one thread per core. `waiting`: waits for object stores
    and network file systems; its threads are started on demand. `build`: reads and builds up to
    `task_refs` references, in a thread of `working`.
    """

    def __init__(
        self,
        working: Executor | None = None,
        build: Callable[
            [ImageBuilder, Sequence[ToRead]], list[Built]
        ] = ImageBuilder.read_and_build,
        task_refs: int = _TASK_REFS,
    ) -> None:
        """Starts no thread yet; `working` decodes and encodes instead of threads."""
        self.working: Executor = working or new_executor()
        self.waiting: Executor = ThreadPoolExecutor(_FETCH_REFS, thread_name_prefix="fetch")
        self.build, self.task_refs = build, task_refs
