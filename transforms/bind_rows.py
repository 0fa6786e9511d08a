"""Binds rows to the schema."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput

from recordmill.schemas.plan import Plan
from recordmill.schemas.records import ImageRef, Row
from recordmill.schemas.rejects import RecordError
from recordmill.transforms.elements import REJECTS, Outcome, rejected
from recordmill.transforms.functional.rows.binding import Binding, bind, broken_frame, reject_row


@dataclass(eq=False)
class BindRows(beam.PTransform):
    """Binds rows to the schema: PCollection[Row] → Outcome(ImageRef).

    Attributes:
        binding: which table columns mean what.
        plan: settles the schema: its kinds and class names.
    """

    binding: Binding
    plan: PCollection[Plan]

    def expand(self, rows: PCollection[Row]) -> Outcome:
        """Adds the binding."""
        bound = rows | "Bind" >> beam.ParDo(
            _Bind(self.binding), AsSingleton(self.plan)
        ).with_outputs(REJECTS, main="refs")
        refs: PCollection[ImageRef] = bound.refs
        return Outcome(refs, bound[REJECTS])


class _Bind(beam.DoFn):
    """Binds rows; what follows from the plan is worked out once."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._plan: Plan | None = None

    def process(self, row: Row, plan: Plan) -> Iterator[ImageRef | TaggedOutput]:
        """Yields the row's reference or its reject; a broken frame goes on, to break the others."""
        if plan is not self._plan:
            self._plan, self._binding = plan, replace(self._binding, resolved=plan.resolved)
        try:
            yield bind(row, self._binding)
        except RecordError as error:
            frame = broken_frame(row, self._binding, error)
            yield frame or rejected(reject_row(row, self._binding, error))
