"""The model of time and cost: its properties for any input, and the tables on the page."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.scaling import (
    Assumed,
    Cluster,
    Job,
    Model,
    estimates,
    images_of_last,
    markdown,
    weak_scaling,
)
from recordmill.schemas.config import MAX_SHARDS

PAGE = (Path(__file__).parents[3] / "docs/explanation/scaling.md").read_text(encoding="utf-8")
FREE = Assumed(start_seconds=0, get_seconds=0, network_bytes=1e18, efficiency=1)

sizes = st.integers(1, 10**9)
workers = st.integers(1, 2000)


@pytest.mark.parametrize(("name", "rows"), [("jobs", estimates), ("weak", weak_scaling)])
def test_the_page_shows_the_tables_of_the_model(name, rows):
    shown = re.search(f"<!-- {name}: begin -->\n(.*?)\n<!-- {name}: end -->", PAGE, re.DOTALL)
    assert shown[1] == markdown(rows(Model())), "regenerate it: python -m deploy.scaling"


@pytest.mark.parametrize(
    ("field", "shown"),
    [
        ("image_bytes", "110,537 bytes"),
        ("shuffled_bytes", "| 280 |"),
        ("write_cpu", "| 1.48 ms |"),
        ("verify_cpu", "| 0.16 ms |"),
        ("row_cpu", "| 0.07 ms |"),
    ],
)
def test_the_page_states_the_measured_figures(field, shown):
    measured = Model().measured
    value = (
        measured.write_cpu + measured.verify_cpu
        if field == "write_cpu"
        else getattr(measured, field)
    )
    number = float(re.search(r"[\d.,]+", shown)[0].replace(",", ""))
    assert number == pytest.approx(value * (1000 if shown.endswith("ms |") else 1), abs=0.005)
    assert shown in PAGE


def test_one_worker_without_losses_takes_the_measured_cpu_time():
    model = Model(assumed=FREE)
    job, cluster = Job(images=10_000, shards=1000, parts=1), Cluster(workers=1, cores=1)
    measured = model.measured
    expected = 10_000 * (measured.write_cpu + measured.verify_cpu + 2 * measured.row_cpu)
    assert model.seconds(job, cluster).total == pytest.approx(expected + measured.start_cpu)


@given(images=sizes, few=workers, more=workers)
def test_more_workers_never_make_a_stage_longer_by_more_than_chance(images, few, more):
    few, more = sorted((few, more))
    job = Model().job(images)
    slack = 1 + 3 * (job.shards / job.images) ** 0.5 * 5
    assert images_of_last(job, more) <= images_of_last(job, few) * slack


@given(images=sizes, count=workers)
def test_the_last_worker_has_at_least_its_share_and_at_most_all_images(images, count):
    job = Model().job(images)
    share = job.images / count
    mean = job.images / job.shards
    chance = (2 * 21 * mean) ** 0.5
    assert share * 0.999 <= images_of_last(job, count) <= max(share, mean) + 2 * mean + chance


@given(images=sizes)
def test_shards_match_num_shards_auto(images):
    job = Model().job(images)
    assert 1 <= job.shards <= MAX_SHARDS
    if job.shards < MAX_SHARDS:
        assert (job.shards - 1) * 128 * 2**20 < images * Model().measured.image_bytes
    assert (job.parts - 1) * 100_000 < images <= job.parts * 100_000


@given(images=sizes, count=workers)
def test_every_item_has_a_cost_and_larger_workers_cost_more(images, count):
    model = Model()
    job, cluster = model.job(images), Cluster(count)
    items = model.dollars(job, cluster)
    assert items.keys() == {"workers", "shuffle", "reads", "writes"}
    assert all(price > 0 for price in items.values())
    dear = Model(prices=replace(model.prices, core_hour=2 * model.prices.core_hour))
    assert dear.dollars(job, cluster)["workers"] > items["workers"]
    assert dear.dollars(job, cluster)["reads"] == items["reads"]


def test_a_single_csv_file_is_read_by_one_core():
    model, cluster = Model(assumed=FREE), Cluster(workers=500)
    whole, parted = (Job(10**8, 1000, parts) for parts in (1, 1000))
    assert model.seconds(whole, cluster).tables == pytest.approx(2 * 10**8 * 68e-6)
    assert model.seconds(parted, cluster).tables == pytest.approx(2 * 10**5 * 68e-6)


def test_slow_requests_dominate_if_they_take_longer_than_decoding():
    job, cluster = Job(10_000, 1000, 1), Cluster(1, cores=1)
    slow = Model(assumed=replace(FREE, get_seconds=1.0, concurrent_gets=10))
    assert slow.seconds(job, cluster).write == pytest.approx(10_000 * 0.1)
    assert slow.seconds(job, cluster).verify == pytest.approx(10_000 * slow.measured.verify_cpu)
