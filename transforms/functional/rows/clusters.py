"""Clusters of rows with similar images: the images to compare, and what is done with the groups.

A row is known by 64 bits of a hash: of its key, or when rows are kept together, of its group or
key, so that similar images connect whole groups. Two rows with equal hashes, of which 10^8 rows
have a pair in 3,700 tables, count as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from recordmill.schemas.errors import UsageError
from recordmill.schemas.features import Schema
from recordmill.schemas.plan import Plan, ResolvedSchema
from recordmill.schemas.records import Cluster, ImageRef, ImageShape, Row
from recordmill.transforms.functional.near_duplicates import (
    MAX_GROUPED,
    Bucket,
    Groups,
    Ids,
    pack,
    split_by_bucket,
)
from recordmill.transforms.functional.records.image_columns import describe
from recordmill.transforms.functional.rows.analysis import Analyzer, rows_with_identity
from recordmill.transforms.functional.rows.placement import (
    POSITION_BYTES,
    BaseShardLookup,
    order_of,
)


@dataclass(frozen=True)
class Clusters:
    """Rows that are kept in one split, because their images are similar."""

    groups: Groups  # the clusters, by the ids of groups or keys
    # The split of each cluster in which that of a row is fixed, by its root; the first by name if
    # there are several.
    splits: Mapping[int, str] = field(default_factory=dict)


def _ids_of(orders: Iterable[bytes]) -> Ids:
    """Returns the ids of rows by their orders, (rows,)."""
    first = b"".join(order[:POSITION_BYTES] for order in orders)
    ids: Ids = np.frombuffer(first, ">u8").astype(np.uint64)
    return ids


def images_plan(schema: Schema) -> Plan:
    """Returns a plan of records with nothing but their image."""
    features = {"image": {"kind": "bytes", "from": "image:bytes"}}
    document = {"name": "images", "features": features, "image": schema.image.model_dump()}
    return Plan(ResolvedSchema(Schema.model_validate(document)), {}, 0)


def images_of_rows(rows: Sequence[Row], analyzer: Analyzer) -> Iterator[tuple[bytes, ImageRef]]:
    """Yields (order of the row's group or key, reference to its image) of rows with an image.

    `analyzer` is the schema, column mapping and options.
    """
    for row, found in rows_with_identity(rows, analyzer.binding):
        if found and found.uri:
            yield (
                order_of(found.entity, analyzer.config.seed),
                ImageRef(
                    key=found.key,
                    file=row.file,
                    line=row.line,
                    uri=found.uri,
                    start=found.start,
                    stop=found.stop,
                    # The schema of `images_plan` has one feature, the image, which is read later.
                    values=(None,),
                    staged=found.staged,
                ),
            )


def hashes_by_bucket(
    orders: Sequence[bytes], shapes: Sequence[ImageShape | None], rows: int
) -> Iterator[tuple[Bucket, bytes]]:
    """Yields (bucket, images) of the images that have a perceptual hash.

    `orders` is the order of each row. `shapes` is its image; None if it is rejected.
    """
    hashes = describe(list(shapes)).column("phash")
    ids = _ids_of(orders)[hashes.is_valid().to_numpy(zero_copy_only=False)]
    yield from split_by_bucket(pack(ids, hashes.drop_null().to_pylist()), rows)


def check_groups(groups: Groups, mode: str) -> Groups:
    """Returns groups that are complete.

    `mode` is the value of `--near_duplicates`. Raises UsageError if there are too many similar
    images.
    """
    if groups.overflow:
        raise UsageError(
            f"--near_duplicates {mode}: expected at most {MAX_GROUPED:,} rows with similar images, "
            "got more. Drop identical images with --deduplicate content in a first version, or "
            "choose --near_duplicates report."
        )
    return groups


def fixed_splits(
    rows: Sequence[Row], analyzer: Analyzer, find: BaseShardLookup
) -> Iterator[tuple[str, bytes]]:
    """Yields (split, orders of rows that stay in it): as a column or the base version says."""
    found = dict[str, list[bytes]]()
    for _, identity in rows_with_identity(rows, analyzer.binding):
        if identity is None:
            continue
        split = identity.split or (find(identity.record_key) or ("",))[0]
        if split:
            order = order_of(identity.entity, analyzer.config.seed)
            found.setdefault(split, []).append(order[:POSITION_BYTES])
    for split, orders in found.items():
        yield split, b"".join(orders)


def splits_of_groups(fixed: tuple[str, bytes], groups: Groups) -> Iterator[tuple[bytes, str]]:
    """Yields (root, split) of each group with a row in a split.

    `fixed` is the split, and the first 8 bytes of the orders of rows in it.
    """
    split, orders = fixed
    _, roots = groups.roots_of(np.frombuffer(orders, ">u8").astype(np.uint64))
    for root in np.unique(roots).tolist():
        yield _as_key(root), split


def clusters_of(groups: Groups, splits: Mapping[bytes, str]) -> Clusters:
    """Returns the clusters of rows."""
    return Clusters(groups, {int.from_bytes(root, "big"): split for root, split in splits.items()})


def with_clusters(
    rows: Sequence[Row], clusters: Clusters, analyzer: Analyzer, find: BaseShardLookup
) -> Iterator[Row]:
    """Yields rows with their clusters, in the same order.

    `analyzer` is the schema, column mapping and options.
    """
    known = list(rows_with_identity(rows, analyzer.binding))
    seed = analyzer.config.seed
    orders = [order_of(found.entity if found else "", seed) for _, found in known]
    member, of_members = clusters.groups.roots_of(_ids_of(orders))
    # Only members have a root; both are in the order of the rows.
    roots = iter(of_members.tolist())
    for (row, identity), is_member in zip(known, member.tolist(), strict=True):
        if is_member:
            root = next(roots)
            # Rows of the base version stay where they are, whatever the split of their cluster.
            in_base = identity is not None and find(identity.record_key) is not None
            split = "" if in_base else clusters.splits.get(root, "")
            row = row._replace(cluster=Cluster(f"similar images {root:016x}", split))
        yield row


def separate_similar(
    refs: Sequence[tuple[bytes, ImageRef]], groups: Groups
) -> Iterator[tuple[bytes | None, tuple[bytes, ImageRef]]]:
    """Yields (root of the row's group, row); None for rows without a similar image.

    `refs`: rows with their orders.
    """
    member, of_members = groups.roots_of(_ids_of(order for order, _ in refs))
    roots = iter(of_members.tolist())
    for row, is_member in zip(refs, member.tolist(), strict=True):
        yield _as_key(next(roots)) if is_member else None, row


def _as_key(root: int) -> bytes:
    return root.to_bytes(POSITION_BYTES, "big")  # bytes, because coders of integers are signed
