"""Elements between transforms: batches of rows and references, their coders, and rejects.

Rows travel in batches, because a runner spends more time on an element than we do on most rows.
"""

from __future__ import annotations

import pickle
import sys
import uuid
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from apache_beam import coders
from apache_beam.pvalue import PCollection, TaggedOutput
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.dataset_info import ShardVerification
from recordmill.schemas.records import ImageRef, Row
from recordmill.schemas.rejects import Reject
from recordmill.transforms.functional.rows.batches import OrderedRefs, RefBatch, RowBatch, once
from recordmill.transforms.storage.files import make_folders

# A split and the number of a shard within it.
ShardId: TypeAlias = tuple[str, int]

# Batches are classes, because Beam chooses coders by class.


class VerificationBatch(list[ShardVerification]):
    """Verifications of shards, on their way to the one worker that reconciles all counts."""


# References, and the shard that they are assigned to.
AssignedRows: TypeAlias = tuple[ShardId, OrderedRefs]


class _Coder(coders.Coder):
    """Encodes elements that are never keys of a grouping."""

    def is_deterministic(self) -> bool:
        return False


class PickleCoder(_Coder):
    """Pickles an element, where it leaves its process at all."""

    def encode(self, value: Any) -> bytes:
        """Returns the pickled element."""
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)

    def decode(self, encoded: bytes) -> Any:
        """Returns the element."""
        return pickle.loads(encoded)  # noqa: S301 - our own


class BatchCoder(PickleCoder):
    """Pickles a batch."""

    def estimate_size(self, value: Any) -> int:
        """Returns a guess, for Beam's metrics: by default, it encodes one element in ten for it."""
        return _ROW_BYTES * len(value)


_ROW_BYTES = 100


class CompressedBatchCoder(BatchCoder):
    """Pickles and compresses a batch, where one worker receives all batches."""

    def encode(self, value: Any) -> bytes:
        """Returns the compressed batch."""
        return zlib.compress(super().encode(value), 1)

    def decode(self, encoded: bytes) -> Any:
        """Returns the batch."""
        return super().decode(zlib.decompress(encoded))


class OrderedRefsCoder(BatchCoder):
    """Encodes references in about a hundred bytes each, identically on every runner."""

    def encode(self, value: OrderedRefs) -> bytes:
        """Returns the orders, and the values of each field."""
        return encode_columns(*value.columns)

    def decode(self, encoded: bytes) -> OrderedRefs:
        """Returns the references with the encoded fields."""
        columns = _VALUES.decode(encoded)
        columns[_FILE] = tuple(map(sys.intern, columns[_FILE]))  # rows of a table share it
        return OrderedRefs(columns)


_FILE = OrderedRefs.fields.index("file")
_VALUES = coders.FastPrimitivesCoder()


def encode_columns(first: Sequence[Any], *others: Sequence[Any]) -> bytes:
    """Returns columns of primitive values as bytes, identically on every runner."""
    return bytes(_VALUES.encode([first, *map(once, others)]))


class ImageRefCoder(_Coder):
    """Encodes a single reference for the shuffles by key and by image."""

    def encode(self, value: ImageRef) -> bytes:
        """Returns the encoded fields of a reference."""
        return bytes(_VALUES.encode(tuple(value)))

    def decode(self, encoded: bytes) -> ImageRef:
        """Returns the reference with the encoded fields."""
        key, file, *others = _VALUES.decode(encoded)
        return ImageRef(key, sys.intern(file), *others)  # all rows of a table share one string


class RowCoder(_Coder):
    """Encodes a row for the shuffle of a join, by pickling: values can be of many types."""

    def encode(self, value: Row) -> bytes:
        """Returns the encoded fields of a row."""
        values, file, line, is_text, image, _, key = value  # clusters are found later
        fields = (dict(values), file, line, is_text, image, key)
        return pickle.dumps(fields, pickle.HIGHEST_PROTOCOL)

    def decode(self, encoded: bytes) -> Row:
        """Returns the row with the encoded fields."""
        values, file, line, is_text, image, key = pickle.loads(encoded)  # noqa: S301 - our own
        return Row(values, sys.intern(file), line, is_text, image, key=key)


class Spilled(NamedTuple):
    """The place of an element in a spill file."""

    path: str
    start: int
    stop: int

    def read(self) -> bytes:
        """Returns the element."""
        with open(self.path, "rb") as stream:
            stream.seek(self.start)
            return stream.read(self.stop - self.start)


_REFS = OrderedRefsCoder()

# Encoded references that are gathered before they are passed on, so that few elements cross the
# shuffle: those of one batch of rows are spread over all shards.
_GATHERED_BYTES = 16 * 2**20


@dataclass(frozen=True)
class EncodedRefs:
    """References of one shard, encoded."""

    parts: tuple[bytes, ...] | Spilled = ()  # the encoded parts, or their place in a spill file

    def read(self) -> tuple[bytes, ...]:
        """Returns the encoded parts."""
        parts = self.parts
        return tuple(_VALUES.decode(parts.read())) if isinstance(parts, Spilled) else parts


def joined(found: Iterable[EncodedRefs]) -> OrderedRefs:
    """Returns the references of a shard, decoded."""
    return OrderedRefs.joined(_REFS.decode(part) for refs in found for part in refs.read())


class GatheredRefs:
    """References of several batches, by shard."""

    def __init__(self) -> None:
        """Gathers no references yet."""
        self._parts = defaultdict[ShardId, list[bytes]](list)
        self._size = 0

    @property
    def are_many(self) -> bool:
        """Whether they should be passed on."""
        return self._size >= _GATHERED_BYTES

    def add(self, shard: ShardId, refs: OrderedRefs) -> None:
        """Adds references of a shard."""
        encoded = _REFS.encode(refs)
        self._parts[shard].append(encoded)
        self._size += len(encoded)

    def take(self, scratch: str = "") -> Iterator[tuple[ShardId, EncodedRefs]]:
        """Yields the references by shard, and gathers others from now on.

        `scratch`: the folder of a file in which they wait; "" to keep them in memory.
        """
        taken, self._parts, self._size = self._parts, defaultdict(list), 0
        if not scratch:
            yield from ((shard, EncodedRefs(tuple(parts))) for shard, parts in taken.items())
            return
        make_folders(scratch, layout.STAGING)
        path, stop = layout.join(scratch, layout.STAGING, uuid.uuid4().hex), 0
        places = dict[ShardId, EncodedRefs]()
        with open(path, "wb") as stream:
            for shard, parts in taken.items():
                start, stop = stop, stop + stream.write(_VALUES.encode(tuple(parts)))
                places[shard] = EncodedRefs(Spilled(path, start, stop))
        yield from places.items()


coders.registry.register_coder(ImageRef, ImageRefCoder)
coders.registry.register_coder(RowBatch, BatchCoder)
coders.registry.register_coder(RefBatch, BatchCoder)
coders.registry.register_coder(OrderedRefs, OrderedRefsCoder)
coders.registry.register_coder(VerificationBatch, CompressedBatchCoder)
coders.registry.register_coder(Row, RowCoder)
coders.registry.register_coder(EncodedRefs, PickleCoder)


REJECTS = "rejects"


class CheckedRows(NamedTuple):
    """The outputs of a transform of rows."""

    good: PCollection[Any]
    rejects: PCollection[Reject]


def rejected(reject: Reject) -> TaggedOutput:
    """Tags a reject for the dead-letter output of a DoFn."""
    return TaggedOutput(REJECTS, reject)


def windowed(output: Any) -> WindowedValue | TaggedOutput:
    """Returns an output of `finish_bundle`, where there is no window to inherit."""
    if isinstance(output, TaggedOutput):
        return TaggedOutput(output.tag, GlobalWindows.windowed_value(output.value))
    return GlobalWindows.windowed_value(output)


def displayed(config: ConvertConfig, *names: str) -> dict[str, str]:
    """Returns settings that are not None as display data, which engines show beside a step."""
    settings = {name: getattr(config, name) for name in names}
    return {name: str(value) for name, value in settings.items() if value is not None}
