"""A dry run: reads, binds and places every row, tries some images, and writes nothing at all.

Runs on Beam's in-process runner whichever the flags name: what it finds has to come back here, and
no other runner can bring it without a file.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import AsDict, AsIter, AsSingleton

from recordmill.pipelines.convert import Conversion, can_part_keys, read_rows
from recordmill.pipelines.engines.runners import in_process, make_pipeline
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import RejectBudgetExceeded, RunError, UsageError
from recordmill.schemas.forecast import Forecast, RejectSum, Trial
from recordmill.schemas.masking import masked_source
from recordmill.schemas.plan import Plan
from recordmill.schemas.records import ImageRef
from recordmill.schemas.rejects import Reason, Reject, lost_rows_message
from recordmill.transforms.analyze_rows import SurveyRows
from recordmill.transforms.assign_shards import PlaceRecords
from recordmill.transforms.bind_rows import BindRows
from recordmill.transforms.build_examples import Pools, build_all
from recordmill.transforms.forecast_shards import ForecastShards, ShardForecast, SumRejects
from recordmill.transforms.functional.records.framing import FRAME_BYTES
from recordmill.transforms.storage.image_root import Fence

TRIED_ROWS = 200

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
    except RunError:
        raise
    except Exception as error:  # an engine raises what it likes
        raise RunError(f"the dry run failed: {type(error).__name__}: {error}") from error
    return _found.pop(run)


def check(forecast: Forecast, config: ConvertConfig) -> None:
    """Refuses, as the run itself would, what is known already to be over the reject budget.

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
            f"would be rejected, --max_rejects allows {config.max_rejects.told(over)}: "
            "mend them, or raise --max_rejects"
        )


def _build(root: beam.Pipeline, job: Conversion, run: str) -> None:
    """Adds the stages of a conversion up to the shuffle, and a look at what came of them."""
    config, surveyor = job.config, job.surveyor
    read, rows = read_rows(root, job, staging="")  # Row
    surveyed = rows | "SurveyRows" >> SurveyRows(surveyor, parted=can_part_keys(config))
    bound = read.good | "BindRows" >> BindRows(surveyor.binding, surveyed.plan)  # ImageRef
    placement = bound.good | "PlaceRecords" >> PlaceRecords(
        surveyed, surveyor.ranges, config.seed, surveyor.base
    )
    shards = placement.placed | "ForecastShards" >> ForecastShards(surveyed.plan, TRIED_ROWS)
    rejects = [
        read.rejects,
        bound.rejects,
        placement.rejects,
        shards.rejects,
    ] | "AllRejects" >> beam.Flatten()
    _ = (
        root
        | "Once" >> beam.Create([run])
        | "Keep"
        >> beam.Map(
            _keep,
            AsSingleton(surveyed.plan),
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
    every = -(-len(sample) // TRIED_ROWS) or 1
    trial = weigh(sample) if unaddressed else try_out(sample[::every], plan, config)
    counts, remote = tuple(found[0] for found in ordered), sum(found[1] for found in ordered)
    _found[run] = Forecast(plan, counts, dict(sorted(rejects.items())), trial, remote)


def weigh(refs: Sequence[ImageRef]) -> Trial:
    """Returns how large records are, by what the tables tell of their images, without any trial."""
    sizes = [FRAME_BYTES + (ref.stop or 0) - (ref.start or 0) for ref in refs]
    return Trial(0, sum(sizes) // max(1, len(sizes)), 0.0, (), Counter())


def try_out(refs: Sequence[ImageRef], plan: Plan, config: ConvertConfig) -> Trial:
    """Returns what becomes of some rows: each is made into an example, as the run itself would."""
    size, rejects, images = 0, list[Reject](), Counter[str]()
    began = time.monotonic()
    for built in build_all(refs, plan, config.decode, Pools(), fence=Fence(config.fence)):
        if isinstance(built, Reject):
            rejects.append(built)
            continue
        size += built.size + FRAME_BYTES
        images.update([built.treatment] if built.treatment else [])
    return Trial(len(refs), size, time.monotonic() - began, tuple(rejects), images)
