"""The transforms for Beam YAML, which `beam_providers.yaml` names.

Elements have schemas where other transforms of Beam YAML need them: `record` for `WriteToTFRecord`,
and the fields of rejects. With `error_handling`, they have the outputs `good` and the stated one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import apache_beam as beam
from apache_beam.pvalue import PCollection
from apache_beam.transforms.error_handling import CollectingErrorHandler
from apache_beam.typehints.row_type import RowTypeConstraint

from recordmill.pipelines.dict_rows import BuildExamples, ReadTables, VerifyRecords

_Outputs: TypeAlias = "PCollection[Any] | dict[str, PCollection[Any]]"
_REJECT = ("key", "uri", "source", "reason", "detail")


@beam.ptransform_fn
def read_tables(
    root: Any, pattern: Any, error_handling: Mapping[str, str] | None = None, **options: Any
) -> _Outputs:
    """Reads tables; `options` are those of `recordmill.ReadTables`."""
    read = ReadTables(pattern, **options)
    return _outputs(lambda handler: root | read.with_error_handler(handler), error_handling)


@beam.ptransform_fn
def build_examples(
    rows: Any, error_handling: Mapping[str, str] | None = None, **options: Any
) -> _Outputs:
    """Builds rows with a `record`; `options` are those of `recordmill.BuildExamples`."""
    build = BuildExamples(**options)

    def records(handler: Any) -> PCollection[Any]:
        # Without a handler, the outputs of the transform, which fails at the first reject.
        return rows | build.with_error_handler(handler) | "ToRow" >> _to_row(record=bytes)

    return _outputs(records, error_handling)


@beam.ptransform_fn
def verify_records(paths: Any, level: Any = "parse") -> PCollection[Any]:
    """Verifies the files that `WriteToTFRecord` names; returns rows of `path` and `records`."""
    return paths | VerifyRecords(level) | "ToRow" >> _to_row(path=str, records=int)


def _outputs(
    apply: Callable[[Any], PCollection[Any]], error_handling: Mapping[str, str] | None
) -> _Outputs:
    """Returns the output of a transform that is applied with a handler of errors, or with None."""
    if not error_handling:
        return apply(None)
    with CollectingErrorHandler() as errors:
        good = apply(errors)
    rows = errors.output() | "RejectToRow" >> _to_row(**dict.fromkeys(_REJECT, str))
    return {"good": good, error_handling["output"]: rows}


def _to_row(**fields: type) -> beam.PTransform:
    """Returns a transform of dicts, tuples or single values to rows with these fields."""
    return beam.Map(_row, tuple(fields)).with_output_types(
        RowTypeConstraint.from_fields(list(fields.items()))
    )


def _row(element: Any, names: tuple[str, ...]) -> beam.Row:
    if isinstance(element, Mapping):
        element = tuple(element[name] for name in names)
    elif not isinstance(element, tuple):
        element = (element,)
    return beam.Row(**dict(zip(names, element, strict=True)))
