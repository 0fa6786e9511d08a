"""ReadAssigned: what reading, binding and assigning give in steps of their own, in one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.testing.util import assert_that

from recordmill.schemas.plan import SplitRanges
from recordmill.schemas.tables import Projection, TableFile
from recordmill.transforms.assign_shards import AssignShards
from recordmill.transforms.functional.rows.binding import Binding
from recordmill.transforms.read_assigned import AssignedInput, ReadAssigned
from recordmill.transforms.read_rows import BindRows, ListedParts, ListSources, ReadRows
from recordmill.transforms.shards.encoded_refs import joined
from tests.beam.direct import as_tuples, config, direct_pipeline, plan, single

PROJECTION = Projection(("image", "label"), "image")
SETTINGS = config(splits={"train": 3, "test": 1}, seed=5)
RANGES = SplitRanges.from_weights(SETTINGS.weights)
SHARDS = {"train": 3, "test": 2}


def tables(folder: Path) -> tuple[TableFile, ...]:
    """Returns a table of 40 rows, of which one has an unknown label, and one that is malformed."""
    labels = ["cat" if n % 3 else "dog" for n in range(40)]
    labels[7] = "emu"
    lines = ["image,label", *(f"{n}.jpg,{label}" for n, label in enumerate(labels))]
    (folder / "a.csv").write_text("\n".join([*lines[:21], ""]))
    (folder / "b.csv").write_text("\n".join([lines[0], *lines[21:], "too,many,fields", ""]))
    return tuple(TableFile(str(folder / name), "csv") for name in ("a.csv", "b.csv"))


def in_steps(listed: ListedParts, plans: beam.PCollection[Any]) -> AssignedInput:
    """Reads, binds and assigns the rows in steps of their own."""
    read = listed | ReadRows(PROJECTION)
    bound = read.good | BindRows(Binding.of(SETTINGS, SETTINGS.dataset_schema), plans)
    assigned = bound.good | AssignShards(plans, RANGES, SETTINGS.seed)
    numbers = read.good | beam.Map(len)
    others = [numbers], [read.rejects], [bound.rejects], [read.skipped]
    return AssignedInput(assigned.rows, [assigned.counts], *others)


def in_one_step(listed: ListedParts, plans: beam.PCollection[Any]) -> AssignedInput:
    """Reads and assigns the rows in one step, and decodes them."""
    binding = Binding.of(SETTINGS, SETTINGS.dataset_schema)
    settings = (binding, plans, RANGES, SETTINGS.seed, None)
    found: AssignedInput = listed | ReadAssigned(PROJECTION, "", *settings)
    decoded = found.rows | beam.MapTuple(lambda shard, refs: (shard, joined([refs])))
    return found._replace(rows=decoded)


def outputs(found: AssignedInput, name: str) -> dict[str, beam.PCollection[Any]]:
    """Returns each output as one sorted list."""
    parts = {
        output: list(parts) | f"{name} all {output}" >> beam.Flatten()
        for output, parts in found._asdict().items()
        if output != "rows"
    }
    elements = {
        **parts,
        "rows": single(found.rows, f"{name} single"),
        "counts": parts["counts"] | f"{name} counts" >> beam.CombinePerKey(sum),
        "read": parts["read"] | f"{name} read" >> beam.CombineGlobally(sum),
        "unread": as_tuples(parts["unread"], f"{name} unread"),
        "unassigned": as_tuples(parts["unassigned"], f"{name} unassigned"),
    }
    return {
        output: values
        | f"{name} list of {output}" >> beam.combiners.ToList()
        | f"{name} sorted {output}" >> beam.Map(sorted)
        for output, values in elements.items()
    }


def equal_lists(length: int, *ends: tuple[str, ...]) -> Any:
    """Returns a check that two lists are equal, have a length, and that their elements end so."""

    def check(lists: list[list[Any]]) -> None:
        one, other = lists
        assert one == other
        assert len(one) == length
        assert not ends or tuple(reject[2:] for reject in one) == ends

    return check


def test_one_step_gives_what_steps_of_their_own_give(tmp_path: Path) -> None:
    files = tables(tmp_path)
    checks = {
        "rows": equal_lists(39),
        "counts": equal_lists(len(SHARDS)),
        "read": equal_lists(1),
        "unread": equal_lists(1, (f"{files[1].path}:22", "malformed_row", "")),
        "unassigned": equal_lists(1, (f"{files[0].path}:9", "unknown_label", "")),
        "skipped": equal_lists(0),
    }
    with direct_pipeline() as p:
        plans = p | "Plan" >> beam.Create([plan(39, **SHARDS)])
        listed = p | ListSources(files)
        steps = outputs(in_steps(listed, plans), "steps")
        one = outputs(in_one_step(listed, plans), "one")
        for output, check in checks.items():
            both = (steps[output], one[output]) | f"Both {output}" >> beam.Flatten()
            assert_that(both, check, label=output)
