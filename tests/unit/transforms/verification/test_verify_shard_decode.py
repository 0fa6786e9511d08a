"""`--verify decode` rejects images that TensorFlow cannot decode before their shard is written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.origins import ImageAttribute
from recordmill.schemas.records import SerializedExample
from recordmill.schemas.rejects import Reason, Reject
from recordmill.schemas.settings import ImageSettings
from recordmill.transforms.functional.images.transcode import transcode
from recordmill.transforms.shards.build_examples import Fetched, ImageBuilder, Pools
from recordmill.transforms.shards.checkpoints import settings_fingerprint
from recordmill.transforms.shards.shard_task import _build_records
from recordmill.transforms.storage.local_files import ImageRootGuard
from recordmill.transforms.verification.verifier_process import VerifierProcess, check_decodes
from recordmill.transforms.verification.verify_shard import decode_error
from tests.beam.direct import RESOLVED, SCHEMA, config, plan, ref
from tests.images import jpeg, png, png_chunk, png_header

DAMAGED = png_header(16, 12) + png_chunk(b"IDAT", b"no zlib") + png_chunk(b"IEND", b"")
"""Its header is whole: `--decode header` stores it as it is."""

EXPECTED = {ImageAttribute.HEIGHT: 12, ImageAttribute.WIDTH: 16, ImageAttribute.CHANNELS: 3}


@pytest.fixture(params=["here", "in the verifier process"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where TensorFlow decodes."""
    if request.param == "here":
        yield request.param
        return
    started = VerifierProcess(1)
    module = "recordmill.transforms.verification.verifier_process"
    monkeypatch.setattr(f"{module}._current_verifier", lambda: started)
    yield request.param
    started.end()


def built(folder: Path, settings: ConvertConfig) -> list[Any]:
    """Returns the outcomes of a good image and of a damaged one."""
    for name, data in (("good.png", png()), ("bad.png", DAMAGED)):
        (folder / name).write_bytes(data)
    refs = [ref("good.png", 2, folder), ref("bad.png", 3, folder)]
    common = (plan(train=1), settings, Pools(), {}, ImageRootGuard())
    return list(_build_records(refs, *common))


def test_an_image_that_tensorflow_cannot_decode_is_rejected(tmp_path: Path, place: str) -> None:
    good, bad = built(tmp_path, config(decode="header", verify="decode"))
    assert isinstance(good, SerializedExample)
    assert isinstance(bad, Reject)
    assert (bad.key, bad.reason) == ("bad.png", Reason.CORRUPT)
    why = f"Invalid PNG data, size {len(DAMAGED)}"
    assert bad.detail == f"TensorFlow cannot decode it: {why}"


def test_tensorflow_decodes_nothing_without_verify_decode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recordmill.transforms.shards.build_examples.check_decodes", None)
    found = built(tmp_path, config(decode="header"))
    assert [type(each) for each in found] == [SerializedExample] * 2


@pytest.mark.parametrize("attribute", EXPECTED)
def test_the_recorded_shape_has_to_be_that_of_tensorflow(attribute: ImageAttribute) -> None:
    assert decode_error(png(), EXPECTED, None, 8) is None
    assert decode_error(jpeg(), EXPECTED, None, 8) is None
    assert attribute.value in str(decode_error(png(), {**EXPECTED, attribute: 4}, None, 8))


def test_masks_are_decoded_too() -> None:
    assert decode_error(png(), EXPECTED, png(mode="L"), 8) is None
    assert "mask" in str(decode_error(png(), EXPECTED, png(8, 8, mode="L"), 8))
    assert decode_error(png(), EXPECTED, b"no mask", 8)


def test_raw_pixels_are_not_decoded() -> None:
    raw = SCHEMA.model_copy(update={"image": ImageSettings(format="raw")})
    check_decodes(transcode(png(), raw.image), None, raw)


def test_the_verification_level_is_part_of_the_fingerprint() -> None:
    checked, unchecked = config(verify="decode"), config()
    assert settings_fingerprint(checked, RESOLVED, {}) != settings_fingerprint(
        unchecked, RESOLVED, {}
    )


def test_an_image_that_runs_out_of_memory_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("recordmill.transforms.shards.build_examples.check_decodes", check)
    builder = ImageBuilder(plan(train=1), config(verify="decode"), ImageRootGuard(), None)
    found = builder.build(Fetched(ref("a.png", 2), png()))
    assert isinstance(found, Reject)
    assert found.reason is Reason.TOO_MANY_PIXELS
