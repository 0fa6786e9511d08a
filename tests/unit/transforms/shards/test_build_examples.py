"""References become serialized examples or rejects, in order."""

from __future__ import annotations

import threading
from collections import Counter
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.schemas.config import Decode
from recordmill.schemas.records import ImageRef, SerializedExample
from recordmill.schemas.rejects import Reason, Reject
from recordmill.transforms.functional import read_ahead
from recordmill.transforms.shards.build_examples import Fetched, Pools, build_all, fetch
from recordmill.transforms.storage.stores.options import use_options
from tests.beam.direct import TABLE, example, plan, ref
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


@pytest.mark.parametrize("decode", ["full", "header"])
def test_each_reference_becomes_an_example_or_a_reject(
    decode: Decode, refs: list[ImageRef], expected: list[bytes]
) -> None:
    *examples, reject = build_all(refs, plan(train=1), decode, Pools())
    assert [one.data for one in examples if isinstance(one, SerializedExample)] == expected
    assert isinstance(reject, Reject)
    assert (reject.key, reject.source, reject.reason) == ("19.jpg", f"{TABLE}:21", "not_an_image")


def test_references_can_be_byte_ranges_or_include_their_image(tmp_path: Path) -> None:
    image = png(seed=5)
    (tmp_path / "images.bin").write_bytes(b"before" + image + b"behind")
    whole = ref("images.bin", 2, tmp_path)
    part = whole._replace(start=6, stop=6 + len(image))
    at_hand = Fetched(whole._replace(uri="nowhere", staged=b"at hand"), image)
    for one in (part, at_hand):
        (built,) = build_all([one], plan(train=1), "full", Pools())
        assert isinstance(built, SerializedExample)
        assert built.data == example("images.bin", image)


def test_unreadable_files_are_rejects(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"image")
    (tmp_path / "a-mask.png").write_bytes(b"mask")
    mask, gone = str(tmp_path / "a-mask.png"), str(tmp_path / "gone.png")
    row = ref("a.png", 2, tmp_path)
    for known, found in (
        (row, Fetched(row, b"image", None)),
        (row._replace(start=1, stop=3), Fetched(row._replace(start=1, stop=3), b"ma", None)),
        (row._replace(mask_uri=mask), Fetched(row._replace(mask_uri=mask), b"image", b"mask")),
    ):
        assert fetch(known) == found
    missing = "No such file or directory"
    for broken, detail in (
        (row._replace(uri=gone), f"{gone}: {missing}"),
        (row._replace(mask_uri=gone), f"mask {gone}: {missing}"),
    ):
        assert fetch(broken) == Reject.of(broken, Reason.MISSING_FILE, detail)


def test_one_slow_object_does_not_hold_up_a_shard(
    refs: list[ImageRef], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "SLOW_SECONDS", 2.0)
    use_options(PipelineOptions(["--allow_private_hosts"]))
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
            *examples, reject = build_all(remote, plan(train=1), "full", Pools())
        finally:
            end.set()
            server.shutdown()
            use_options(PipelineOptions([]))
    *local, _ = build_all(refs, plan(train=1), "full", Pools())
    assert [one.data for one in examples if isinstance(one, SerializedExample)] == [
        one.data for one in local if isinstance(one, SerializedExample)
    ]
    assert isinstance(reject, Reject)
    assert asked == {f"/{i}.jpg": 2 if i == 7 else 1 for i in range(20)}
