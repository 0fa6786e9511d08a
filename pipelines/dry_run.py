"""A dry run: reads, binds and assigns all rows, builds a sample of records, and writes nothing.

It always runs on Beam's in-process runner, because the graph returns the forecast in memory, which
other runners cannot do. The forecast is shown as tables, or as JSON.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from tempfile import TemporaryDirectory
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import AsDict, AsIter, AsSingleton

from recordmill.pipelines.console.terminal import Terminal
from recordmill.pipelines.engines.runners import in_process, make_pipeline, without_step
from recordmill.pipelines.findings import empty_shards, no_rows, skipped, source_findings
from recordmill.pipelines.graph import Conversion, assign_rows, read_rows
from recordmill.pipelines.label_findings import class_names, doubtful_labels
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import RecordmillError, RejectBudgetExceeded, UsageError
from recordmill.schemas.findings import Finding, counted, finding, lines, lost_rows_message
from recordmill.schemas.layout import is_url, split_rank
from recordmill.schemas.manifest import Base
from recordmill.schemas.masking import masked_source, masked_url
from recordmill.schemas.plan import BaseForecast, Forecast, Plan, RejectSum, SampleEstimate
from recordmill.schemas.records import ImageRef, SkippedInput
from recordmill.schemas.rejects import Reason, Reject, reject_lines
from recordmill.transforms.functional.records.framing import frame_size
from recordmill.transforms.functional.sources.text_ranges import is_large
from recordmill.transforms.shards.build_examples import Pools, build_all
from recordmill.transforms.storage.local_files import ImageRootGuard
from recordmill.transforms.workers.process import num_cores
from recordmill.transforms.write_shards import ForecastShards, ShardForecast

SAMPLE_ROWS = 200

# Memory of a run without its references, measured on 2 cores.
_BASE_BYTES = 900 * 10**6

# Memory of each reference in the shards that are being written.
_REF_BYTES = 550

_START_SECONDS = 4.0

# How similar images are treated if all images are compared before shards are written.
_COMPARED_FIRST = ("keep_together", "drop")

_SHOWN_CLASSES = 5

# Results of the last step of the graph by run id; the runner and the caller share a process.
_found: dict[str, Forecast] = {}


def dry_run(job: Conversion, options: PipelineOptions) -> Forecast:
    """Returns the forecast of a conversion, without writing anything.

    `options`: pipeline options of Beam; their runner is not used. Raises RecordmillError if the dry
    run fails.
    """
    run, began = uuid.uuid4().hex, time.monotonic()
    try:
        with TemporaryDirectory(prefix="recordmill-") as folder:
            pipeline = make_pipeline(in_process(options))
            _build(pipeline, replace(job, scratch=folder), run)
            pipeline.run().wait_until_finish()
    except RecordmillError as error:
        raise without_step(error) from error
    except Exception as error:  # engines raise exceptions of any type
        raise RecordmillError(f"the dry run failed: {type(error).__name__}: {error}") from error
    files = (*job.tables.files, *(job.labels.files if job.labels else ()))
    gzipped = tuple(file.path for file in files if file.gzipped and is_large(file))
    found = _found.pop(run)
    found = replace(found, seconds=time.monotonic() - began - found.sample.seconds)
    return replace(found, gzipped_tables=gzipped, base=_of_base(job.analyzer.base, found))


def _of_base(base: Base | None, forecast: Forecast) -> BaseForecast | None:
    if base is None or not base.keeps_records:
        return None
    manifest = base.manifest
    total = sum(len(entry.shards) for entry in manifest.splits.values())
    gaining = sum(shard.index < len(base.shards(shard.split)) for shard in forecast.shards)
    return BaseForecast(manifest.version, manifest.input.records, total - gaining, gaining)


def check(forecast: Forecast, config: ConvertConfig) -> None:
    """Fails as the run would if the forecast already exceeds the reject budget.

    Raises UsageError if the input has no rows, and no base version keeps its records. Raises
    RejectBudgetExceeded if too many rows would be rejected, or rows are lost.
    """
    if not forecast.rows and forecast.base is None:
        raise UsageError(config.no_rows(forecast.skipped))
    if over := config.max_rejects.exceeded(forecast.reasons, forecast.rows):
        if Reason.LOST_ROWS.value in over:
            found = forecast.rejects[Reason.LOST_ROWS.value].examples
            lost = lost_rows_message((masked_source(r.source), r.detail) for r in found)
            raise RejectBudgetExceeded(f"would not be published: {lost}")
        raise RejectBudgetExceeded(
            f"would not be published: at least {forecast.rejected:,} of {forecast.rows:,} rows "
            f"would be rejected, --max_rejects allows {config.max_rejects.describe(over)}. "
            "Fix them, or raise --max_rejects."
        )


def _build(root: beam.Pipeline, job: Conversion, run: str) -> None:
    """Adds the stages of a conversion up to the shuffle, and a step that keeps the forecast."""
    assigned = assign_rows(read_rows(root, job, staging=""), job)
    forecasting = ForecastShards(assigned.plan, SAMPLE_ROWS, job.scratch)
    shards = assigned.rows | "ForecastShards" >> forecasting
    rejects = (*assigned.rejects, shards.rejects) | "AllRejects" >> beam.Flatten()
    _ = (
        root
        | "Once" >> beam.Impulse()
        | "Keep"
        >> beam.Map(
            _keep,
            run,
            AsSingleton(assigned.plan),
            AsIter(shards.good),
            AsDict(
                rejects
                | "ReasonOfReject" >> beam.Map(_with_reason)
                | "SumRejects" >> beam.CombinePerKey(RejectSum.sum_of)
            ),
            AsDict(
                assigned.counts["skipped"]
                | "AllSkippedInputs" >> beam.Flatten()
                | "SumSkippedInputs" >> beam.CombinePerKey(SkippedInput.sum_of)
            ),
            job.config,
            job.stages_images,
        )
    )


def _with_reason(reject: Reject) -> tuple[str, RejectSum]:
    return reject.reason.value, RejectSum(1, [reject])


def _keep(
    _: bytes,
    run: str,
    plan: Plan,
    shards: Iterable[ShardForecast],
    rejects: Mapping[str, RejectSum],
    skipped: Mapping[str, SkippedInput],
    config: ConvertConfig,
    images_are_staged: bool,
) -> None:
    """Computes the forecast, and stores it for the caller of the pipeline."""
    ordered = sorted(shards, key=lambda found: (found[0].split, found[0].index))
    refs = [ref for _, _, sampled in ordered for ref in sampled]
    # Each shard contributed up to SAMPLE_ROWS references; take every n-th of them.
    every = -(-len(refs) // SAMPLE_ROWS) or 1
    if images_are_staged:  # a dry run stages no images, so their bytes cannot be read
        sizes = [frame_size((ref.stop or 0) - (ref.start or 0)) for ref in refs]
        sample = SampleEstimate(0, sum(sizes) // max(1, len(sizes)), 0.0, (), Counter())
    else:
        sample = _build_sample(refs[::every], plan, config)
    counts, remote = tuple(found[0] for found in ordered), sum(found[1] for found in ordered)
    by_reason, by_kind = dict(sorted(rejects.items())), dict(sorted(skipped.items()))
    _found[run] = Forecast(plan, counts, by_reason, sample, remote, skipped=by_kind)


def _build_sample(refs: Sequence[ImageRef], plan: Plan, config: ConvertConfig) -> SampleEstimate:
    size, rejects, images = 0, list[Reject](), Counter[str]()
    began = time.monotonic()
    for built in build_all(refs, plan, config, Pools(), ImageRootGuard(config.guard)):
        if isinstance(built, Reject):
            rejects.append(built)
            continue
        size += frame_size(built.size)
        images.update([built.treatment] if built.treatment else [])
    return SampleEstimate(len(refs), size, time.monotonic() - began, tuple(rejects), images)


def show_forecast(terminal: Terminal, forecast: Forecast, config: ConvertConfig) -> None:
    """Prints the shards, rejects, time and memory of a forecast."""
    document = as_json(forecast, config)
    heads = ("split", "records", "shards", "MiB", "MiB per shard")
    rows = []
    for name in sorted(document["splits"], key=split_rank):
        split = document["splits"][name]
        sizes = [size / 2**20 for size in split["shard_bytes"]]
        spread = f"{min(sizes):,.1f} to {max(sizes):,.1f}" if len(sizes) > 1 else f"{sizes[0]:,.1f}"
        counts = (f"{split['records']:,}", f"{split['shards']:,}", f"{sum(sizes):,.1f}")
        rows.append((name, *counts, spread))
    terminal.table(heads, rows, right=range(1, len(heads)))
    terminal.lines(_lines(document, forecast, config))


def as_json(forecast: Forecast, config: ConvertConfig) -> dict[str, Any]:
    """Returns a forecast as a JSON document, in which sizes, times and memory are estimates."""
    sample = forecast.sample
    converted = [shard.converted for shard in forecast.shards]
    decodings = 2 if config.near_duplicates in _COMPARED_FIRST else 1
    building = sum(converted) * decodings * sample.seconds / (sample.rows or 1)
    # A run reads and assigns the rows as the dry run did.
    seconds = round(_START_SECONDS + forecast.seconds + building, 1)
    return {
        "state": "planned",
        "directory": config.directory,
        "rows": forecast.rows,
        "skipped": {kind: found.number for kind, found in forecast.skipped.items()},
        "skipped_names": {kind: list(found.names) for kind, found in forecast.skipped.items()},
        "source": forecast.plan.source.model_dump(),
        "splits": {split: _split(forecast, split) for split in forecast.plan.shards},
        "classes": {
            feature: {"names": list(names), "counts": _class_counts(forecast, feature)}
            for feature, names in forecast.plan.resolved.classes.items()
        },
        "rejected": {
            reason: {"rows": found.count, "examples": [_reject(r) for r in found.examples]}
            for reason, found in forecast.rejects.items()
        },
        "tried": {
            "rows": sample.rows,
            "rejected": [_reject(reject) for reject in sample.rejects],
            "images": dict(sorted(sample.images.items())),
        },
        "seconds": seconds if sample.rows else None,
        "memory_bytes": _BASE_BYTES + _REF_BYTES * num_cores() * max(converted, default=0),
        "requests": _requests(forecast, config),
        "base": asdict(forecast.base) if forecast.base else None,
        "findings": [found.model_dump(mode="json") for found in _findings(forecast, config)],
    }


def _split(forecast: Forecast, split: str) -> dict[str, Any]:
    filled = {shard.index: shard for shard in forecast.shards if shard.split == split}
    count, size = forecast.plan.shards[split], forecast.sample.bytes_per_row
    records = {index: shard.records for index, shard in filled.items()}
    rows = {index: shard.converted for index, shard in filled.items()}
    return {
        "records": forecast.records(split),
        "shards": count,
        "shard_records": [records.get(index, 0) for index in range(count)],
        "shard_bytes": [round(size * rows.get(index, 0)) for index in range(count)],
    }


def _class_counts(forecast: Forecast, feature: str) -> dict[int, int]:
    total = Counter[int]()
    for shard in forecast.shards:
        total.update(shard.classes.get(feature, {}))
    return dict(sorted(total.items()))


def _requests(forecast: Forecast, config: ConvertConfig) -> dict[str, int]:
    """Returns the number of requests to object stores, without those for the tables."""
    shards = sum(forecast.plan.shards.values()) if is_url(config.directory) else 0
    # A shard is two files, or three with idx/; verification reads the first two again.
    return {"get": forecast.remote_images + 2 * shards, "put": (2 + config.index) * shards}


def _lines(document: dict[str, Any], forecast: Forecast, config: ConvertConfig) -> Iterator[str]:
    if base := forecast.base:
        yield (
            f"base {base.version}: {base.records:,} records stay; {base.linked:,} of its shards "
            f"would be linked, {base.rewritten:,} rewritten; other numbers are of new rows"
        )
    yield from lines(_findings(forecast, config))
    yield from _class_lines(document)
    yield from _reject_lines(document)
    requests = document["requests"]
    megabytes = document["memory_bytes"] / 10**6
    seconds = document["seconds"]
    time = "" if seconds is None else f"{seconds:,.0f} s and "
    yield f"about {time}{megabytes:,.0f} MB of memory with DirectRunner here"
    if any(requests.values()):
        yield f"object stores: {requests['get']:,} GETs, {requests['put']:,} PUTs"
    yield f"dry run: nothing was written; a run would write {document['directory']}"


def _findings(forecast: Forecast, config: ConvertConfig) -> Iterator[Finding]:
    plan, schema = forecast.plan, forecast.plan.resolved.schema
    yield from source_findings(plan.source)
    found = {kind: one for kind, one in forecast.skipped.items() if one.number > 0}
    numbers = {kind: one.number for kind, one in found.items()}
    names = {kind: one.names for kind, one in found.items()}
    yield from skipped(numbers, names, forecast.rows, vars(config), schema)
    classes, records = plan.resolved.classes, sum(shard.records for shard in forecast.shards)
    yield from class_names(classes, plan.source, vars(config))
    labels = {name: Counter(_class_counts(forecast, name)) for name in schema.class_features}
    yield from doubtful_labels(schema, classes, labels, records, config.columns)
    if forecast.base is None:  # the records of a base version are not in these counts
        shards = {split: _split(forecast, split)["shard_records"] for split in plan.shards}
        yield from empty_shards(shards)
    elif not forecast.rows:
        yield no_rows(forecast.base.version)
    if config.near_duplicates in _COMPARED_FIRST:
        text = (
            f"--near_duplicates {config.near_duplicates}: a run decodes every image twice, which "
            "the time includes; the rows that it moves or drops are not known before"
        )
        yield finding("info", "compared_first", text)
    for path in map(masked_url, forecast.gzipped_tables):
        text = f"{path}: one core reads this table, because gzip cannot be read in byte ranges"
        hint = "Decompress it, or split it into several files"
        yield finding("note", "gzipped_table", text, hint, examples=(path,))


def _class_lines(document: dict[str, Any]) -> Iterator[str]:
    for feature, found in document["classes"].items():
        names, counts = found["names"], Counter(found["counts"])
        labels = [
            f"{names[label] if names else label} {count:,}"
            for label, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        ]
        shown = ", ".join(labels[:_SHOWN_CLASSES]) + " …" * (len(labels) > _SHOWN_CLASSES)
        yield f"{feature}: {counted(len(names) or len(labels), 'class')}: {shown or 'none'}"


def _reject_lines(document: dict[str, Any]) -> Iterator[str]:
    for reason, found in document["rejected"].items():
        yield f"would be rejected: {found['rows']:,} {reason}"
        yield from reject_lines(found["examples"])
    tried = document["tried"]
    images = ", ".join(f"{count:,} {how}" for how, count in tried["images"].items())
    failed = len(tried["rejected"])
    part = f", {failed:,} would be rejected" if failed else ""
    if failed and tried["rows"] < (rows := _assigned_rows(document)):
        part += f": about {round(failed * rows / tried['rows']):,} of all"
    if tried["rows"]:
        yield f"tried {counted(tried['rows'], 'row')}{part}{': ' if images else ''}{images}"
    elif document["rows"] and not _assigned_rows(document):
        yield "no image was tried: every row would be rejected before its image is read"
    elif document["rows"]:
        yield "no image was tried: a run first copies the embedded images to staging files"
    yield from reject_lines(tried["rejected"][:_SHOWN_CLASSES])


def _assigned_rows(document: dict[str, Any]) -> int:
    """Returns the number of rows that were not rejected while the tables were read."""
    rejected: int = sum(found["rows"] for found in document["rejected"].values())
    return int(document["rows"]) - rejected


def _reject(reject: Reject) -> dict[str, str]:
    return {
        "key": reject.key,
        "source": reject.source,
        "reason": reject.reason.value,
        "detail": reject.detail,
    }
