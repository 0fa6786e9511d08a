"""Tries the images of the first rows of a table, before a run starts its workers.

A wrong `--image_root` or image column rejects every row, which a run would otherwise find out with
as many requests as there are rows. Stops at the first image that can be stored, so a good table
costs one image. Whether a run stops depends on its table and options only, not on workers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice

from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import RejectBudgetExceeded
from recordmill.schemas.masking import masked_source
from recordmill.schemas.records import Row
from recordmill.schemas.rejects import RecordError, Reject, reject_line
from recordmill.schemas.tables import Projection, SourceSplit, TableFile
from recordmill.transforms.functional.rows.binding import Binding
from recordmill.transforms.functional.rows.identities import identity_of, reject_row
from recordmill.transforms.functional.rows.row_batch import one_by_one
from recordmill.transforms.shards.build_examples import read_image
from recordmill.transforms.storage.files import read_bytes
from recordmill.transforms.storage.formats import FORMATS
from recordmill.transforms.storage.local_files import ImageRootGuard

# The formats whose images are in other files; the images of others were found by listing them.
TABLES = frozenset({"csv", "tsv", "jsonl", "parquet", "arrow"})

# Concurrent reads: they wait for a store, not for a core.
_THREADS = 16


def first_rejects(
    files: Sequence[TableFile], projection: Projection, binding: Binding, config: ConvertConfig
) -> list[Reject]:
    """Returns the rejects of the first rows if these are all rejected for their image.

    Returns one reject per row; none if there are fewer rows, or an image can be stored. `files` are
    the tables, in order. `config` is the options: the number of rows, decoding, and the image root
    guard.
    """
    guard = ImageRootGuard(config.guard)

    def try_row(row: Row | Reject) -> Reject | None:
        return row if isinstance(row, Reject) else _image_reject(row, binding, config, guard)

    rows = islice(_rows(files, projection), config.fail_fast)
    rejects = list[Reject]()
    with ThreadPoolExecutor(_THREADS) as executor:
        # The first row alone: it is a request in vain if the others are good as well.
        for batch in chain([list(islice(rows, 1))], iter(lambda: list(islice(rows, _THREADS)), [])):
            for reject in executor.map(try_row, batch):
                if reject is None:
                    return []
                rejects.append(reject)
    return rejects if len(rejects) == config.fail_fast else []


def first_rows_error(rejects: Sequence[Reject], folder: str) -> RejectBudgetExceeded:
    """Returns the error for rows that are all rejected, with the first reject of each reason.

    `rejects` are the rejects, in the order of the rows.
    """
    reasons = Counter(reject.reason for reject in rejects)
    counts = ", ".join(f"{count:,} {reason.value}" for reason, count in reasons.items())
    first = {reject.reason: reject for reject in reversed(rejects)}
    shown = "\n  ".join(
        reject_line(masked_source(first[reason].source), reason.value, first[reason].detail)
        for reason in reasons
    )
    error = RejectBudgetExceeded(
        f"stopped before the conversion: the images of the first {len(rejects):,} rows are all "
        f"rejected ({counts}):\n  {shown}\nEach is in {layout.join(folder, layout.REJECTS)} with "
        "its reason. Fix them, or set --fail_fast 0 to try all rows."
    )
    numbers = {reason.value: number for reason, number in reasons.items()}
    return error.of_run(numbers, [first[reason].to_dict() for reason in reasons])


def _rows(files: Sequence[TableFile], projection: Projection) -> Iterator[Row | Reject]:
    for file in files:
        source = FORMATS[file.format]
        for split in source.split(file):
            if isinstance(split, SourceSplit):
                found = one_by_one(source.read(split, projection))
                yield from (row for row in found if isinstance(row, (Row, Reject)))


def _image_reject(
    row: Row, binding: Binding, config: ConvertConfig, guard: ImageRootGuard
) -> Reject | None:
    """Returns the reject of a row without a path or with an image that cannot be stored."""
    try:
        identity = identity_of(row, binding)
    except RecordError as error:
        return reject_row(row, binding, error)
    span = (identity.start, identity.stop)
    try:
        guard.check(identity.uri)
        read_image(read_bytes(identity.uri, *span), binding.resolved.schema.image, config.decode)
    except RecordError as error:
        why = (error.reason, error.detail)
        return Reject(identity.key, identity.uri, row.source, *why, start=span[0], stop=span[1])
    return None
