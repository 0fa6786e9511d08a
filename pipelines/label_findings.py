"""Findings on class names and ids, which are known before a run and after it."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from recordmill.schemas.features import AS_NUMBERS, Schema
from recordmill.schemas.findings import Finding, Severity, counted, finding, some
from recordmill.schemas.plan import SourceEntry

# What programs write as text for a missing value.
_NO_VALUES = re.compile(r"(?i)nan|none|null|<na>|n/a|nat|[?-]|#(n/a|ref!|name\?|value!|div/0!)")
_ALIKE = "class names that differ only in case, blanks, hyphens, quotes or Unicode form"
_MISSING = "class names that look like a missing value"
_NEGATIVE = "class ids below 0, which default: -1 in a schema declares as no label"
_JOINED = 'class names like lists: if so, write cat|dog or ["cat", "dog"], for --schema multi_label'
# Lists, objects of JSON, and labels with boxes, as in Kaggle's column PredictionString.
_LIST = re.compile(r"(?as)[\[{].*[\]}]|\(.*,.*\)|.*[|;].*|\d+(?:[, ]+\d+)+|\S+(?: -?[\d.]+){4}.*")
# Names of columns with several labels.
_OF_LISTS = re.compile(
    r"(?i)(^|[\W_])(tags?|labels|attributes|categories|classes|keywords|topics)$"
)
_IDS = "ids, write all of them as plain integers (7, not 07 or text), or set --classes."
_FRACTION = re.compile(r"[+-]?\d+\.0*[1-9]", re.ASCII)
_NUMBER = re.compile(r"(?ai)[+-]?\d+(?:\.\d*)?(?:e[+-]?\d+)?")


def class_names(
    classes: Mapping[str, Sequence[str]], source: SourceEntry, options: Mapping[str, Any]
) -> Iterator[Finding]:
    """Yields ids that are not those of the source, and names that are numbers, by feature."""
    is_set = options.get("classes") or options.get("num_classes")
    for feature, names in classes.items():
        yield from _class_ids(feature, names, source)
        # One input has ids with names, and another may have ids without names.
        known = source.class_ids.get(feature, frozenset(names if is_set else ()))
        numbers = {n: i for i, n in enumerate(names) if _NUMBER.fullmatch(n) and n not in known}
        if numbers:
            other = [(name, id_) for name, id_ in numbers.items() if name != str(id_)]
            ids = f", and the id of {other[0][0]!r} is {other[0][1]}" if other else ""
            share = f"{len(numbers):,} of the {len(names):,}"
            is_quantity = len(numbers) == len(names) and any(map(_FRACTION.match, numbers))
            severity: Severity = "warning" if is_quantity else "note"
            text = f"{share} class names of {feature!r} are numbers{ids}. If the labels are "
            text += f"quantities, {AS_NUMBERS}." if is_quantity else _IDS
            found = partial(finding, severity, "numeric_class_names", text, feature=feature)
            figures = {"numbers": len(numbers), "classes": len(names)}
            yield found(examples=[*numbers], figures=figures)


def _class_ids(feature: str, names: Sequence[str], source: SourceEntry) -> Iterator[Finding]:
    declared = source.class_ids.get(feature, {})
    if conflict := source.conflicts.get(feature):
        text = f"{conflict}. The classes of {feature!r} are in the order of the files."
        yield finding("note", "class_id_conflict", text, feature=feature)
    changed = [(name, id_) for id_, name in enumerate(names) if declared.get(name, id_) != id_]
    if changed:
        shown = some([f"{name} {declared[name]} → {id_}" for name, id_ in changed])
        verb = "differs" if len(changed) == 1 else "differ"
        text = f"{counted(len(changed), 'class id')} of {feature!r} {verb} from the source "
        text += f"({shown}), because ids count from 0 without gaps, in the order of the classes"
        # COCO counts its categories from 1.
        is_offset = all(declared[name] == id_ + 1 for name, id_ in changed)
        hint = "--label_offset 1 keeps the ids of the source"
        hint *= is_offset and len(changed) == len(names)
        examples = [(name, str(declared[name]), str(id_)) for name, id_ in changed]
        found = partial(finding, "note", "class_ids", text, hint, feature=feature)
        yield found(examples=examples, figures={"changed": len(changed), "classes": len(names)})


def _lists(names: Sequence[str], join: Callable[[Iterable[bool]], bool], share: float) -> list[str]:
    """Returns names like lists: of words that are names, or of which more than `share` recur."""
    parts = {name: re.split(r"[\s,/+&]+", name) for name in names}
    ends = Counter(found[-1] for found in parts.values() if join is any)
    words = Counter(word for found in parts.values() if len(found) > 1 for word in {*found})
    is_joined = sum(count > 1 for count in words.values()) > share * len(words)
    known = {*parts, *(w for w, count in ends.items() if count > 1), *(words if is_joined else ())}
    joins = {n for n, found in parts.items() if len(found) > 1 and join(p in known for p in found)}
    return [name for name in names if name in joins or _LIST.fullmatch(name)]


def doubtful_labels(
    schema: Schema,
    classes: Mapping[str, Sequence[str]],
    labels: Mapping[str, Counter[int]],
    records: int,
    columns: Mapping[str, str],  # the table columns of schema columns with another name
) -> Iterator[Finding]:
    """Yields classes and ids that may not be meant, by feature; `labels`: how often each occurs."""
    for feature in schema.class_features:
        names = classes.get(feature, ())
        written = Counter(map(folded, names))
        of_schema, counts = schema.features[feature], labels[feature]
        ids = () if of_schema.default is not None else sorted(counts)
        alike = sorted((name for name in names if written[folded(name)] > 1), key=folded)
        missing = [name for name in names if _NO_VALUES.fullmatch(name)]
        negative = [str(label) for label in ids if label < 0]
        # Of lists that never have several labels, some may be one text.
        is_list = of_schema.shape == () and not of_schema.per_box
        join = any if is_list and counts.total() <= records else all
        column = columns.get(of_schema.source.name, of_schema.source.name)
        is_of_lists = _OF_LISTS.search(column) and (of_schema.shape is None or join is any)
        # A note as of bear and polar bear, or red car, red bus, old car and old bus.
        joins: Severity = "warning" if _lists(names, all, 0.0 if is_of_lists else 1.0) else "note"
        kinds: tuple[tuple[Severity, str, str, str, list[str]], ...] = (
            ("note", "alike_classes", _ALIKE, "--rename OLD=NEW merges them", alike),
            ("note", "missing_value_classes", _MISSING, "--where leaves their rows out", missing),
            (joins, "list_classes", _JOINED, "", _lists(names, join, 0.0 if is_of_lists else 0.5)),
            ("warning", "negative_classes", _NEGATIVE, "", negative),
        )
        for severity, kind, what, hint, examples in kinds:
            if examples:
                text = f"{feature!r} has {what} ({some(examples)})"
                yield finding(severity, kind, text, hint, feature=feature, examples=examples)


def folded(name: str) -> str:
    """Returns the form that names share which differ only in how they are written."""
    return re.sub(r"[\s_-]+", " ", unicodedata.normalize("NFKC", name).casefold()).strip("'\" ")
