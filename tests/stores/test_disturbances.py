"""Stores that are slow, fail or abort: nothing is lost, and the bytes are the same."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.schemas.plan import Plan, ResolvedSchema
from recordmill.schemas.records import ImageRef, SerializedExample
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.shards.build_examples import Pools, build_all
from recordmill.transforms.storage.local_files import ImageRootGuard
from recordmill.transforms.storage.stores.beam import use_pipeline_options
from tests.beam.direct import config
from tests.end_to_end.command import ROOT, recordmill
from tests.images import jpeg
from tests.stores.conftest import FLAGS, IMAGES, ready
from tests.stores.kinds import Store
from tests.stores.test_conversion import contents, convert

FAULTS = ["503", "500", "429", "reset", "cut"]
OF_AZURE = [fault for fault in FAULTS if fault != "429"]
"""Blob Storage throttles with 503, and its client, used by Beam's sinks, does not retry 429."""


@pytest.mark.parametrize("kind", ["versitygw", "gcs", "azure"])
def test_nothing_is_lost_if_five_percent_of_requests_fail(
    kind: str, stores, local: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ready(stores(kind), monkeypatch)
    possible = OF_AZURE if kind == "azure" else FAULTS
    store.proxy.set(percent=5, faults=possible, salt="a")
    ended = convert(store, "disturbed")
    assert ended.code == 0, ended.err
    faults = store.proxy.faults()
    assert sum(faults.values()) > IMAGES // 40
    assert set(faults) == set(possible)
    store.proxy.set()
    assert contents(store.download("disturbed/birds/1.0.0", tmp_path)) == contents(local)


def test_an_unreachable_store_gives_rejects_that_state_the_attempts(
    s3_store: Store, tmp_path: Path
) -> None:
    table = tmp_path / "labels.csv"
    table.write_text(f"image,label\n{s3_store.root}/gallery/images/0/a #004 ü.jpg,1\n")
    s3_store.proxy.set(match="^GET /birds/gallery/", percent=100, faults=["503"])
    command = ["convert", "--input", table, "--output", tmp_path / "out", "--name", "birds"]
    ended = recordmill(*command, "--num_shards=1", *s3_store.flags)
    assert ended.code == 4, ended.err
    (rejects,) = (tmp_path / "out").rglob("rejects-*.jsonl")
    text = rejects.read_text()
    assert "read_error" in text
    assert "the store responds with 503; given up after 8 attempts in " in text
    # The first image is tried before the pipeline starts. In it, an image that hangs is requested a
    # second time, which is retried as well.
    assert 16 <= sum(s3_store.proxy.faults().values()) <= 24


def test_worker_processes_get_the_store_flags(s3_store: Store, local: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "recordmill", "convert", "--name=birds"]
    command += [f"--input={s3_store.root}/gallery/labels.csv", f"--output={s3_store.root}/apart"]
    command += [*FLAGS, *s3_store.flags]
    command += ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    ended = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stderr
    assert contents(s3_store.download("apart/birds/1.0.0", tmp_path)) == contents(local)


def test_environment_variables_suffice_to_reach_a_store(
    s3_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("ENDPOINT_URL", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "DEFAULT_REGION")
    for name, flag in zip(names, s3_store.flags, strict=True):
        monkeypatch.setenv(f"AWS_{name}", flag.partition("=")[2])
    where = f"{s3_store.root}/apart/birds/1.0.0"
    verified = recordmill("verify", where)
    assert (verified.code, verified.out) == (0, f"verified: {IMAGES} records in {where}\n"), (
        verified.err
    )


PHOTOS = 40
ROWS = 1200


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images with the size and decoding time of ImageNet: 110 kB and 1 ms."""
    folder = tmp_path_factory.mktemp("photos")
    for number in range(PHOTOS):
        (folder / f"{number}.jpg").write_bytes(jpeg(500, 375, number, quality=96))
    return folder


class Pace(NamedTuple):
    """The speed at which images become examples.

    Attributes:
        rate: images a second.
        cpu: seconds of this process's CPU time an image.
    """

    rate: float
    cpu: float


def pace(base: str) -> Pace:
    """Returns the speed at which images become examples."""
    plan = Plan(ResolvedSchema(preset("tf_tutorial")), shards={}, rows=ROWS)
    refs = [
        ImageRef(str(n), "list", n, f"{base}/{n % PHOTOS}.jpg", None, None, (None,) * 3 + (7, None))
        for n in range(ROWS)
    ]
    pools = Pools()
    began, spent = time.perf_counter(), time.process_time()
    built = list(build_all(refs, plan, config(), pools, ImageRootGuard()))
    found = Pace(ROWS / (time.perf_counter() - began), (time.process_time() - spent) / ROWS)
    assert all(isinstance(one, SerializedExample) for one in built)
    assert [one.ref.key for one in built] == [ref.key for ref in refs]
    return found


def test_a_latency_of_fifty_milliseconds_is_hidden_at_little_cpu_cost(
    s3_store: Store, photos: Path
) -> None:
    """The CPU time of the store itself is not attributed to recordmill.

    So it is asked twice: whether the latency is hidden, beside the same store without it; and
    whether reading from it takes so little CPU that it leaves most of a local throughput. That
    is 0.66 to 0.77 on two cores, by what their neighbors leave of the caches: a test is held to
    what no neighbor takes.
    """
    s3_store.upload(photos, "photos")
    use_pipeline_options(PipelineOptions(s3_store.flags))
    base = f"{s3_store.root}/photos"
    hidden, left = [], []
    for _ in range(4):  # the best of four: other processes run on the machine
        here = pace(str(photos))
        s3_store.proxy.set()
        quick = pace(base)
        s3_store.proxy.set(match="^GET ", latency_ms=50)
        slow = pace(base)
        hidden.append(slow.rate / quick.rate)
        left.append(here.cpu / slow.cpu)
        print(f"here {here.rate:.0f}/s, store {quick.rate:.0f}/s, with 50 ms {slow.rate:.0f}/s")
        print(f"CPU: {here.cpu * 1000:.2f} and {slow.cpu * 1000:.2f} ms an image")
        if max(hidden) >= 0.9 and max(left) >= 0.7:
            break
    assert max(hidden) >= 0.7, hidden
    assert max(left) >= 0.55, left
