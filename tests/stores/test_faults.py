"""Conversions while the store misbehaves: the right dataset, or none and a message.

    S3        every request of a conversion × every fault; listings, replacements, damaged objects
    GCS, Azure   a few of them

Whatever fails, the same command succeeds once the store behaves. A part runs by default; all with
RECORDMILL_FAULTS=all.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas

from recordmill.transforms.storage.published import commit_marker
from recordmill.transforms.storage.stores import clients
from recordmill.transforms.storage.stores import store as store_module
from tests.end_to_end.command import Ended, published, recordmill
from tests.images import jpeg
from tests.stores import faults
from tests.stores.conftest import ready
from tests.stores.faults import (
    ALWAYS,
    Action,
    FaultProxy,
    Rule,
    at_line,
    cut,
    empty,
    fault_proxy,
    late,
    lost,
    omit,
    reset,
    short,
    slow,
    status,
    then,
    twice,
)
from tests.stores.kinds import AZURE_ACCOUNT, AZURE_KEY, Store
from tests.stores.test_conversion import contents

IMAGES = 20
FLAGS = ("--splits=train=0.8,test=0.2", "--num_shards=train=3,test=1", "--max_rejects=1", "--index")
OTHER = ("--splits=train=0.8,test=0.2", "--num_shards=train=2,test=1", "--max_rejects=1", "--index")

# Requests of a conversion, as "METHOD /path?query".
READS = {
    "table": r"GET .*/small/labels\.csv",
    "image": r"GET .*/small/images/07\.jpg",
    "shard": r"GET .*birds-train\.tfrecord-00001",
    "index": r"GET .*records-train-00001",
    "sidecar": r"GET .*1\.0\.0/schema\.pbtxt",
    "run_json": r"GET .*1\.0\.0/run\.json",
    "rejects": r"GET .*rejects-00000",
}
WRITES = {
    "shard": r"PUT .*birds-train\.tfrecord-00001-of-00003(\?|$)",
    "index": r"PUT .*records-train-00001",
    "checkpoint": r"PUT .*checkpoints/birds-test",
    "rejects": r"PUT .*rejects-00000",
    "idx": r"PUT .*idx/birds-test",
    "manifest": r"PUT .*manifest\.json",
    "sidecar": r"PUT .*schema\.pbtxt",
    "run_json": r"PUT .*run\.json",
    "success": r"PUT .*_SUCCESS",
}
LIST = r"GET .*list-type=2"
SUCCESS = r"PUT .*/1\.0\.0/_SUCCESS"
COPY = r"COPY .*/1\.0\.0/"
TAR = r"GET .*/small/birds\.tar"
DELETE = r"(DELETE .*|POST .*\?delete)"

BUSY = status(503, "SlowDown")
DENIED = status(403, "AccessDenied")
CONFLICT = status(409, "ConditionalRequestConflict")
TRANSIENT = {"503": BUSY, "500": status(500, "InternalError"), "reset": reset}
OF_READS = {**TRANSIENT, "429": status(429), "cut": cut, "short": short, "slow": slow(0.3)}
OF_WRITES = {**TRANSIENT, "lost": lost, "twice": twice(0.2), "late": late(0.2)}


@dataclass(frozen=True)
class Scenario:
    """A job while a store misbehaves.

    Attributes:
        rules: the faults.
        codes: the exit codes that are right; those but 0 are followed by a run without faults.
        job: "convert", "tar", "replace", "resume" or "verify".
        by_default: whether it runs without RECORDMILL_FAULTS.
        message: a part of what is printed.
    """

    rules: tuple[Rule, ...]
    codes: tuple[int, ...] = (0,)
    job: str = "convert"
    by_default: bool = False
    message: str = ""


def _table() -> Iterator[tuple[str, Scenario]]:
    """Yields the scenarios of S3 by name."""
    for place, match in READS.items():
        for name, action in OF_READS.items():
            chosen = (place, name) in {("table", "cut"), ("image", "503"), ("shard", "short")}
            # A second short answer of a whole object cannot be distinguished from a changed one.
            codes = (0, 3, 4) if name == "short" and place != "shard" else (0,)
            yield f"read_{place}_{name}", Scenario((Rule(match, action),), codes, "convert", chosen)
    for place, match in WRITES.items():
        for name, action in OF_WRITES.items():
            chosen = (place, name) in {("shard", "lost"), ("success", "lost"), ("run_json", "late")}
            yield f"write_{place}_{name}", Scenario((Rule(match, action),), by_default=chosen)
    yield from _rest()


def _rest() -> Iterator[tuple[str, Scenario]]:
    for name, action in {"503": BUSY, "reset": reset, "429": status(429)}.items():
        yield f"list_{name}", Scenario((Rule(LIST, action),))
        yield f"delete_{name}", Scenario((Rule(DELETE, action),))
        yield f"head_success_{name}", Scenario((Rule("HEAD .*_SUCCESS", action),))
        yield f"copy_{name}", Scenario((Rule(COPY, action),), job="replace")
        yield f"replace_list_{name}", Scenario((Rule(LIST, action, 3, 2),), job="replace")
        yield f"tar_{name}", Scenario((Rule(TAR, action, 2, 3),), job="tar")
    for name, action in {"cut": cut, "short": short, "empty": empty}.items():
        yield f"tar_{name}", Scenario((Rule(TAR, action, 2, 3),), (0,), "tar", name == "short")
    for name, action in {"at_line": at_line, "empty": empty}.items():
        rule = Rule(READS["table"], action, 2, 2)
        yield f"table_{name}", Scenario((rule,), (0,), "convert", name == "at_line")
    for place in ("shard", "index"):
        for name, code in {
            "conflict": "ConditionalRequestConflict",
            "aborted": "OperationAborted",
        }.items():
            rule = Rule(WRITES[place], status(409, code), 1, 2)
            yield (
                f"{name}_{place}",
                Scenario((rule,), (0,), "convert", name + place == "conflictshard"),
            )
    yield (
        "conflict_of_a_replaced_shard",
        Scenario((Rule("PUT .*tfrecord", CONFLICT, 1, 2),), job="resume"),
    )

    # Bytes that the store keeps differ from those that it was sent.
    for place in ("shard", "index"):
        for name in ("truncated", "flipped"):
            rules = (Rule(WRITES[place], DAMAGE[name]),)
            message = "Run again: damaged shards are written again"
            yield (
                f"kept_{place}_{name}",
                Scenario(rules, (3,), "convert", name == "flipped", message),
            )
    for place in ("checkpoint", "rejects", "idx", "manifest", "sidecar", "run_json", "success"):
        for name in ("truncated", "flipped"):
            rules = (Rule(WRITES[place], DAMAGE[name]),)
            chosen = place in ("rejects", "sidecar") and name == "truncated"
            yield f"kept_{place}_{name}", Scenario(rules, by_default=chosen)
    rules = (Rule(WRITES["sidecar"], DAMAGE["truncated"], 1, ALWAYS),)
    yield "kept_sidecar_always_truncated", Scenario(rules, (1,), message="returns other bytes")

    # Listings that omit what was written before.
    for name, omitted in {
        "records": r"dataset/records/records-train-00001",
        "shard": r"dataset/birds-train\.tfrecord-00001",
        "rejects": r"dataset/rejects/",
        "everything": r"/\.1\.0\.0\.run/",
        "old": r"/1\.0\.0/birds-train\.tfrecord-00001-of-00002",
        "old_index": r"/1\.0\.0/records/records-train-00001-of-00002",
    }.items():
        rule = Rule(LIST, omit(omitted), 1, ALWAYS)
        yield (
            f"replace_list_omits_{name}",
            Scenario((rule,), (0,), "replace", name in ("records", "old")),
        )
    for name, omitted in {
        "checkpoints": "checkpoints/",
        "shards": "tfrecord",
        "everything": "",
    }.items():
        yield (
            f"resume_list_omits_{name}",
            Scenario((Rule(LIST, omit(omitted), 1, ALWAYS),), job="resume"),
        )
    yield "verify_list_omits_everything", Scenario((Rule(LIST, omit(""), 1, ALWAYS),), job="verify")

    rule = Rule(WRITES["manifest"], then(_write_as_another_run))
    yield "another_run_writes_shards", Scenario((rule,), by_default=True)

    # Replacements.
    body = status(200, "InternalError")  # CopyObject answers 200 before it has copied
    yield "copy_200_with_error", Scenario((Rule(COPY, body, 2),), (0, 1), "replace")
    yield "copy_denied", Scenario((Rule(COPY, DENIED, 3, ALWAYS),), (0,), "replace", True)
    yield "copy_lost", Scenario((Rule(COPY, lost, 1, 3),), job="replace")
    marker = Rule(f"{DELETE}", late(SUCCESS), 1, 1)
    yield "replace_delete_arrives_after_success", Scenario((marker,), (0,), "replace", True)
    yield (
        "replace_success_denied",
        Scenario((Rule(SUCCESS, DENIED, 1, ALWAYS),), (1,), "replace", message="denied"),
    )
    yield (
        "replace_delete_denied",
        Scenario((Rule(DELETE, DENIED, 1, ALWAYS),), (1,), "replace", message="denied"),
    )

    # Permissions that end, and stores that die.
    for name, action in {"denied": DENIED, "busy": BUSY, "dead": reset}.items():
        for after in (12, 40, 60):
            rule = Rule("", action, after, ALWAYS)
            chosen = (name, after) == ("denied", 40)
            yield f"{name}_after_{after}", Scenario((rule,), (1, 2, 4), "convert", chosen)
    for place in ("shard", "index", "checkpoint", "rejects", "manifest", "success"):
        rule = Rule(WRITES[place], DENIED, 1, ALWAYS)
        yield f"write_{place}_denied", Scenario((rule,), (1,), message="denied")
    for place in ("image", "table", "shard"):
        yield (
            f"read_{place}_denied",
            Scenario((Rule(READS[place], DENIED, 1 + (place != "image"), ALWAYS),), (1, 2, 3, 4)),
        )
    rule = Rule(READS["run_json"], DENIED, 2, ALWAYS)
    yield "read_run_json_denied", Scenario((rule,), (1,), "convert", True, "denied")
    rule = Rule(DELETE, DENIED, 1, ALWAYS)
    yield (
        "delete_denied",
        Scenario((rule,), (0,), "convert", True, "cannot be deleted: access denied"),
    )
    for code in (400, 404, 501):
        yield (
            f"write_shard_{code}",
            Scenario((Rule(WRITES["shard"], status(code), 1, ALWAYS),), (1,)),
        )
    rules = (Rule("", outage(10), 30, ALWAYS),)
    yield "outage_of_ten_seconds", Scenario(rules, (0,), "convert", True)
    for name, action in {"503": BUSY, "cut": cut, "short": short}.items():
        yield f"verify_{name}", Scenario((Rule("GET .*tfrecord", action),), (0,), "verify")
    yield "verify_denied", Scenario((Rule("GET .*tfrecord", DENIED, 1, ALWAYS),), (3,), "verify")


def outage(seconds: float) -> Action:
    """Answers 503 until some seconds have passed since the first request."""
    began: list[float] = []

    async def action(exchange: faults.Exchange) -> None:
        began.append(time.monotonic())
        await (BUSY if began[-1] < began[0] + seconds else faults.passed)(exchange)

    return action


def _altered(change: Callable[[bytes], bytes]) -> Action:
    """Has the S3 server keep other bytes of an object, under the ETag of those that it got."""

    def alter(path: str) -> None:
        file = Path(os.environ["RECORDMILL_TEST_BUCKETS"] + path)
        data = change(file.read_bytes())
        with file.open("r+b") as stream:  # in place: the ETag is an attribute of the file
            stream.truncate(len(data))
            stream.write(data)

    return then(alter)


def _write_as_another_run(path: str) -> None:
    """Adds the files of a shard to a dataset, beside its manifest."""
    folder = Path(os.environ["RECORDMILL_TEST_BUCKETS"] + path).parent
    for name in (
        "birds-train.tfrecord-00003-of-00004",
        "records/records-train-00003-of-00004.parquet",
        "idx/birds-train.tfrecord-00003-of-00004.idx",
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"of another run")


DAMAGE = {
    "truncated": _altered(lambda data: data[: len(data) // 2]),
    "flipped": _altered(
        lambda data: (
            data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]
        )
    ),
}


class Small:
    """The input of the scenarios: labels.csv with a missing image, and the same images in a tar."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        rows = [(f"images/{n:02d}.jpg", f"class {n % 3}") for n in range(IMAGES)]
        (folder / "images").mkdir()
        with tarfile.open(folder / "birds.tar", "w") as archive:
            for number, (name, label) in enumerate(rows):
                data = jpeg(24, 16, number)
                (folder / name).write_bytes(data)
                for suffix, member in (("jpg", data), ("cls", label.encode())):
                    info = tarfile.TarInfo(f"{number:02d}.{suffix}")
                    info.size = len(member)
                    archive.addfile(info, io.BytesIO(member))
        with (folder / "labels.csv").open("w", newline="") as stream:
            rows.insert(5, ("images/missing.jpg", "class 1"))
            csv.writer(stream, lineterminator="\n").writerows([("image", "label"), *rows])


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Small:
    return Small(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def expected(small: Small, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """The contents of the datasets made of local files, by input."""
    folder = tmp_path_factory.mktemp("expected")
    return {
        table: contents(published(small.folder / table, folder / table, *FLAGS))
        for table in ("labels.csv", "birds.tar")
    }


SCENARIOS = dict(_table())
ALL = os.environ.get("RECORDMILL_FAULTS") == "all"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the waits between attempts."""
    monkeypatch.setattr(store_module._attempts, "sleep", lambda seconds: time.sleep(seconds / 20))
    backoff = {name: wait / 20 for name, wait in clients.MANY_PAGES["backoff"].items()}
    monkeypatch.setattr(clients, "MANY_PAGES", {**clients.MANY_PAGES, "backoff": backoff})


@pytest.fixture(scope="module")
def proxies() -> Iterator[Callable[[Store], FaultProxy]]:
    """Yields a function that starts a proxy of a store, on first use."""
    with contextlib.ExitStack() as stack:
        running: dict[int, FaultProxy] = {}

        def proxy_of(store: Store) -> FaultProxy:
            port = store.proxy.port
            if port not in running:
                host = store.proxy.url.removeprefix("http://") if store.root[0] == "g" else ""
                running[port] = stack.enter_context(fault_proxy(port, host))
            return running[port]

        yield proxy_of


@dataclass
class Job:
    """A store behind its proxy, and what is converted.

    Attributes:
        store: the store, whose flags lead to the proxy.
        proxy: the proxy.
        table: the name of the input.
        folder: where the output is.
    """

    store: Store
    proxy: FaultProxy
    table: str
    folder: str

    def convert(self, *flags: str) -> Ended:
        table = f"{self.store.root}/small/{self.table}"
        output = f"--output={self.store.root}/{self.folder}"
        command = ("convert", f"--input={table}", output, "--name=birds", "--no_report")
        return recordmill(*command, *(flags or FLAGS), *self.store.flags)

    def verify(self) -> Ended:
        where = f"{self.store.root}/{self.folder}/birds/1.0.0"
        return recordmill("verify", where, *self.store.reading_flags)

    def check_published(self, expected: dict[str, object], folder: Path) -> None:
        dataset = self.store.download(f"{self.folder}/birds/1.0.0", folder)
        marker = commit_marker((dataset / "manifest.json").read_bytes())
        assert (dataset / "_SUCCESS").read_bytes() == marker
        assert contents(dataset) == expected[self.table]

    @property
    def is_published(self) -> bool:
        return f"{self.folder}/birds/1.0.0/_SUCCESS" in self.store.names(f"{self.folder}/")


def job_of(
    store: Store,
    proxy: FaultProxy,
    small: Small,
    name: str,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Job:
    if "small/labels.csv" not in store.names("small/"):
        store.upload(small.folder, "small")
    here, there = f"127.0.0.1:{store.proxy.port}", f"127.0.0.1:{proxy.port}"
    for variable, value in store.env.items():
        monkeypatch.setenv(variable, value.replace(here, there))
    flags = [flag.replace(here, there) for flag in store.flags]
    proxy.set()
    return Job(replace(store, flags=flags), proxy, table, f"faults/{name}")


@pytest.mark.parametrize("name", [n for n, s in SCENARIOS.items() if ALL or s.by_default])
def test_a_conversion_publishes_the_right_dataset_or_none(
    name: str,
    s3_store: Store,
    proxies: Callable[[Store], FaultProxy],
    small: Small,
    expected: dict[str, object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    scenario = SCENARIOS[name]
    if not name.startswith("outage"):
        request.getfixturevalue("quick")
    monkeypatch.setenv("RECORDMILL_TEST_BUCKETS", str(s3_store.folder / "data"))
    table = "birds.tar" if scenario.job == "tar" else "labels.csv"
    job = job_of(s3_store, proxies(s3_store), small, name, table, monkeypatch)
    run(job, scenario, expected, tmp_path)


def run(job: Job, scenario: Scenario, expected: dict[str, object], folder: Path) -> None:
    """Runs the job of a scenario, and then again if it has failed."""
    if scenario.job in ("replace", "verify"):
        assert job.convert(*(OTHER if scenario.job == "replace" else FLAGS)).code == 0
    if scenario.job == "resume":
        job.proxy.set(Rule("PUT .*records-test", DENIED, 1, ALWAYS))
        assert job.convert().code == 1
    flags = (*FLAGS, "--if_exists=replace") if scenario.job == "replace" else FLAGS
    job.proxy.set(*scenario.rules)
    ended = job.verify() if scenario.job == "verify" else job.convert(*flags)
    assert job.proxy.injected
    assert ended.code in scenario.codes, ended.err
    assert scenario.message in ended.out + ended.err
    assert "Traceback" not in ended.err
    if ended.code and scenario.job != "verify":
        lines = [line for line in ended.err.splitlines() if line.startswith("recordmill: ")]
        lines = [line for line in lines if not line.startswith("recordmill: warning: ")]
        assert len(lines) == 1, ended.err
        assert "Signature" not in ended.err
        assert scenario.job == "replace" or not job.is_published
        job.proxy.set()
        again = job.convert(*flags)
        assert again.code == 0, again.err
    job.check_published(expected, folder)


FEW = {
    "read_image_503": Scenario((Rule(READS["image"], BUSY),)),
    "read_table_short": Scenario((Rule(READS["table"], short, 2),)),
    "read_shard_cut": Scenario((Rule(READS["shard"], cut),)),
    "write_shard_lost": Scenario((Rule(r"(PUT|POST) .*birds-train\.tfrecord-00001", lost),)),
    "write_success_503": Scenario((Rule(r"(PUT|POST) .*_SUCCESS", BUSY),)),
    "write_shard_denied": Scenario(
        (Rule(r"(PUT|POST) .*birds-train\.tfrecord-00001", DENIED, 1, ALWAYS),), (1,)
    ),
    "denied_after_40": Scenario((Rule("", DENIED, 40, ALWAYS),), (1, 2, 4)),
    "replace_reset": Scenario((Rule("", reset, 90, 2),), job="replace"),
}


@pytest.mark.parametrize("kind", ["gcs", "azure"])
@pytest.mark.parametrize("name", FEW)
def test_other_stores_publish_the_right_dataset_or_none(
    kind: str,
    name: str,
    stores: Callable[[str], Store],
    proxies: Callable[[Store], FaultProxy],
    small: Small,
    expected: dict[str, object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    quick: None,
) -> None:
    store = ready(stores(kind), monkeypatch)
    job = job_of(store, proxies(store), small, name, "labels.csv", monkeypatch)
    run(job, FEW[name], expected, tmp_path)


def test_signatures_are_in_no_message(
    stores: Callable[[str], Store],
    proxies: Callable[[Store], FaultProxy],
    small: Small,
    monkeypatch: pytest.MonkeyPatch,
    quick: None,
) -> None:
    store = ready(stores("azure"), monkeypatch)
    proxy = proxies(store)
    signature = generate_account_sas(
        AZURE_ACCOUNT,
        AZURE_KEY,
        ResourceTypes(service=True, container=True, object=True),
        AccountSasPermissions(read=True, write=True, delete=True, list=True, create=True),
        datetime(2040, 1, 1, tzinfo=timezone.utc),
    )
    endpoint = f"http://127.0.0.1:{proxy.port}/{AZURE_ACCOUNT}"
    said = f"BlobEndpoint={endpoint};SharedAccessSignature={signature}"
    job = job_of(store, proxy, small, "signed", "labels.csv", monkeypatch)
    flag = f"--azure_connection_string={said}"
    job = replace(job, store=replace(store, flags=[flag]))
    secret = signature.partition("sig=")[2][:20]
    assert secret
    for action in (DENIED, BUSY, reset):
        proxy.set(Rule("PUT .*birds-train", action, 1, ALWAYS))
        ended = job.convert(*FLAGS, "--verbose")
        assert (ended.code, secret in ended.out + ended.err) == (1, False), ended.err
    proxy.set()
    assert job.convert().code == 0
