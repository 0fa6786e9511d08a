"""Rows with similar images: which are compared, and where they are placed."""

from __future__ import annotations

import numpy as np
import pytest

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import UsageError
from recordmill.schemas.plan import ResolvedSchema, SplitRanges
from recordmill.schemas.records import NO_CLUSTER, Cluster, ImageRef, ImageShape, Row
from recordmill.schemas.yaml_files import preset
from recordmill.transforms import similar_rows
from recordmill.transforms.functional.near_duplicates import (
    Groups,
    _decode,
    groups_of_bucket,
)
from recordmill.transforms.functional.rows.analysis import Analyzer
from recordmill.transforms.functional.rows.batches import OrderedRefs, RowBatch
from recordmill.transforms.functional.rows.binding import Binding
from recordmill.transforms.functional.rows.placement import order_of
from recordmill.transforms.similar_rows import (
    Clusters,
    _check_groups,
    _clusters_of,
    _fixed_splits,
    _hashes_by_bucket,
    _ids_of,
    _images_of_rows,
    _images_plan,
    _separate_similar,
    _splits_of_groups,
    _with_clusters,
)

SCHEMA = preset("image_classification")


def analyzer(**options: object) -> Analyzer:
    options = {"inputs": ("t.csv",), "output": "out", "name": "d", "image_root": "/d", **options}
    config = ConvertConfig.model_validate(options)
    binding = Binding(
        ResolvedSchema(SCHEMA, {}),
        config.columns,
        config.image_root,
        config.key_column,
        config.split_column,
        config.group_column,
    )
    return Analyzer(config, SCHEMA, binding, SplitRanges.from_weights(config.weights))


def row(image: str, **values: str) -> Row:
    return Row({"image": image, "label": "cat", **values}, "/d/t.csv", 2, is_text=True)


def batch(*rows: Row) -> RowBatch:
    return RowBatch.of(rows)


def id_of(entity: str, seed: int = 0) -> int:
    return int.from_bytes(order_of(entity, seed)[:8], "big")


def groups(*found: tuple[str, ...]) -> Groups:
    """Returns groups of rows by their keys or groups."""
    ids = [[id_of(entity) for entity in group] for group in found]
    roots = sorted((one, min(group)) for group in ids for one in group)
    members, of_members = np.array(roots, np.uint64).reshape(-1, 2).T
    return Groups(members, of_members)


def root_of(*entities: str) -> int:
    return min(map(id_of, entities))


def test_the_id_of_a_row_is_the_first_64_bits_of_its_order() -> None:
    orders = [bytes(7) + b"\1" + b"x" * 8, b"\xff" * 16]
    assert _ids_of(orders).tolist() == [1, 2**64 - 1]
    assert _ids_of([]).tolist() == []


def test_compared_records_have_nothing_but_their_image() -> None:
    schema = SCHEMA.model_copy(
        update={"image": SCHEMA.image.model_copy(update={"max_side": 256, "column": "photo"})}
    )
    plan = _images_plan(schema)
    assert list(plan.resolved.schema.features) == ["image"]
    assert plan.resolved.schema.image == schema.image
    assert plan.resolved.classes == {}


def test_images_are_compared_by_the_order_of_their_key() -> None:
    (found,) = _images_of_rows(batch(row("a.jpg"), row(""), row("b.jpg")), analyzer(seed=7))
    assert list(found) == [
        (
            order_of(key, 7),
            ImageRef(key, "/d/t.csv", 2, f"/d/{key}", None, None, values=(None,)),
        )
        for key in ("a.jpg", "b.jpg")
    ]


def test_images_are_compared_by_the_order_of_their_group() -> None:
    rows = batch(row("a.jpg", owner="Zoë"), row("b.jpg", owner="Bo"))
    (found,) = _images_of_rows(rows, analyzer(group_column="owner"))
    assert [order for order, _ in found] == [order_of("Zoë", 0), order_of("Bo", 0)]


def shape(pixels: np.ndarray) -> ImageShape:
    return ImageShape("jpeg", 640, 480, 3, 1000, pixels.astype(np.uint8).tobytes())


def test_only_images_with_a_hash_are_in_buckets() -> None:
    noise = np.random.default_rng(3).integers(0, 256, (64, 64))
    shapes = [shape(noise), None, shape(np.full((64, 64), 9)), shape(noise // 2)]
    orders = [order_of(key, 0) for key in "abcd"]
    ((bucket, data),) = _hashes_by_bucket(orders, shapes, rows=4)
    expected = [id_of("a"), id_of("d")]
    assert _decode(data)["id"].tolist() == expected
    merged = groups_of_bucket(bucket, [data])
    assert merged.members.tolist() == sorted(expected)
    assert set(merged.roots.tolist()) == {root_of("a", "d")}


def test_no_image_has_a_hash() -> None:
    assert list(_hashes_by_bucket([order_of("a", 0)], [None], rows=1)) == []


def test_too_many_similar_images_are_an_error() -> None:
    complete = groups(("a", "b"))
    assert _check_groups(b"", "drop", complete) is complete
    with pytest.raises(UsageError, match=r"^--near_duplicates drop: .* at most 16,777,216 rows"):
        _check_groups(b"", "drop", Groups(overflow=True))


def test_rows_in_no_fixed_split_have_none() -> None:
    assert list(_fixed_splits(batch(row("a.jpg"), row("b.jpg")), analyzer())) == []


def test_a_column_takes_precedence_over_the_base_version(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        row("a.jpg", part="test"),
        row("b.jpg", part=""),
        row("c.jpg", part=""),
        row("d.jpg", part="test"),
        row("", part="test"),  # rejected
    ]
    in_base = {"a.jpg": ("train", 0), "b.jpg": ("train", 3)}
    options = {"split_column": "part", "splits": "train=1,test=1"}
    monkeypatch.setattr(similar_rows, "base_shard_lookup", lambda _: in_base.get)
    found = dict(_fixed_splits(batch(*rows), analyzer(**options)))
    orders = {key: order_of(f"{key}.jpg", 0)[:8] for key in "abd"}
    assert found == {"test": orders["a"] + orders["d"], "train": orders["b"]}


def test_a_group_has_the_splits_of_its_rows() -> None:
    found = groups(("a", "b"), ("c", "d", "e"))
    orders = b"".join(order_of(key, 0)[:8] for key in ("x", "d", "e", "a"))
    expected = sorted([root_of("a", "b"), root_of("c", "d", "e")])
    assert list(_splits_of_groups(("test", orders), found)) == [
        (root.to_bytes(8, "big"), "test") for root in expected
    ]
    assert list(_splits_of_groups(("test", order_of("x", 0)[:8]), found)) == []


def test_the_splits_of_clusters_are_found_by_their_roots() -> None:
    found = groups(("a", "b"))
    largest = 2**64 - 1
    splits = {largest.to_bytes(8, "big"): "test", (1).to_bytes(8, "big"): "train"}
    assert _clusters_of(found, splits) == Clusters(found, {largest: "test", 1: "train"})


def test_rows_with_similar_images_have_one_cluster() -> None:
    rows = [row("a.jpg"), row("x.jpg"), row(""), row("b.jpg"), row("c.jpg"), row("d.jpg")]
    found = groups(("a.jpg", "b.jpg"), ("c.jpg", "d.jpg"))
    one, other = root_of("a.jpg", "b.jpg"), root_of("c.jpg", "d.jpg")
    clustered = list(_with_clusters(batch(*rows), Clusters(found, {other: "test"}), analyzer()))
    assert [found._replace(cluster=NO_CLUSTER) for found in clustered] == rows
    assert [found.cluster for found in clustered] == [
        Cluster(f"similar images {one:016x}", ""),
        NO_CLUSTER,
        NO_CLUSTER,
        Cluster(f"similar images {one:016x}", ""),
        Cluster(f"similar images {other:016x}", "test"),
        Cluster(f"similar images {other:016x}", "test"),
    ]


def test_rows_of_one_group_have_one_cluster() -> None:
    rows = [row("a.jpg", owner="Zoë"), row("b.jpg", owner="Zoë"), row("c.jpg", owner="Bo")]
    clusters = Clusters(groups(("Zoë", "Bo")))
    found = list(_with_clusters(batch(*rows), clusters, analyzer(group_column="owner")))
    name = f"similar images {root_of('Zoë', 'Bo'):016x}"
    assert [one.cluster for one in found] == [Cluster(name, "")] * 3


def test_rows_of_the_base_version_do_not_follow_their_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = root_of("a.jpg", "b.jpg")
    clusters = Clusters(groups(("a.jpg", "b.jpg")), {root: "test"})
    in_base = {"a.jpg": ("train", 0)}
    monkeypatch.setattr(similar_rows, "base_shard_lookup", lambda _: in_base.get)
    found = list(_with_clusters(batch(row("a.jpg"), row("b.jpg")), clusters, analyzer()))
    assert [one.cluster.split for one in found] == ["", "test"]
    assert {one.cluster.name for one in found} == {f"similar images {root:016x}"}


def test_rows_are_separated_by_their_group() -> None:
    refs = [
        (order_of(key, 0), ImageRef(key, "t.csv", 2, key, None, None, (None,))) for key in "axbc"
    ]
    a, x, b, c = refs
    shard = ("train", 0)
    assigned = (shard, OrderedRefs.of(refs))
    *found, others = _separate_similar(assigned, groups(("a", "b"), ("c", "d")))
    of_a, of_c = (root_of(*keys).to_bytes(8, "big") for keys in ("ab", "cd"))
    expected = [(of_a, (shard, a)), (of_a, (shard, b)), (of_c, (shard, c))]
    assert [(one.tag, one.value) for one in found] == [("similar", each) for each in expected]
    assert others == (shard, [x])
    assert list(_separate_similar(assigned, Groups())) == [assigned]
