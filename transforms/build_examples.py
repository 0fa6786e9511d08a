"""Builds examples: reads and decodes each reference's image, and encodes its features."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput
from apache_beam.utils.shared import Shared

from schemas.config import Decode
from schemas.image_settings import ImageSettings
from schemas.plan import Plan
from schemas.records import ImageRef, SerializedExample, StoredImage
from schemas.rejects import RecordError, Reject
from transforms.files import read_bytes
from transforms.functional.examples import build_example
from transforms.functional.images import keep, plain_source, transcode
from transforms.functional.read_ahead import in_groups, map_ahead
from transforms.outcome import REJECTS, Outcome, rejected
from transforms.sandbox import run_apart

_TASK_REFS = 4
"""How many images make one task: handing over each by itself costs a tenth of the throughput."""

_BATCH_REFS = 256


@dataclass(eq=False)
class BuildExamples(beam.PTransform):
    """Builds serialized examples: PCollection[ImageRef] → Outcome(bytes).

    For a plain `beam.io.WriteToTFRecord`, which shuffles the bytes and gives no fixed order.

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
        self._executor = self._shared.acquire(new_executor)

    def process(self, refs: list[ImageRef], plan: Plan) -> Iterator[bytes | TaggedOutput]:
        for built in build_all(refs, plan, self._decode, self._executor):
            yield rejected(built) if isinstance(built, Reject) else built.data


def build_all(
    refs: Iterable[ImageRef], plan: Plan, decode: Decode, executor: Executor
) -> Iterator[SerializedExample | Reject]:
    """Yields the example or the reject of each reference, in order, worked ahead on by threads."""
    if not plan.resolved.schema.has_image:  # nothing to wait for
        return (build_one(ref, plan, decode) for ref in refs)
    tasks = in_groups(refs, _TASK_REFS)
    window = num_threads() + 1
    built = map_ahead(lambda task: build_each(task, plan, decode), tasks, executor, window)
    return chain.from_iterable(built)


def build_each(
    refs: Iterable[ImageRef], plan: Plan, decode: Decode
) -> list[SerializedExample | Reject]:
    """Returns the example or the reject of each reference."""
    return [build_one(ref, plan, decode) for ref in refs]


def build_one(ref: ImageRef, plan: Plan, decode: Decode) -> SerializedExample | Reject:
    """Returns the example of a reference, or its reject."""
    schema = plan.resolved.schema
    try:
        image = read_image(ref, schema.image, decode) if schema.has_image else None
        return build_example(schema, ref, image)
    except RecordError as error:
        return Reject(ref.key, ref.uri, ref.source, error.reason, error.detail)


def read_image(ref: ImageRef, settings: ImageSettings, decode: Decode) -> StoredImage:
    """Returns a reference's image as the record will hold it.

    Plain ones are decoded right here; all others in a process of their own, where they can take as
    long as they like, as much memory, or crash.

    Raises:
        RecordError: if it cannot be had, or is not to be stored.
    """
    data = read_bytes(ref.uri, ref.start, ref.stop)
    source = plain_source(data, settings)
    if source is not None:
        return keep(data, source, settings, decode)
    return run_apart(transcode, data, settings, decode, timeout=settings.timeout)


def num_threads() -> int:
    """Returns how many images to work on at once: one a core."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def new_executor() -> ThreadPoolExecutor:
    """Returns a process's pool of threads."""
    return ThreadPoolExecutor(num_threads(), thread_name_prefix="build")
