"""Converts image manifests and label tables to verified TFRecord datasets, on Apache Beam.

The names below are the public API. Each is imported when it is first used: `import recordmill`
loads neither Beam nor TensorFlow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recordmill.pipelines.dataset.load import load
    from recordmill.pipelines.dataset.records import Records
    from recordmill.schemas.errors import (
        DatasetExists,
        RecordmillError,
        RejectBudgetExceeded,
        SchemaError,
        UsageError,
        VerificationFailed,
    )
    from recordmill.schemas.features import Schema

    __version__: str

__all__ = [
    "DatasetExists",
    "RecordmillError",
    "Records",
    "RejectBudgetExceeded",
    "Schema",
    "SchemaError",
    "UsageError",
    "VerificationFailed",
    "__version__",
    "load",
]

_MODULES = {
    "DatasetExists": "schemas.errors",
    "RecordmillError": "schemas.errors",
    "Records": "pipelines.dataset.records",
    "RejectBudgetExceeded": "schemas.errors",
    "Schema": "schemas.features",
    "SchemaError": "schemas.errors",
    "UsageError": "schemas.errors",
    "VerificationFailed": "schemas.errors",
    "load": "pipelines.dataset.load",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        found: Any = version("recordmill")
    elif name in _MODULES:
        found = getattr(import_module(f"recordmill.{_MODULES[name]}"), name)
    else:
        raise AttributeError(f"module 'recordmill' has no attribute {name!r}")
    globals()[name] = found  # the next use finds it without a call
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
