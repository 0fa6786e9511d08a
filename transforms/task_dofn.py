"""A DoFn whose work on an element is a task, for this process or for a writer process."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import TaggedOutput
from apache_beam.utils.shared import Shared
from apache_beam.utils.windowed_value import WindowedValue

from recordmill.schemas.manifest import Base
from recordmill.schemas.masking import masked_url
from recordmill.schemas.tables import Part
from recordmill.transforms.elements import windowed
from recordmill.transforms.shards.build_examples import Pools
from recordmill.transforms.shards.writer_processes import Answers, Task, WriterProcesses, readers
from recordmill.transforms.storage.files import is_local


class TaskDoFn(beam.DoFn):
    """Runs tasks on elements; holds a few elements for each writer process."""

    def __init__(self) -> None:
        """Starts nothing yet."""
        self._shared = Shared()

    def setup(self) -> None:
        """Starts the threads, which all instances share."""
        self._pools = self._shared.acquire(Pools)

    def start_bundle(self) -> None:
        """Waits for no process yet."""
        self._answers = Answers()

    def run(
        self, processes: WriterProcesses | None, what: str, task: Task, *element: Any
    ) -> Iterator[Any]:
        """Yields the results of a task, or those of earlier elements.

        `processes` are the processes to run it in; None to run it here. `what` is a description of
        the process, for the message if it dies.
        """
        if processes is None:
            return task.run(*element, self._pools)
        run = partial(processes.run, what, task, *element)
        return self._answers.add(self._pools.waiting.submit(run), 3 * processes.number)

    def run_on_part(self, task: Task, part: Part, base: Base | None) -> Iterator[Any]:
        """Yields the results of a task on a part, or those of earlier parts.

        `base` is the base version; None if there is none.
        """
        path = part.file.path
        # Writer processes have no options of stores; each would hold the keys of a base version.
        processes = readers() if is_local(path) and base is None else None
        return self.run(processes, f"the process that reads {masked_url(path)}", task, part)

    def finish_bundle(self) -> Iterator[WindowedValue | TaggedOutput]:
        """Yields the results of the last elements."""
        return map(windowed, self._answers.rest())
