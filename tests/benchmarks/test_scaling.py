"""The simulation of time and cost: its properties for any inputs, and the page's tables."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.scaling.__main__ import TABLES, markdown
from benchmarks.scaling.inputs import IDEAL, Assumed, Cluster, Job, Measured
from benchmarks.scaling.shard_bytes import SIZE_RATIO, unevenness
from benchmarks.scaling.simulation import Model, Simulation
from recordmill.schemas.option import MAX_SHARDS

PAGE = (Path(__file__).parents[2] / "docs/explanation/scaling.md").read_text(encoding="utf-8")

durations = st.lists(st.floats(0.01, 100), min_size=1, max_size=60)


@pytest.mark.parametrize("name", TABLES)
def test_the_page_has_the_tables_of_the_simulation(name):
    shown = re.search(f"<!-- {name}: begin -->\n(.*?)\n<!-- {name}: end -->", PAGE, re.DOTALL)
    assert shown[1] == markdown(TABLES[name](Model())), "run python -m benchmarks.scaling"


@pytest.mark.parametrize(
    ("field", "shown", "scale"),
    [
        ("image_bytes", "110,537 bytes", 1),
        ("shuffled_bytes", "| 314 bytes |", 1),
        ("write_cpu", "| 1.32 ms |", 1e3),
        ("verify_cpu", "| 0.16 ms |", 1e3),
        ("row_cpu", "| 34 µs |", 1e6),
        ("shard_cpu", "| 3.4 ms |", 1e3),
        ("finish_cpu", "| 0.21 ms |", 1e3),
        ("start_cpu", "| 2.4 s |", 1),
    ],
)
def test_the_page_states_the_measured_figures(field, shown, scale):
    number = float(re.search(r"[\d.,]+", shown)[0].replace(",", ""))
    assert number == pytest.approx(scale * getattr(Measured(), field))
    assert shown in PAGE


def test_one_core_without_losses_takes_the_measured_cpu_time():
    measured = Measured()
    phases = Simulation(measured, IDEAL, Cluster(workers=1, cores=1)).run(Job(10_000, 50, 4))
    # The sizes of shards are drawn, so their sum varies by a few standard deviations.
    drawn = {"rel": 5 / math.sqrt(10_000)}
    assert phases.start == measured.start_cpu
    assert phases.read == pytest.approx(2 * 10_000 * measured.row_cpu)
    expected = 10_000 * measured.write_cpu + 50 * measured.shard_cpu
    assert phases.write == pytest.approx(expected, **drawn)
    assert phases.verify == pytest.approx(10_000 * measured.verify_cpu, **drawn)
    assert phases.finish == pytest.approx(50 * measured.finish_cpu)


@given(tasks=durations, workers=st.integers(1, 20))
def test_a_stage_takes_at_least_its_share_and_at_most_one_task_more(tasks, workers):
    simulation = Simulation(Measured(), IDEAL, Cluster(workers, cores=1))
    seconds = simulation.stage(tasks)
    share = sum(tasks) / workers
    assert max(share, max(tasks)) <= seconds * (1 + 1e-9)
    assert seconds <= share + max(tasks) + 1e-9  # Graham's bound for list scheduling


@given(tasks=durations, workers=st.integers(1, 20))
def test_static_scheduling_takes_at_least_its_share_and_at_most_all(tasks, workers):
    simulation = Simulation(Measured(), IDEAL, Cluster(workers, cores=1, scheduling="static"))
    seconds = simulation.stage(tasks)
    assert sum(tasks) / workers <= seconds * (1 + 1e-9)
    assert seconds <= sum(tasks) * (1 + 1e-9)


@settings(max_examples=30)
@given(tasks=durations, workers=st.integers(1, 5), seed=st.integers(0, 99))
def test_failures_only_add_time_and_no_task_is_lost(tasks, workers, seed):
    cluster = Cluster(workers, cores=2)
    failing = replace(IDEAL, failure_hours=0.1, replace_seconds=7)
    simulation = Simulation(Measured(), failing, cluster, seed)
    seconds = simulation.stage(tasks)
    assert seconds >= Simulation(Measured(), IDEAL, cluster, seed).stage(tasks) / 2
    assert seconds >= sum(tasks) / (2 * workers) - 1e-6


def test_a_failed_task_runs_again_from_its_beginning():
    cluster = Cluster(workers=1, cores=1)
    simulation = Simulation(Measured(), replace(IDEAL, replace_seconds=7), cluster)
    simulation.workers[0].fails_at = 4.0
    assert simulation.stage([10.0]) == 4 + 7 + 10
    assert simulation.failures == 1


def test_with_dynamic_scheduling_a_slow_worker_delays_the_end_by_one_of_its_tasks():
    slow = replace(IDEAL, slow_workers=0.01, slow_factor=10)
    tasks = [1.0] * 10_000
    fast_end = Simulation(Measured(), IDEAL, Cluster(100, cores=1)).stage(tasks)
    slow_end = Simulation(Measured(), slow, Cluster(100, cores=1)).stage(tasks)
    assert fast_end < slow_end <= fast_end + 10


def test_equal_seeds_give_equal_results():
    model, cluster = Model(), Cluster(workers=20)
    job = model.job(5_000_000)
    assert model.seconds(job, cluster) == model.seconds(job, cluster)


@given(images=st.integers(1, 10**9))
def test_shards_are_those_of_auto(images):
    job = Model().job(images)
    assert 1 <= job.shards <= MAX_SHARDS
    if job.shards < MAX_SHARDS:
        assert (job.shards - 1) * 128 * 2**20 < images * Measured().image_bytes
    assert (job.splits - 1) * 100_000 < images <= job.splits * 100_000


@given(images=st.integers(1, 10**9), count=st.integers(1, 2000))
def test_every_item_has_a_price_and_only_workers_depend_on_the_duration(images, count):
    model = Model()
    job, cluster = model.job(images), Cluster(count)
    hour, day = (model.dollars(job, cluster, seconds) for seconds in (3600, 86400))
    assert hour.keys() == {"workers", "shuffle", "reads", "writes"}
    assert all(price > 0 for price in hour.values())
    assert day.pop("workers") == pytest.approx(24 * hour.pop("workers"))
    assert day == hour


def test_a_table_in_one_split_is_read_by_one_core():
    model, cluster = Model(assumed=IDEAL), Cluster(workers=50)
    one, many = (model.seconds(Job(10**7, 100, splits), cluster) for splits in (1, 1000))
    assert one.read == pytest.approx(2 * 10**7 * model.measured.row_cpu)
    assert many.read == pytest.approx(2 * 10**7 * model.measured.row_cpu / 200)


def test_slow_requests_count_where_they_take_longer_than_decoding():
    waiting: Assumed = replace(IDEAL, get_seconds=1.0, max_gets=10)
    cluster, job = Cluster(1, cores=1), Job(10_000, 10, 1)
    phases = Model(assumed=waiting).seconds(job, cluster)
    assert phases.write == pytest.approx(10_000 * 0.1, rel=0.05)
    assert phases.verify == pytest.approx(10_000 * Measured().verify_cpu, rel=0.05)


@pytest.mark.parametrize("exact", [True, False], ids=["equal counts", "equal ranges of hashes"])
@pytest.mark.parametrize("records", [10, 1_000])
def test_the_bytes_of_shards_deviate_as_probability_theory_has_it(records, exact):
    # The first two moments of sizes from 1 to r that are even on a logarithmic scale.
    scale = math.log(SIZE_RATIO)
    mean, square = (SIZE_RATIO - 1) / scale, (SIZE_RATIO**2 - 1) / (2 * scale)
    variance = square - mean**2 if exact else square  # a Poisson-distributed number adds mean²
    found = unevenness(records, exact)
    assert found.deviation == pytest.approx(math.sqrt(variance / records) / mean, rel=0.05)
    assert found.largest > 2.5 * found.deviation  # of 1,000
