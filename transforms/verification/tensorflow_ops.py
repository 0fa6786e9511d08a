"""Runs TensorFlow's operations through its C API, without the import of its Python package.

Loading the libraries takes 0.3 s of CPU, the import 2 to 4 s and 200 MB more; both run the same
kernels. Sources: tensorflow/c/{c_api,tf_tensor,tf_tstring}.h and tensorflow/c/eager/c_api.h.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_void_p
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from recordmill.transforms.workers.standard_error import rewritten_standard_error

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
_loaded: dict[str, ctypes.CDLL] = {}

# Process id to its context: the threads of a context do not survive a fork.
_contexts: dict[int, int] = {}


class OpError(Exception):
    """An operation of TensorFlow failed."""


class DataType(int):
    """An attribute that is a `TF_DataType`, not a number."""


Attribute: TypeAlias = "bool | int | DataType | Sequence[DataType] | Sequence[Sequence[int]]"


def load() -> ctypes.CDLL:
    """Returns TensorFlow's library, loaded on first use without log messages or a GPU.

    Raises ImportError if TensorFlow is not installed, or its library cannot be used.
    """
    if "library" in _loaded:
        return _loaded["library"]
    with _LOADING:
        if "library" not in _loaded:
            os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
            os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
            path = _library_path()
            try:
                with rewritten_standard_error(_without_info_lines):
                    library = ctypes.CDLL(str(path))
                for name, letters in (item.split(":") for item in _FUNCTIONS.split()):
                    function = getattr(library, name)
                    function.restype, *function.argtypes = (_LETTERS[letter] for letter in letters)
                _check_views(library)
            except (OSError, AttributeError) as error:
                remedy = "expected that of TensorFlow 2.20 or later. Reinstall TensorFlow."
                if any(what in str(error) for what in _NO_MEMORY):
                    remedy = "raise the limit of memory (ulimit -v), or free some."
                raise ImportError(f"{path}: cannot be used: {error}; {remedy}") from error
            _loaded["library"] = library
    return _loaded["library"]


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


def _check_views(library: ctypes.CDLL) -> None:
    """Raises an OSError if the library's strings are not laid out as those of `_views`."""
    text, string = b"text", ctypes.create_string_buffer(_STRING_BYTES)
    library.TF_StringAssignView(string, text, len(text))
    if string.raw != _views([text])[0].tobytes():
        raise OSError("its strings have another layout")


def _library_path() -> Path:
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.origin is None:
        raise ImportError("TensorFlow is not installed. Install the package tensorflow.")
    name = "libtensorflow_cc.2.dylib" if sys.platform == "darwin" else "libtensorflow_cc.so.2"
    return Path(spec.origin).with_name(name)


def _context() -> int:
    """Returns the context of this process, which its threads share."""
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
    """A tensor in TensorFlow's memory.

    `dtype` is its `TF_DataType`.
    """

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


def run(
    op: str,
    inputs: Sequence[Tensor | Sequence[Tensor]],
    outputs: int,
    attributes: Mapping[str, Attribute],
) -> list[Tensor]:
    """Runs an operation.

    `inputs` is its inputs, in the order of its definition; those that are lists, as lists.
    `attributes` is its attributes, except for those that follow from the inputs. Raises OpError if
    it fails.
    """
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
