"""Findings on the input: how it was read, what was skipped, and the base version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from recordmill.pipelines.findings.outcome import Outcome
from recordmill.schemas import layout
from recordmill.schemas.findings import Finding, Severity, counted, some
from recordmill.schemas.records import OUTSIDE_SAMPLE, UNMATCHED_LABELS, UNUSED_IMAGES
from recordmill.transforms.functional.sources.tree import NO_SPLIT, SEVERAL_SPLITS
from recordmill.transforms.functional.sources.voc import UNANNOTATED

# Kinds of counted inputs that deserve attention, although their rows were read. The kind is worded
# so that its number can precede it: "images whose boxes …".
SEVERITIES: dict[str, Severity] = {
    NO_SPLIT: "warning",
    UNANNOTATED: "warning",
    SEVERAL_SPLITS: "warning",
}


def source_findings(outcome: Outcome) -> Iterator[Finding]:
    """Yields the descriptions of recognized inputs, and the findings of their probes."""
    source = outcome.manifest.source
    if source is not None:
        yield from recognized(source.recognized)
        yield from source.findings


def recognized(texts: Sequence[str]) -> Iterator[Finding]:
    """Yields the descriptions of recognized inputs."""
    return (Finding(kind="recognized", severity="info", text=text) for text in texts)


def dropped_rows(outcome: Outcome) -> Iterator[Finding]:
    """Yields the number of rows that `--deduplicate` or `--near_duplicates` dropped."""
    if number := outcome.manifest.input.duplicates:
        is_similar = outcome.manifest.config.get("near_duplicates") == "drop"
        what = f"{number:,} rows with the image of another row"
        text = f"dropped: {what}{', or a similar one' if is_similar else ''}"
        yield Finding(kind="dropped_rows", severity="info", text=text, figures={"rows": number})


def skipped_inputs(outcome: Outcome) -> Iterator[Finding]:
    """Yields each kind of skipped input, and the size of a sample."""
    counts, sample = outcome.manifest.input, outcome.manifest.config.get("sample")
    lists = {
        UNMATCHED_LABELS: layout.UNMATCHED_LABELS,
        UNUSED_IMAGES: layout.UNMATCHED_IMAGES,
    }
    return skipped(counts.asides, outcome.skipped_names, counts.rows, sample, lists)


def skipped(
    numbers: Mapping[str, int],
    names: Mapping[str, Sequence[str]],
    rows: int,
    sample: str | int | None,
    lists: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Finding]:
    """Yields each kind of skipped input, by number and first names, and the size of a sample.

    `rows` were read, or are in the sample; `lists` has the folders with lists of some kinds.

    >>> found = skipped({OUTSIDE_SAMPLE: 993, "files": 2}, {"files": ["a", "b"]}, 7, "1%")
    >>> [finding.text for finding in found]
    ['sample 1%: 7 of 1,000 rows', 'skipped: files (2: a, b)']
    """
    if sample is not None:
        total = rows + numbers.get(OUTSIDE_SAMPLE, 0)
        text = f"sample {sample}: {rows:,} of {counted(total, 'row')}"
        yield Finding(
            kind="sample", severity="info", text=text, figures={"rows": rows, "of": total}
        )
    for what, number in numbers.items():
        if what == OUTSIDE_SAMPLE:
            continue
        named, severity = tuple(names.get(what, ())), SEVERITIES.get(what, "info")
        shown = some(named, number, len(named)) if named else ""
        if severity == "info":
            listed = f", listed in {lists[what]}/" if what in lists else ""
            text = f"skipped: {what} ({number:,}{f': {shown}' if shown else listed})"
        else:
            text = f"{number:,} {what}{f' ({shown})' if shown else ''}"
        yield Finding(
            kind="skipped" if severity == "info" else "counted",
            severity=severity,
            text=text,
            figures={"number": number},
            examples=named,
        )


def encoded_images(outcome: Outcome) -> Iterator[Finding]:
    """Yields the number of images that were encoded as JPEG, with loss."""
    settings = outcome.manifest.dataset_schema.image
    number = sum(n for how, n in outcome.manifest.images.items() if " to jpeg" in how)
    if number:
        text = f"encoded: {counted(number, 'image')} as JPEG with quality {settings.quality}"
        if settings.format != "jpeg":
            text += "; --image format=png resizes without further loss"
        yield Finding(kind="encoded", severity="info", text=text, figures={"images": number})


def changed_values(outcome: Outcome) -> Iterator[Finding]:
    """Yields the numbers of images whose samples were mapped to a range, or reduced to 8 bits."""
    manifest, window = outcome.manifest, outcome.manifest.dataset_schema.image.window or (0, 0)
    texts: dict[str, tuple[str, Severity]] = {
        "window": ("mapped by the window {:g}:{:g}", "info"),
        "rescaled per image": ("rescaled per image, so that equal values differ", "note"),
        "8 bits": ("reduced to 8 bits per sample", "info"),
    }
    for change, (text, severity) in texts.items():
        number = sum(n for how, n in manifest.images.items() if change in how.split(", "))
        if number:
            verb = "image is" if number == 1 else "images are"
            text = f"{number:,} {verb} {text.format(*window)}"
            yield Finding(kind="values", severity=severity, text=text, figures={"images": number})


def base_version(outcome: Outcome) -> Iterator[Finding]:
    """Yields how the records differ from those of the base version."""
    manifest, base = outcome.manifest, outcome.manifest.base
    if base is None:
        return
    kept, new, gone = (sum(counts.values()) for counts in (base.kept, base.new, base.gone))
    is_same = not new + gone and manifest.config["append"]
    # A row that is neither rejected nor dropped nor unchanged is one of a record that was kept.
    if is_same and manifest.input.rows == manifest.input.converted:
        yield no_rows(base.version)
    shards = sum(len(split.shards) for split in manifest.splits.values())
    text = (
        f"base {base.version}: {kept:,} records kept, {new:,} new, {gone:,} gone; "
        f"{base.shards_unchanged:,} of {shards:,} shards are unchanged "
        f"({outcome.linked:,} not even read)"
    )
    figures = {"kept": kept, "new": new, "gone": gone, "linked": outcome.linked}
    yield Finding(kind="base_version", severity="info", text=text, figures=figures)


def no_rows(base: str) -> Finding:
    """Returns the finding of an increment without rows."""
    text = f"the input has no rows, so the records are those of {base}"
    return Finding(kind="no_rows", severity="note", text=text)
