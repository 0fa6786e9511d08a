"""Parses records and decodes images with TensorFlow, which shares no code with their writer.

TensorFlow's operations run through its C API, without the import of its Python package: loading the
library takes 0.3 s of CPU, the import 1.4 s and 270 MB more; both run the same kernels. The package
is used if the library lacks a function. Sources: tensorflow/c/{c_api,tf_tensor,tf_tstring}.h and
tensorflow/c/eager/c_api.h.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import inspect
import os
import re
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_void_p
from dataclasses import dataclass
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from recordmill.schemas.features import Feature
from recordmill.schemas.origins import ImageAttribute, Kind
from recordmill.schemas.plan import ResolvedSchema
from recordmill.transforms.workers.process import rewritten_standard_error

# Values of `TF_DataType`.
FLOAT, INT32, UINT8, STRING, INT64, BOOL, UINT16 = 1, 3, 4, 7, 9, 10, 17

_NUMPY: dict[int, type[np.generic]] = {
    **{FLOAT: np.float32, INT32: np.int32, INT64: np.int64},
    **{UINT8: np.uint8, UINT16: np.uint16, BOOL: np.bool_},
}
_TYPES = {np.dtype(dtype): number for number, dtype in _NUMPY.items()}

# Size of a `TF_TString`, and the type of one that refers to bytes of others.
_STRING_BYTES = 24
_VIEW = 3

# Each function with the types of its result and of its arguments, as letters of `_LETTERS`.
_FUNCTIONS = """
TF_NewStatus:p TF_DeleteStatus:-p TF_GetCode:ip TF_Message:sp
TF_AllocateTensor:pipiz TF_DeleteTensor:-p TF_TensorData:pp TF_TensorByteSize:zp
TF_StringAssignView:-psz TF_StringGetDataPointer:pp TF_StringGetSize:zp
TFE_NewContextOptions:p TFE_DeleteContextOptions:-p TFE_NewContext:ppp
TFE_NewTensorHandle:ppp TFE_DeleteTensorHandle:-p TFE_TensorHandleResolve:ppp
TFE_TensorHandleDataType:ip TFE_TensorHandleNumDims:ipp TFE_TensorHandleDim:lpip
TFE_NewOp:ppsp TFE_DeleteOp:-p TFE_OpAddInput:-ppp TFE_OpAddInputList:-ppip TFE_Execute:-pppp
TFE_OpSetAttrInt:-psl TFE_OpSetAttrBool:-psb TFE_OpSetAttrType:-psi TFE_OpSetAttrTypeList:-pspi
TFE_OpSetAttrShapeList:-psppip
"""

_LETTERS: dict[str, Any] = {
    **{"-": None, "p": c_void_p, "s": c_char_p, "i": c_int},
    **{"l": c_int64, "z": c_size_t, "b": ctypes.c_ubyte},
}

# Lines of absl's log that are informational; warnings and errors do not match. TensorFlow 2.21
# ignores its log level while it is loaded.
_INFO_LINES = re.compile(
    rb"(?:WARNING: All log messages before absl|To enable the following instructions:"
    rb"|I\d{4} [\d:.]+ +\d+ [\w.]+:\d+\] ).*\n"
)

# What the loader says if no memory is left for the library.
_NO_MEMORY = ("failed to map segment", "annot allocate memory")

_LOADING = threading.Lock()

# The library, or None if it cannot be used; then also the package.
_loaded: dict[str, Any] = {}

# What the package adds to the message of an operation.
_ADDED = re.compile(r"^\{\{function_node [^}]*\}\} | \[Op:\w+\](?: name: .*)?$")

# Process id to its context: the threads of a context do not survive a fork.
_contexts: dict[int, int] = {}


class OpError(Exception):
    """An operation of TensorFlow failed."""


class DataType(int):
    """An attribute that is a `TF_DataType`, not a number."""


Attribute: TypeAlias = "bool | int | DataType | Sequence[DataType] | Sequence[Sequence[int]]"


def load() -> Any:
    """Returns TensorFlow's library, loaded on first use without log messages or a GPU.

    Returns None if the library cannot be used, but the package. Raises ImportError if TensorFlow is
    not installed, or neither can be used.
    """
    if "library" in _loaded:
        return _loaded["library"]
    with _LOADING:
        if "library" not in _loaded:
            os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
            os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
            path = _library_path()
            with rewritten_standard_error(_without_info_lines):
                try:
                    _loaded["library"] = _load_library(str(path))
                except (OSError, AttributeError) as error:
                    if any(what in str(error) for what in _NO_MEMORY):
                        remedy = "raise the limit of memory (ulimit -v), or free some."
                        raise ImportError(f"{path}: cannot be used: {error}; {remedy}") from error
                    _loaded["package"] = importlib.import_module("tensorflow")
                    _loaded["library"] = None
    return _loaded["library"]


def _load_library(path: str) -> ctypes.CDLL:
    """Loads the library; raises OSError or AttributeError if it is not as expected."""
    library = ctypes.CDLL(path)
    for name, letters in (item.split(":") for item in _FUNCTIONS.split()):
        function = getattr(library, name)
        function.restype, *function.argtypes = (_LETTERS[letter] for letter in letters)
    text, string = b"text", ctypes.create_string_buffer(_STRING_BYTES)
    library.TF_StringAssignView(string, text, len(text))
    if string.raw != _views([text])[0].tobytes():
        raise OSError("its strings have another layout")
    return library


def _without_info_lines(line: bytes) -> bytes:
    """Returns a line of TensorFlow's log, or nothing if it is informational."""
    return _INFO_LINES.sub(b"", line)


def _views(strings: Sequence[bytes]) -> tuple[np.ndarray, object]:
    """Returns the `TF_TString` of each string, and the object that keeps the strings alive.

    A view is its size and type, a pointer, and no owner: tsl/platform/ctstring_internal.h. The
    function of the C API that makes one takes longer than TensorFlow needs to parse a small record.
    """
    pointers = (c_char_p * len(strings))(*strings)
    views = np.zeros((len(strings), _STRING_BYTES // 8), np.uint64)
    views[:, 0] = [len(string) << 2 | _VIEW for string in strings]
    views[:, 1] = np.frombuffer(memoryview(pointers), np.uint64) if strings else 0
    return views, pointers


def _library_path() -> Path:
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.origin is None:
        raise ImportError("TensorFlow is not installed. Install the package tensorflow.")
    name = "libtensorflow_cc.2.dylib" if sys.platform == "darwin" else "libtensorflow_cc.so.2"
    return Path(spec.origin).with_name(name)


def _context() -> int:
    library, process = load(), os.getpid()
    if process in _contexts:
        return _contexts[process]
    with _LOADING:
        if process not in _contexts:
            options = library.TFE_NewContextOptions()
            with rewritten_standard_error(_without_info_lines), _Status(library) as status:
                context = library.TFE_NewContext(options, status.pointer)
            library.TFE_DeleteContextOptions(options)
            _contexts[process] = context
        return _contexts[process]


class _Status:
    """A `TF_Status`: raises the error that it holds when the body ends."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self.pointer = library.TF_NewStatus()

    def __enter__(self) -> _Status:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        code, message = self._library.TF_GetCode(self.pointer), b""
        if code:
            message = self._library.TF_Message(self.pointer)
        self._library.TF_DeleteStatus(self.pointer)
        if code and kind is None:
            raise OpError(message.decode("utf-8", "replace"))


class Tensor:
    """A tensor in TensorFlow's memory; `dtype` is its `TF_DataType`."""

    def __init__(self, handle: int) -> None:
        """Takes over a `TFE_TensorHandle`."""
        library = load()
        self.handle = handle
        self._delete = library.TFE_DeleteTensorHandle  # modules may be gone when it is called
        self._strings: object = None
        self.dtype = library.TFE_TensorHandleDataType(handle)
        with _Status(library) as status:
            rank = library.TFE_TensorHandleNumDims(handle, status.pointer)
            dims = (library.TFE_TensorHandleDim(handle, i, status.pointer) for i in range(rank))
            self.shape: tuple[int, ...] = tuple(dims)

    def __del__(self) -> None:
        self._delete(self.handle)

    @classmethod
    def of(cls, values: bytes | Sequence[bytes] | np.ndarray) -> Tensor:
        """Returns a tensor of strings, which are not copied, or of numbers, which are."""
        if isinstance(values, np.ndarray):
            return cls._filled(_TYPES[values.dtype], values.shape, np.asarray(values, order="C"))
        strings = [values] if isinstance(values, bytes) else values
        shape = () if isinstance(values, bytes) else (len(strings),)
        views, pointers = _views(strings)
        tensor = cls._filled(STRING, shape, views)
        tensor._strings = pointers  # the strings must not be freed before the tensor
        return tensor

    @classmethod
    def _filled(cls, dtype: int, shape: Sequence[int], data: np.ndarray) -> Tensor:
        library = load()
        dims = (c_int64 * len(shape))(*shape)
        tensor = library.TF_AllocateTensor(dtype, dims, len(shape), data.nbytes)
        if data.nbytes:
            ctypes.memmove(library.TF_TensorData(tensor), data.ctypes.data, data.nbytes)
        with _Status(library) as status:
            handle = library.TFE_NewTensorHandle(tensor, status.pointer)
        library.TF_DeleteTensor(tensor)
        return cls(handle)

    def numpy(self) -> np.ndarray:
        """Returns a copy of its values; strings are bytes objects."""
        library = load()
        with _Status(library) as status:
            tensor = library.TFE_TensorHandleResolve(self.handle, status.pointer)
        try:
            data = library.TF_TensorData(tensor) or 0
            if self.dtype != STRING:
                content = ctypes.string_at(data, library.TF_TensorByteSize(tensor)) if data else b""
                return np.frombuffer(content, _NUMPY[self.dtype]).reshape(self.shape)
            found = np.empty(prod(self.shape), object)
            for number in range(len(found)):
                string = data + _STRING_BYTES * number
                start = library.TF_StringGetDataPointer(string)
                found[number] = ctypes.string_at(start, library.TF_StringGetSize(string))
            return found.reshape(self.shape)
        finally:
            library.TF_DeleteTensor(tensor)


def _tensor_of(values: bytes | Sequence[bytes] | np.ndarray) -> Any:
    """Returns a tensor with attributes `shape` and `numpy`, as the package's."""
    if load() is None:
        dtype = None if isinstance(values, np.ndarray) else "string"
        return _loaded["package"].constant(values, dtype)
    return Tensor.of(values)


def run(
    op: str,
    inputs: Sequence[Any | Sequence[Any]],
    outputs: int,
    attributes: Mapping[str, Attribute],
) -> Sequence[Any]:
    """Runs an operation; raises OpError if it fails.

    `inputs` are tensors, or lists of them, in the order of its definition. `attributes` are those
    that do not follow from the inputs.
    """
    if load() is None:
        return _run_by_package(_loaded["package"], op, inputs, attributes)
    return _run_by_library(op, inputs, outputs, attributes)


def _run_by_package(
    package: Any, op: str, inputs: Sequence[Any], attributes: Mapping[str, Attribute]
) -> Sequence[Any]:
    function = getattr(package.raw_ops, op)
    named = dict(zip(inspect.signature(function).parameters, inputs, strict=False))
    try:
        found = function(**named, **attributes)
    except package.errors.OpError as error:
        raise OpError(_ADDED.sub("", error.message)) from error
    except UnicodeDecodeError as error:  # the message quotes a record
        raise OpError(error.object.decode("utf-8", "replace")) from error
    flat: Sequence[Any] = package.nest.flatten(found)
    return flat


def _run_by_library(
    op: str,
    inputs: Sequence[Tensor | Sequence[Tensor]],
    outputs: int,
    attributes: Mapping[str, Attribute],
) -> Sequence[Tensor]:
    library, context = load(), _context()
    with _Status(library) as status:
        operation = library.TFE_NewOp(context, op.encode(), status.pointer)
    try:
        for value in inputs:
            with _Status(library) as status:
                if isinstance(value, Tensor):
                    library.TFE_OpAddInput(operation, value.handle, status.pointer)
                else:
                    handles = (c_void_p * len(value))(*(tensor.handle for tensor in value))
                    library.TFE_OpAddInputList(operation, handles, len(value), status.pointer)
        for name, attribute in attributes.items():
            _set(library, operation, name.encode(), attribute)
        results, count = (c_void_p * outputs)(), c_int(outputs)
        with _Status(library) as status:
            library.TFE_Execute(operation, results, byref(count), status.pointer)
        return [Tensor(handle) for handle in results if handle]
    finally:
        library.TFE_DeleteOp(operation)


def _set(library: ctypes.CDLL, operation: int, name: bytes, value: Attribute) -> None:
    if isinstance(value, bool):
        library.TFE_OpSetAttrBool(operation, name, value)
    elif isinstance(value, DataType):
        library.TFE_OpSetAttrType(operation, name, value)
    elif isinstance(value, int):
        library.TFE_OpSetAttrInt(operation, name, value)
    elif shapes := [item for item in value if not isinstance(item, int)]:
        dims = [(c_int64 * len(shape))(*shape) for shape in shapes]
        pointers = (POINTER(c_int64) * len(dims))(*(ctypes.cast(d, POINTER(c_int64)) for d in dims))
        ranks = (c_int * len(dims))(*map(len, dims))
        with _Status(library) as status:
            library.TFE_OpSetAttrShapeList(
                operation, name, pointers, ranks, len(dims), status.pointer
            )
    else:  # an empty list has no type
        types = [item for item in value if isinstance(item, int)]
        library.TFE_OpSetAttrTypeList(operation, name, (c_int * len(types))(*types), len(types))


_SHAPE = (ImageAttribute.HEIGHT, ImageAttribute.WIDTH, ImageAttribute.CHANNELS)
_KINDS = {Kind.INT64: INT64, Kind.FLOAT: FLOAT, Kind.BYTES: STRING}
_MISSING: dict[Kind, Any] = {Kind.INT64: np.int64(0), Kind.FLOAT: np.float32(0), Kind.BYTES: b""}


class UnequalLengthsError(Exception):
    """The frame features of a sequence differ in length."""


class BadImageError(Exception):
    """A decoded image or mask does not have the shape that its record states."""


@dataclass(frozen=True)
class ParsedBatch:
    """A parsed batch of records."""

    resolved: ResolvedSchema
    # Feature name to a tensor of all records' values, (records, ...), or (values,) of a feature
    # with any number of values.
    context: Mapping[str, Any]
    # Feature name to a tensor of all frames' values, padded, (records, frames, ...), or (values,);
    # {} unless the records are sequences.
    frames: Mapping[str, Any]
    # The number of frames of each record; None unless the records are sequences.
    lengths: list[int] | None

    def labels(self, name: str) -> list[int]:
        """Returns the class ids of all records, or of all their frames, in a feature."""
        values = (self.frames if name in self.frames else self.context)[name].numpy()
        if self.lengths is not None and name in self.frames and values.ndim > 1:
            values = np.concatenate([values[i, :n] for i, n in enumerate(self.lengths)])
        labels: list[int] = values.ravel().tolist()
        no_label = self.resolved.schema.features[name].no_label
        return labels if no_label is None else [label for label in labels if label != no_label]

    def not_finite(self) -> dict[str, int]:
        """Returns the number of values that are NaN or infinite, by feature that has some."""
        floats = [n for n, f in self.resolved.schema.features.items() if f.kind is Kind.FLOAT]
        values = {**self.context, **self.frames}  # shorter sequences are padded with 0
        counts = {name: int((~np.isfinite(values[name].numpy())).sum()) for name in floats}
        return {name: count for name, count in counts.items() if count}

    def decode(self) -> None:
        """Decodes every image with the functions that training code uses, and its mask.

        Raises OpError if TensorFlow cannot decode an image. Raises BadImageError if an image or
        mask does not have the shape that its record states.
        """
        schema = self.resolved.schema
        for key, name in schema.encoded_images.items():
            self._decode_all(key, schema.attributes[name], None if name else schema.mask_feature)

    def _decode_all(
        self, image: str, attributes: Mapping[str, ImageAttribute], mask: str | None
    ) -> None:
        keys = {attribute: key for key, attribute in attributes.items() if attribute in _SHAPE}
        tensors = self.frames or self.context
        values = {name: tensors[name].numpy() for name in (image, mask, *keys.values()) if name}
        # (record,) or (record, frame) of each image
        places = (
            range(len(values[image]))
            if self.lengths is None or not self.frames
            else ((i, j) for i, length in enumerate(self.lengths) for j in range(length))
        )
        for place in places:
            ids = values[mask][place] if mask else None
            shape = {attribute: int(values[key][place]) for attribute, key in keys.items()}
            check_image(values[image][place], shape, ids, self.resolved.schema.masks.bit_depth)


class _Features:
    """Features as TensorFlow's parsers take them: lists of values, and arrays of a fixed shape.

    `lists`: names of features with any number of values. `list_types`: types of `lists`.
    `array_types`: types of `arrays`. `shapes`: shapes of `arrays`; -1 where the number of rows is
    not fixed. `defaults`: values of `arrays` that a record lacks; empty for those that it must
    have.
    """

    def __init__(self, features: Mapping[str, Feature], as_lists: Collection[str] = ()) -> None:
        self.lists = sorted(n for n, f in features.items() if f.optional or n in as_lists)
        self.arrays = sorted(features.keys() - set(self.lists))
        self.list_types = [DataType(_KINDS[features[name].kind]) for name in self.lists]
        arrays = [features[name] for name in self.arrays]
        self.array_types = [DataType(_KINDS[feature.kind]) for feature in arrays]
        self.shapes = [[-1 if n is None else n for n in feature.shape or ()] for feature in arrays]
        self.defaults = [_default(feature) for feature in arrays]


def _default(feature: Feature) -> Any:
    padding = _MISSING[feature.kind]
    if isinstance(padding, bytes):
        return _tensor_of(padding if feature.has_open_rows else [])
    return _tensor_of(np.full(() if feature.has_open_rows else 0, padding))


def _names(names: Sequence[str]) -> Any:
    return _tensor_of([name.encode() for name in names])


def parse_batch(records: Sequence[bytes], resolved: ResolvedSchema) -> ParsedBatch:
    """Parses a batch of serialized records.

    Raises OpError if a record does not match the schema, UnequalLengthsError if the frame features
    of a sequence differ in length.
    """
    schema = resolved.schema
    if schema.message == "SequenceExample":
        return _parse_sequences(records, resolved)
    features, none = _Features(schema.features_of_record, schema.frame_features), _names(())
    names = _names(features.lists), _names(features.arrays)
    count = len(features.lists)
    found = run(
        "ParseExampleV2",
        [_tensor_of(records), none, *names, none, features.defaults],
        3 * count + len(features.arrays),
        {
            "num_sparse": count,
            "sparse_types": features.list_types,
            "ragged_value_types": [],
            "ragged_split_types": [],
            "dense_shapes": features.shapes,
        },
    )
    # indices, values and shapes of the lists, then the arrays
    values = [*found[count : 2 * count], *found[3 * count :]]
    context = dict(zip((*features.lists, *features.arrays), values, strict=True))
    if not schema.has_steps:
        return ParsedBatch(resolved, context, {}, None)
    counts = dict[str, list[int]]()
    indices_of = dict(zip(features.lists, found, strict=False))
    for name in schema.frame_features:
        sizes = np.bincount(indices_of[name].numpy()[:, 0], minlength=len(records))
        width = prod(size for size in schema.features[name].shape or () if size)
        counts[name], rest = (part.tolist() for part in np.divmod(sizes, width))
        if any(rest):
            raise UnequalLengthsError(f"{name!r} does not have as many values in each frame")
    return ParsedBatch(resolved, context, {}, _equal_lengths(counts))


def _parse_sequences(records: Sequence[bytes], resolved: ResolvedSchema) -> ParsedBatch:
    context, frames = (
        _Features(features)
        for features in (resolved.schema.context_features, resolved.schema.frame_features)
    )
    none = _names(())
    found = iter(
        run(
            "ParseSequenceExampleV2",
            [
                _tensor_of(records),
                none,
                *(_names(context.lists), _names(context.arrays), none),
                *(none, _names(frames.arrays), _names(frames.lists)),
                _tensor_of(np.zeros(len(frames.arrays), np.bool_)),  # none may be missing
                context.defaults,
            ],
            3 * len(context.lists)
            + len(context.arrays)
            + 2 * len(frames.arrays)
            + 3 * len(frames.lists),
            {
                "Ncontext_sparse": len(context.lists),
                "context_sparse_types": context.list_types,
                "context_dense_shapes": context.shapes,
                "Nfeature_list_dense": len(frames.arrays),
                "feature_list_dense_types": frames.array_types,
                "feature_list_dense_shapes": frames.shapes,
                "feature_list_ragged_value_types": frames.list_types,
                "feature_list_ragged_split_types": [DataType(INT64)] * len(frames.lists),
            },
        )
    )

    def take(names: Sequence[str]) -> dict[str, Any]:
        return dict(zip(names, islice(found, len(names)), strict=True))

    take(context.lists)  # indices
    of_context = take(context.lists)
    take(context.lists)  # shapes
    of_context |= take(context.arrays)
    of_frames, lengths = take(frames.arrays), take(frames.arrays)
    of_frames |= take(frames.lists)
    counts = {name: tensor.numpy().tolist() for name, tensor in lengths.items()}
    counts |= {name: np.diff(t.numpy()).tolist() for name, t in take(frames.lists).items()}
    return ParsedBatch(resolved, of_context, of_frames, _equal_lengths(counts))


def _equal_lengths(counts: Mapping[str, list[int]]) -> list[int]:
    """Returns the number of frames of each record, from those of each of its features."""
    first, *others = counts.values()  # feature name to the length of its list in each record
    for number, found in enumerate(zip(first, *others, strict=True)):
        if len(set(found)) > 1 or not found[0]:
            summary = ", ".join(f"{name!r} {count[number]}" for name, count in counts.items())
            raise UnequalLengthsError(f"its lists do not have one item per frame: {summary}")
    return first


def check_image(
    data: bytes, stated: Mapping[ImageAttribute, int], mask: bytes | None, bit_depth: int
) -> None:
    """Decodes an image and its mask, and compares their shapes with the record's.

    Raises OpError if TensorFlow cannot decode one of them, BadImageError if it does not have the
    stated shape, of which some sides may be absent.
    """
    image = _tensor_of(data)
    run("DecodeJpeg", [image], 1, {"channels": 3})  # many readers call it for PNG as well
    [decoded] = run("DecodeImage", [image], 1, {"expand_animations": False})
    found = dict(zip(_SHAPE, decoded.shape, strict=True))
    for attribute, value in stated.items():
        if value != found[attribute]:
            what = f"{attribute.value} of {found[attribute]}, recorded {value}"
            raise BadImageError(f"the image decodes to a {what}")
    if mask is not None:
        _decode_mask(mask, found, bit_depth)


def _decode_mask(data: bytes, image: Mapping[ImageAttribute, int], bit_depth: int) -> None:
    """Decodes a mask, which must have one channel and the size of its image."""
    dtype = DataType(UINT8 if bit_depth == 8 else UINT16)
    [ids] = run("DecodePng", [_tensor_of(data)], 1, {"dtype": dtype})
    expected = (image[ImageAttribute.HEIGHT], image[ImageAttribute.WIDTH], 1)
    if ids.shape != expected:
        raise BadImageError(f"the mask decodes to {list(ids.shape)}, expected {list(expected)}")
