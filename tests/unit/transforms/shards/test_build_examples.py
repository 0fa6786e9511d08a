"""References become serialized examples or rejects, in order."""

from __future__ import annotations

import os
import threading
from collections import Counter
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.schemas.records import ImageRef, SerializedExample
from recordmill.schemas.rejects import Reason, Reject
from recordmill.schemas.settings import Decode
from recordmill.transforms.functional import read_ahead
from recordmill.transforms.shards import build_examples
from recordmill.transforms.shards.build_examples import Fetched, Pools, _fetch, are_near, build_all
from recordmill.transforms.storage.files import store_of
from recordmill.transforms.storage.local_files import ImageRootGuard
from recordmill.transforms.storage.stores.beam import use_pipeline_options
from tests.beam.direct import TABLE, config, example, plan, ref
from tests.images import jpeg, png


@pytest.fixture
def refs(tmp_path: Path) -> list[ImageRef]:
    """References of twenty files: 19 images and a text file."""
    for i in range(19):
        (tmp_path / f"{i}.jpg").write_bytes(jpeg(seed=i) if i % 2 else png(seed=i))
    (tmp_path / "19.jpg").write_bytes(b"no image")
    return [ref(f"{i}.jpg", i + 2, tmp_path, i % 2) for i in range(20)]


@pytest.fixture
def expected(refs: list[ImageRef], tmp_path: Path) -> list[bytes]:
    """The expected examples, serialized by TensorFlow."""
    return [
        example(f"{i}.jpg", (tmp_path / f"{i}.jpg").read_bytes(), i % 2)
        for i in range(len(refs) - 1)
    ]


@pytest.mark.parametrize("confined", [True, False])
def test_an_image_takes_one_call_for_its_kind_one_open_and_one_read(
    confined: bool, refs: list[ImageRef], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call that names a file is a round trip to a network file system."""
    guard, seen, calls = ImageRootGuard(str(tmp_path) if confined else None), {}, list[str]()
    _fetch(refs[0], seen, guard, ())  # resolves the folder

    def counted(name: str) -> Any:
        call = getattr(os, name)
        return lambda *arguments: (calls.append(name), call(*arguments))[1]

    for name in ("stat", "lstat", "open", "fstat", "pread"):
        monkeypatch.setattr(os, name, counted(name))
    _fetch(refs[1], seen, guard, ())
    assert calls == ["lstat" if confined else "stat", "open", "fstat", "pread"]
    assert seen == {each.uri: store_of(each.uri).version_tag(each.uri) for each in refs[:2]}


@pytest.mark.parametrize("decode", ["full", "header"])
def test_each_reference_becomes_an_example_or_a_reject(
    decode: Decode, refs: list[ImageRef], expected: list[bytes]
) -> None:
    *examples, reject = build_all(
        refs, plan(train=1), config(decode=decode), Pools(), ImageRootGuard()
    )
    assert [one.data for one in examples if isinstance(one, SerializedExample)] == expected
    assert isinstance(reject, Reject)
    assert (reject.key, reject.source, reject.reason) == ("19.jpg", f"{TABLE}:21", "not_an_image")


def test_files_of_a_slow_file_system_are_read_ahead_once(
    refs: list[ImageRef], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are under way before the first is built, except for those that show the latency."""
    (tmp_path / "6.jpg").unlink()
    expected = list(build_all(refs, plan(train=1), config(), Pools(), ImageRootGuard()))
    together = threading.Barrier(len(refs) - 4)
    read: list[str] = []

    def fetch(ref: ImageRef, *arguments: Any) -> Fetched | Reject:
        read.append(ref.uri)
        if len(read) > 4:
            together.wait(60)  # an error unless all are read at the same time
        return _fetch(ref, *arguments)

    monkeypatch.setattr(read_ahead, "_SLOW_CALL", 0.0)
    monkeypatch.setattr(build_examples, "_fetch", fetch)
    monkeypatch.setattr(read_ahead, "_UNKNOWN_AHEAD", len(refs))
    assert list(build_all(refs, plan(train=1), config(), Pools(), ImageRootGuard())) == expected
    assert sorted(read) == sorted(ref.uri for ref in refs)


def test_only_images_at_hand_or_in_local_files_are_near() -> None:
    remote = ref("1.jpg", 2, Path("images"), 0)._replace(uri="https://127.0.0.1/1.jpg")
    assert not are_near([remote])
    assert not are_near([Fetched(remote)])
    assert are_near([Fetched(remote, b"jpeg")])


def test_references_can_be_byte_ranges_or_include_their_image(tmp_path: Path) -> None:
    image = png(seed=5)
    (tmp_path / "images.bin").write_bytes(b"before" + image + b"behind")
    whole = ref("images.bin", 2, tmp_path)
    part = whole._replace(start=6, stop=6 + len(image))
    at_hand = Fetched(whole._replace(uri="nowhere", staged=b"at hand"), image)
    for one in (part, at_hand):
        (built,) = build_all([one], plan(train=1), config(), Pools(), ImageRootGuard())
        assert isinstance(built, SerializedExample)
        assert built.data == example("images.bin", image)


def test_unreadable_files_are_rejects(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"image")
    (tmp_path / "a-mask.png").write_bytes(b"mask")
    mask, gone = str(tmp_path / "a-mask.png"), str(tmp_path / "gone.png")
    row = ref("a.png", 2, tmp_path)
    for known, found in (
        (row, (b"image",)),
        (row._replace(start=1, stop=3), (b"ma",)),
        (row._replace(others=((mask, None, None, b""),)), (b"image", (b"mask",))),
        (row._replace(others=((mask, 1, 3, b""),)), (b"image", (b"as",))),
    ):
        assert _fetch(known, None, ImageRootGuard(), ["mask"]) == Fetched(
            known, *found, is_complete=True
        )
    missing = "No such file or directory"
    for broken, detail in (
        (row._replace(uri=gone), f"{gone}: {missing}"),
        (row._replace(others=((gone, None, None, b""),)), f"mask {gone}: {missing}"),
    ):
        assert _fetch(broken, None, ImageRootGuard(), ["mask"]) == Reject.of(
            broken, Reason.MISSING_FILE, detail
        )


def test_one_slow_object_does_not_hold_up_a_shard(
    refs: list[ImageRef], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "SLOW_SECONDS", 2.0)
    use_pipeline_options(PipelineOptions(["--allow_private_hosts"]))
    asked, end = Counter[str](), threading.Event()

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            asked[self.path] += 1
            if self.path == "/7.jpg" and asked[self.path] == 1:
                end.wait(30)  # as a store that has lost the request
            super().do_GET()

        def log_message(self, *arguments: object) -> None:
            """Logs nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_port}"
        remote = [ref._replace(uri=f"{base}/{ref.key}") for ref in refs]
        try:
            *examples, reject = build_all(
                remote, plan(train=1), config(), Pools(), ImageRootGuard()
            )
        finally:
            end.set()
            server.shutdown()
            use_pipeline_options(PipelineOptions([]))
    *local, _ = build_all(refs, plan(train=1), config(), Pools(), ImageRootGuard())
    assert [one.data for one in examples if isinstance(one, SerializedExample)] == [
        one.data for one in local if isinstance(one, SerializedExample)
    ]
    assert isinstance(reject, Reject)
    assert asked == {f"/{i}.jpg": 2 if i == 7 else 1 for i in range(20)}
