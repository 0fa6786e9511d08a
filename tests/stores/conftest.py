"""Fixtures of the store tests: stores, images, and the dataset made of local files."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.end_to_end.command import published
from tests.images import image_bytes, jpeg, png
from tests.stores.kinds import KINDS, Store

IMAGES = 420
REJECTS = {"missing_file": 1, "truncated": 1, "empty_file": 1}
FLAGS = (
    "--splits=train=0.8,validation=0.1,test=0.1",
    "--num_shards=train=5,validation=1,test=1",
    "--max_rejects=3",
)


@pytest.fixture(scope="session")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with labels.csv, 420 images, and three rows to be rejected."""
    folder = tmp_path_factory.mktemp("gallery")
    rows = [(_draw(folder, number), f"class {number % 7}") for number in range(IMAGES)]
    whole = jpeg(32, 24)
    (folder / "images" / "truncated.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "images" / "empty.jpg").write_bytes(b"")
    rows += [(f"images/{name}.jpg", "class 0") for name in ("truncated", "empty", "missing")]
    with (folder / "labels.csv").open("w", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows([("image", "label"), *rows])
    return folder


def _draw(folder: Path, number: int) -> str:
    forms = {"jpg": jpeg, "png": png, "gif": lambda *size: image_bytes("GIF", *size)}
    suffix = "gif" if number % 50 == 49 else "png" if number % 3 == 0 else "jpg"
    name = f"images/{number % 4}/a #{number:03d} ü.{suffix}"
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(forms[suffix](24 + number % 40, 20 + number % 30, number))
    return name


@pytest.fixture(scope="session")
def local(gallery: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset converted from local files."""
    return published(gallery / "labels.csv", tmp_path_factory.mktemp("local"), *FLAGS)


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory, gallery: Path) -> Iterator[object]:
    """Yields a function that starts a store with the images in it, on first use."""
    with ExitStack() as stack:
        running: dict[str, Store] = {}

        def store_of(kind: str) -> Store:
            if kind not in running:
                folder = tmp_path_factory.mktemp(kind)
                running[kind] = stack.enter_context(KINDS[kind](folder))  # type: ignore[arg-type]
                running[kind].upload(gallery, "gallery")
            return running[kind]

        yield store_of


@pytest.fixture(params=[kind for kind in KINDS if kind != "moto"])
def store(request: pytest.FixtureRequest, stores, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Each kind of store, without faults; for S3, the server that stores files."""
    return ready(stores(request.param), monkeypatch)


@pytest.fixture(params=[kind for kind in KINDS if kind != "hdfs"])
def object_store(request: pytest.FixtureRequest, stores, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Each kind of object store. HDFS raises its own exceptions instead of HTTP statuses."""
    return ready(stores(request.param), monkeypatch)


@pytest.fixture
def s3_store(stores, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The S3 store of the server that stores files."""
    return ready(stores("versitygw"), monkeypatch)


def ready(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Returns a store without faults, and sets its environment variables."""
    store.proxy.set()
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_"))]:
        monkeypatch.delenv(name)
    for name, value in store.env.items():
        monkeypatch.setenv(name, value)
    if store.root.startswith("gs:"):  # Beam looks for credentials for 20 s, emulator or not
        from apache_beam.internal.gcp import auth

        monkeypatch.setattr(auth._Credentials, "_credentials_init", True)
    return store
