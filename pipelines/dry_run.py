"""A dry run: reads, binds and places every row, tries some images, and writes nothing at all.

Runs on Beam's in-process runner whichever the flags name: what it finds has to come back here, and
no other runner can bring it without a file. The forecast is shown as tables for people, or as JSON.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import AsDict, AsIter, AsSingleton

from recordmill.pipelines.console.terminal import Terminal
from recordmill.pipelines.convert import Conversion, read_rows
from recordmill.pipelines.engines.runners import in_process, make_pipeline
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import RecordmillError, RejectBudgetExceeded, UsageError
from recordmill.schemas.layout import is_url
from recordmill.schemas.masking import masked_source
from recordmill.schemas.plan import Forecast, Plan, RejectSum, SampleEstimate
from recordmill.schemas.records import ImageRef
from recordmill.schemas.rejects import Reason, Reject, lost_rows_message
from recordmill.transforms.analyze_rows import AnalyzeRows
from recordmill.transforms.assign_shards import AssignShards, RejectDuplicateKeys
from recordmill.transforms.functional.records.framing import FRAME_BYTES
from recordmill.transforms.read_rows import BindRows
from recordmill.transforms.reconcile_counts import SumRejects
from recordmill.transforms.shards.build_examples import Pools, build_all
from recordmill.transforms.storage.local_files import ImageRootGuard
from recordmill.transforms.write_shards import ForecastShards, ShardForecast

SAMPLE_ROWS = 200
_BASE_BYTES = 900 * 10**6
_ROW_BYTES = 1_100
"""What a run takes, and what DirectRunner holds of each row in its one shuffle: as measured on
one machine of two cores, and so typical at best."""

_START_SECONDS = 5.0
_SHOWN_CLASSES = 5

_found: dict[str, Forecast] = {}
"""What the graph's last step leaves for the caller; one process runs both."""


def dry_run(job: Conversion, options: PipelineOptions) -> Forecast:
    """Returns what a conversion would do; nothing is written anywhere.

    Args:
        job: the conversion.
        options: Beam's own; the runner that they name is not used.

    Raises:
        RunError: if it cannot come to its end.
    """
    run = uuid.uuid4().hex
    try:
        pipeline = make_pipeline(in_process(options))
        _build(pipeline, job, run)
        pipeline.run().wait_until_finish()
    except RecordmillError:
        raise
    except Exception as error:  # an engine raises what it likes
        raise RecordmillError(f"the dry run failed: {type(error).__name__}: {error}") from error
    return _found.pop(run)


def check(forecast: Forecast, config: ConvertConfig) -> None:
    """Rejects, as the run itself would, what is known already to be over the reject budget.

    Raises:
        UsageError: if there is no row at all.
        RejectBudgetExceeded: if too many rows would be rejected, or rows are lost.
    """
    if not forecast.rows:
        raise UsageError(f"the input has no rows: {', '.join(config.inputs)}")
    if over := config.max_rejects.exceeded(forecast.reasons, forecast.rows):
        if Reason.LOST_ROWS.value in over:
            found = forecast.rejects[Reason.LOST_ROWS.value].examples
            lost = lost_rows_message((masked_source(r.source), r.detail) for r in found)
            raise RejectBudgetExceeded(f"would not be published: {lost}")
        raise RejectBudgetExceeded(
            f"would not be published: at least {forecast.rejected:,} of {forecast.rows:,} rows "
            f"would be rejected, --max_rejects allows {config.max_rejects.describe(over)}: "
            "fix them, or raise --max_rejects"
        )


def _build(root: beam.Pipeline, job: Conversion, run: str) -> None:
    """Adds the stages of a conversion up to the shuffle, and a look at what came of them."""
    config, analyzer = job.config, job.analyzer
    read, rows = read_rows(root, job, staging="")  # Row
    plan = rows | "AnalyzeRows" >> AnalyzeRows(analyzer)
    bound = read.good | "BindRows" >> BindRows(analyzer.binding, plan)  # ImageRef
    keyed = bound.good | "RejectDuplicateKeys" >> RejectDuplicateKeys(
        config, sequences=analyzer.schema.sequence is not None
    )
    assigned = keyed.good | "AssignShards" >> AssignShards(
        plan, analyzer.ranges, config.seed, analyzer.base
    )
    shards = assigned.rows | "ForecastShards" >> ForecastShards(plan, SAMPLE_ROWS)
    rejects = [
        read.rejects,
        bound.rejects,
        keyed.rejects,
        shards.rejects,
    ] | "AllRejects" >> beam.Flatten()
    _ = (
        root
        | "Once" >> beam.Create([run])
        | "Keep"
        >> beam.Map(
            _keep,
            AsSingleton(plan),
            AsIter(shards.good),
            AsDict(rejects | "SumRejects" >> SumRejects()),
            config,
            job.stages_images,
        )
    )


def _keep(
    run: str,
    plan: Plan,
    shards: Iterable[ShardForecast],
    rejects: Mapping[str, RejectSum],
    config: ConvertConfig,
    unaddressed: bool,
) -> None:
    ordered = sorted(shards, key=lambda found: (found[0].split, found[0].index))
    sample = [ref for _, _, refs in ordered for ref in refs]
    every = -(-len(sample) // SAMPLE_ROWS) or 1
    trial = estimate_size(sample) if unaddressed else try_rows(sample[::every], plan, config)
    counts, remote = tuple(found[0] for found in ordered), sum(found[1] for found in ordered)
    _found[run] = Forecast(plan, counts, dict(sorted(rejects.items())), trial, remote)


def estimate_size(refs: Sequence[ImageRef]) -> SampleEstimate:
    """Returns how large records are, by what the tables say of their images, without any trial."""
    sizes = [FRAME_BYTES + (ref.stop or 0) - (ref.start or 0) for ref in refs]
    return SampleEstimate(0, sum(sizes) // max(1, len(sizes)), 0.0, (), Counter())


def try_rows(refs: Sequence[ImageRef], plan: Plan, config: ConvertConfig) -> SampleEstimate:
    """Returns what becomes of some rows: each is made into an example, as the run itself would."""
    size, rejects, images = 0, list[Reject](), Counter[str]()
    began = time.monotonic()
    for built in build_all(refs, plan, config.decode, Pools(), guard=ImageRootGuard(config.guard)):
        if isinstance(built, Reject):
            rejects.append(built)
            continue
        size += built.size + FRAME_BYTES
        images.update([built.treatment] if built.treatment else [])
    return SampleEstimate(len(refs), size, time.monotonic() - began, tuple(rejects), images)


def show_forecast(terminal: Terminal, forecast: Forecast, config: ConvertConfig) -> None:
    """Prints what would be written where, what would be rejected, and what it would take."""
    document = as_json(forecast, config)
    heads = ("split", "records", "shards", "MiB", "MiB a shard")
    rows = []
    for name, split in document["splits"].items():
        sizes = [size / 2**20 for size in split["shard_bytes"]]
        spread = f"{min(sizes):,.1f} to {max(sizes):,.1f}" if len(sizes) > 1 else f"{sizes[0]:,.1f}"
        counts = (f"{split['records']:,}", f"{split['shards']:,}", f"{sum(sizes):,.1f}")
        rows.append((name, *counts, spread))
    terminal.table(heads, rows, right=range(1, len(heads)))
    terminal.lines(_lines(document, forecast))


def as_json(forecast: Forecast, config: ConvertConfig) -> dict[str, Any]:
    """Returns the same as a document; sizes, times and memory are estimates."""
    trial, rows = forecast.trial, sum(shard.converted for shard in forecast.shards)
    seconds = _START_SECONDS + rows * trial.seconds / trial.rows if trial.rows else None
    return {
        "state": "planned",
        "directory": config.directory,
        "rows": forecast.rows,
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
            "rows": trial.rows,
            "rejected": [_reject(reject) for reject in trial.rejects],
            "images": dict(sorted(trial.images.items())),
        },
        "seconds": None if seconds is None else round(seconds, 1),
        "memory_bytes": _BASE_BYTES + _ROW_BYTES * forecast.rows,
        "requests": _requests(forecast, config),
    }


def _split(forecast: Forecast, split: str) -> dict[str, Any]:
    filled = {shard.index: shard for shard in forecast.shards if shard.split == split}
    count, size = forecast.plan.shards[split], forecast.trial.bytes_per_row
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
    """Returns how many requests to object stores the run would make, not counting the tables."""
    shards = sum(forecast.plan.shards.values()) if is_url(config.directory) else 0
    return {"get": forecast.remote + 2 * shards, "put": (2 + config.index) * shards}


def _lines(document: dict[str, Any], forecast: Forecast) -> Iterator[str]:
    yield from _class_lines(document)
    yield from _reject_lines(document)
    requests, megabytes = document["requests"], document["memory_bytes"] / 10**6
    reported = document["seconds"]
    time = "" if reported is None else f"{reported:,.0f} s and "
    yield f"about {time}{megabytes:,.0f} MB of memory with DirectRunner, as on a typical machine"
    if any(requests.values()):
        yield f"object stores: {requests['get']:,} GETs, {requests['put']:,} PUTs"
    yield f"dry run: nothing was written; a run would write {document['directory']}"


def _class_lines(document: dict[str, Any]) -> Iterator[str]:
    for feature, found in document["classes"].items():
        names, counts = found["names"], Counter(found["counts"])
        labels = [
            f"{names[label] if names else label} {count:,}"
            for label, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        ]
        shown = ", ".join(labels[:_SHOWN_CLASSES]) + " …" * (len(labels) > _SHOWN_CLASSES)
        yield f"{feature}: {len(names) or len(labels):,} classes: {shown}"


def _reject_lines(document: dict[str, Any]) -> Iterator[str]:
    for reason, found in document["rejected"].items():
        yield f"would be rejected: {found['rows']:,} {reason}"
        yield from map(_example_line, found["examples"])
    tried = document["tried"]
    images = ", ".join(f"{count:,} {how}" for how, count in tried["images"].items())
    failed = len(tried["rejected"])
    part = f", {failed:,} would be rejected" if failed else ""
    if failed and tried["rows"] < (rows := _placed(document)):
        part += f": about {round(failed * rows / tried['rows']):,} of all"
    if tried["rows"]:
        yield f"tried {tried['rows']:,} rows{part}{': ' if images else ''}{images}"
    else:
        yield "no image was tried: they are inside the input, and a run takes them out first"
    yield from map(_example_line, tried["rejected"][:_SHOWN_CLASSES])


def _placed(document: dict[str, Any]) -> int:
    """Returns how many rows are not rejected for what the table says."""
    rejected: int = sum(found["rows"] for found in document["rejected"].values())
    return int(document["rows"]) - rejected


def _example_line(reject: dict[str, str]) -> str:
    return f"  {reject['source']}  {reject['reason']}  {reject['detail']}"


def _reject(reject: Reject) -> dict[str, str]:
    return {
        "key": reject.key,
        "source": reject.source,
        "reason": reject.reason.value,
        "detail": reject.detail,
    }
