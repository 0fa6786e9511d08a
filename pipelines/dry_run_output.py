"""Shows what a conversion would do: a sheet for people, or JSON for machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from recordmill.pipelines.console.terminal import Terminal
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.forecast import Forecast
from recordmill.schemas.layout import is_url
from recordmill.schemas.rejects import Reject

_BASE_BYTES = 900 * 10**6
_ROW_BYTES = 1_100
"""What a run takes, and what DirectRunner holds of each row in its one shuffle: as measured on
one machine of two cores, and so typical at best."""

_START_SECONDS = 5.0
_SHOWN_CLASSES = 5


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
    told = document["seconds"]
    time = "" if told is None else f"{told:,.0f} s and "
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
