"""BuildExamples: references become serialized examples, for any sink."""

from __future__ import annotations

from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.records import ImageRef
from recordmill.schemas.rejects import Reason, Reject
from recordmill.transforms.build_examples import BuildExamples, Fetched, fetch
from recordmill.transforms.shards.checkpoints import Staging
from recordmill.transforms.write_shards import WriteShards
from tests.beam.direct import TABLE, config, direct_pipeline, example, plan, records, ref, told
from tests.images import jpeg, png


@pytest.fixture
def refs(tmp_path: Path) -> list[ImageRef]:
    """Twenty pictures, the last of them a text."""
    for i in range(19):
        (tmp_path / f"{i}.jpg").write_bytes(jpeg(seed=i) if i % 2 else png(seed=i))
    (tmp_path / "19.jpg").write_bytes(b"no picture")
    return [ref(f"{i}.jpg", i + 2, tmp_path, i % 2) for i in range(20)]


@pytest.fixture
def expected(refs: list[ImageRef], tmp_path: Path) -> list[bytes]:
    """The examples, made by TensorFlow."""
    return [
        example(f"{i}.jpg", (tmp_path / f"{i}.jpg").read_bytes(), i % 2)
        for i in range(len(refs) - 1)
    ]


@pytest.mark.parametrize("decode", ["full", "header"])
def test_each_reference_becomes_an_example_or_a_reject(
    decode: str, refs: list[ImageRef], expected: list[bytes]
) -> None:
    with direct_pipeline() as p:
        settled = p | "Plan" >> beam.Create([plan(train=1)])
        built = p | "Refs" >> beam.Create(refs) | BuildExamples(settled, decode)
        assert_that(built.good, equal_to(expected), label="Examples")
        rejects = [("19.jpg", refs[19].uri, f"{TABLE}:21", "not_an_image", "")]
        assert_that(told(built.rejects, "Tell"), equal_to(rejects), label="Rejects")


def test_a_reference_may_be_a_range_of_a_file(tmp_path: Path) -> None:
    picture = png(seed=5)
    (tmp_path / "pictures.bin").write_bytes(b"before" + picture + b"behind")
    whole = ref("pictures.bin", 2, tmp_path)
    part = whole._replace(start=6, stop=6 + len(picture))
    with direct_pipeline() as p:
        settled = p | "Plan" >> beam.Create([plan(train=1)])
        built = p | "Refs" >> beam.Create([part]) | BuildExamples(settled)
        assert_that(built.good, equal_to([example("pictures.bin", picture)]))


def test_before_beams_own_sink_the_records_are_those_of_write_shards(
    refs: list[ImageRef], expected: list[bytes], tmp_path: Path
) -> None:
    prefix = str(tmp_path / "plain" / "birds")
    with direct_pipeline() as p:
        settled = p | "Plan" >> beam.Create([plan(train=3)])
        built = p | "Refs" >> beam.Create(refs) | BuildExamples(settled)
        _ = built.good | beam.io.WriteToTFRecord(prefix, num_shards=2)
        placed = [(("train", i % 3), (bytes([i]), one)) for i, one in enumerate(refs)]
        settings, target = config(tmp_path), str(tmp_path / "planned")
        _ = (
            p
            | "Placed" >> beam.Create(placed)
            | WriteShards(settings, Staging(f"{target}.staging", target), settled)
        )
    plain = [r for shard in (tmp_path / "plain").glob("birds-*") for r in records(shard)]
    planned = [r for shard in (tmp_path / "planned").glob("birds-*") for r in records(shard)]
    assert sorted(plain) == sorted(planned) == sorted(expected)


def test_files_are_fetched_and_what_cannot_be_is_a_reject(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"image")
    (tmp_path / "a-mask.png").write_bytes(b"mask")
    mask, gone = str(tmp_path / "a-mask.png"), str(tmp_path / "gone.png")
    row = ref("a.png", 2, tmp_path)
    for known, found in (
        (row, Fetched(row, b"image", None)),
        (row._replace(start=1, stop=3), Fetched(row._replace(start=1, stop=3), b"ma", None)),
        (row._replace(mask_uri=mask), Fetched(row._replace(mask_uri=mask), b"image", b"mask")),
    ):
        assert fetch(known) == found
    missing = "No such file or directory"
    for broken, detail in (
        (row._replace(uri=gone), f"{gone}: {missing}"),
        (row._replace(mask_uri=gone), f"mask {gone}: {missing}"),
    ):
        assert fetch(broken) == Reject.of(broken, Reason.READ_ERROR, detail)
