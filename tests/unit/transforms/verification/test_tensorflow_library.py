"""Operations run through TensorFlow's C API give the results and errors of its Python package."""

from __future__ import annotations

import ctypes.util
import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tensorflow as tf

from recordmill.transforms.verification import tensorflow_reader
from recordmill.transforms.verification.tensorflow_reader import (
    FLOAT,
    INT64,
    STRING,
    UINT8,
    DataType,
    OpError,
    Tensor,
    _tensor_of,
    _without_info_lines,
    run,
)
from tests.images import jpeg, png

ROOT = Path(__file__).parents[4]
LARGE = b"x" * 2**20

LOG = [
    b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n",
    b"I0000 00:00:1795380594.342717   15430 port.cc:153] oneDNN custom operations are on.\n",
    b"To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow\n",
    b"W0000 00:00:1795380594.342717   15430 port.cc:153] the disk is full\n",
]

LOADED = """
import sys
from recordmill.transforms.verification.tensorflow_reader import Tensor, run
[tensor] = run("StringLength", [Tensor.of([b"", b"four"])], 1, {})
assert tensor.numpy().tolist() == [0, 4]
print("tensorflow" in sys.modules, "numpy" in sys.modules)
"""


def test_only_informational_lines_of_the_log_are_dropped() -> None:
    assert b"".join(map(_without_info_lines, LOG)) == LOG[-1]
    assert _without_info_lines(b"\r 7 rows" + LOG[1]) == b"\r 7 rows"


@pytest.mark.parametrize(
    "values",
    [
        np.arange(6, dtype=np.int64).reshape(2, 3),
        np.array(1.5, np.float32),
        np.zeros((0, 2), np.float32),
        np.array([True, False]),
    ],
)
def test_numbers_come_back(values: np.ndarray) -> None:
    tensor = Tensor.of(values)
    assert tensor.shape == values.shape
    found = tensor.numpy()
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("values", [[], [b""], [b"a", b"x" * 22, b"y" * 23, LARGE, b"\0\xff"]])
def test_strings_come_back(values: list[bytes]) -> None:
    [copied] = run("Identity", [Tensor.of(values)], 1, {})
    assert copied.dtype == STRING
    assert copied.numpy().tolist() == values


def test_one_string_is_a_scalar() -> None:
    assert Tensor.of(b"one").shape == ()
    assert Tensor.of(b"one").numpy()[()] == b"one"


def test_strings_are_kept_until_the_tensor_is_used() -> None:
    tensor = Tensor.of([os.urandom(8) + LARGE for _ in range(4)])
    gc.collect()
    [lengths] = run("StringLength", [tensor], 1, {})
    assert lengths.numpy().tolist() == [8 + len(LARGE)] * 4


DECODE = {"channels": 3, "dtype": DataType(UINT8), "expand_animations": False}


@pytest.mark.parametrize("data", [jpeg(), png()])
def test_images_decode_as_by_the_package(data: bytes) -> None:
    [found] = run("DecodeImage", [Tensor.of(data)], 1, DECODE)
    expected = tf.io.decode_image(data, channels=3, expand_animations=False)
    np.testing.assert_array_equal(found.numpy(), expected.numpy())


@pytest.mark.parametrize("data", [b"no image", b"", jpeg()[:200]])
def test_errors_are_those_of_the_package(data: bytes) -> None:
    with pytest.raises(tf.errors.OpError) as expected:
        tf.io.decode_image(data, channels=3, expand_animations=False)
    with pytest.raises(OpError) as raised:
        run("DecodeImage", [Tensor.of(data)], 1, DECODE)
    assert str(raised.value) in expected.value.message


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "what"),
    [
        ("NoSuchOp", [], {}, "NoSuchOp"),
        ("Identity", [], {}, "Identity"),
        ("DecodePng", [b""], {"channels": DataType(INT64)}, "channels"),
        ("ParseExampleV2", [b""], {"sparse_types": [DataType(FLOAT)]}, "ParseExampleV2"),
    ],
)
def test_wrong_calls_are_errors(
    op: str, inputs: list[bytes], attributes: dict[str, Any], what: str
) -> None:
    with pytest.raises(OpError, match=what):
        run(op, [Tensor.of(value) for value in inputs], 1, attributes)


def test_tensors_are_freed() -> None:
    process = psutil.Process()

    def use() -> int:
        for _ in range(50):
            run("Identity", [Tensor.of(np.zeros(2**20, np.uint8))], 1, {})
            run("StringJoin", [[Tensor.of(LARGE), Tensor.of(LARGE)]], 1, {})[0].numpy()
            with pytest.raises(OpError):
                run("DecodePng", [Tensor.of(LARGE)], 1, {})
        gc.collect()
        return process.memory_info().rss

    assert use() - use() > -20 * 2**20


def test_forked_processes_use_it_after_their_parent() -> None:
    run("Identity", [Tensor.of(b"parent")], 1, {})
    child = os.fork()
    if child == 0:
        [found] = run("Identity", [Tensor.of(b"child")], 1, {})
        os._exit(0 if found.numpy()[()] == b"child" else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_the_package_is_not_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert (done.stdout.split(), done.stderr) == (["False", "True"], "")


def test_a_missing_package_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorflow_reader, "_loaded", {})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="TensorFlow is not installed"):
        tensorflow_reader.load()


@pytest.fixture(params=["missing.so", ctypes.util.find_library("c"), "another layout"])
def unusable_library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorflow_reader, "_loaded", {})
    if request.param == "another layout":
        monkeypatch.setattr(tensorflow_reader, "_VIEW", 2)
    else:
        monkeypatch.setattr(tensorflow_reader, "_library_path", lambda: request.param)


@pytest.mark.usefixtures("unusable_library")
def test_the_package_is_used_in_place_of_another_library() -> None:
    assert tensorflow_reader.load() is None
    [found] = run("DecodeImage", [_tensor_of(jpeg(7, 5))], 1, DECODE)
    assert tuple(found.shape) == (5, 7, 3)
    [copied] = run("Identity", [_tensor_of([b"a", b"\0"])], 1, {})
    assert copied.numpy().tolist() == [b"a", b"\0"]
    with pytest.raises(OpError) as raised:
        run("DecodeImage", [_tensor_of(b"no image")], 1, DECODE)
    assert str(raised.value).startswith("Unknown image file format. One of JPEG, ")
    assert str(raised.value).endswith(" required.")


@pytest.mark.usefixtures("unusable_library")
def test_neither_library_nor_package_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(ImportError, match="tensorflow"):
        tensorflow_reader.load()


def test_a_limit_of_memory_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(name: str) -> None:
        raise OSError(f"{name}: failed to map segment from shared object")

    monkeypatch.setattr(tensorflow_reader, "_loaded", {})
    monkeypatch.setattr(ctypes, "CDLL", fails)
    with pytest.raises(ImportError, match="raise the limit of memory"):
        tensorflow_reader.load()
