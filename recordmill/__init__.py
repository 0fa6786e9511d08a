"""Converts image manifests and label tables to verified TFRecord datasets, on Apache Beam.

The names below are the public API. Each is imported when it is first used: `import recordmill`
loads neither Beam nor TensorFlow.
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recordmill.pipelines.api import convert, dry_run, forget
    from recordmill.pipelines.dataset.dataset import Dataset
    from recordmill.pipelines.dataset.dataset import open_dataset as open
    from recordmill.pipelines.dataset.load import load
    from recordmill.pipelines.dataset.records import Records
    from recordmill.pipelines.dict_rows import (
        BuildExamples,
        ReadTables,
        VerifyRecords,
        WriteDataset,
    )
    from recordmill.pipelines.verification import verify
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
    "BuildExamples", "Dataset", "DatasetExists", "ReadTables", "RecordmillError", "Records",
    "RejectBudgetExceeded", "Schema", "SchemaError", "UsageError", "VerificationFailed",
    "VerifyRecords", "WriteDataset", "__version__", "convert", "dry_run", "forget", "load", "open",
    "verify",
]  # fmt: skip

_MODULES = {
    "pipelines.api": ("convert", "dry_run", "forget"),
    "pipelines.dataset.dataset": ("Dataset", "open"),
    "pipelines.dataset.load": ("load",),
    "pipelines.dataset.records": ("Records",),
    "pipelines.dict_rows": ("BuildExamples", "ReadTables", "VerifyRecords", "WriteDataset"),
    "pipelines.verification": ("verify",),
    "schemas.features": ("Schema",),
}
_ORIGINS = {name: module for module, names in _MODULES.items() for name in names}


def _is_of_use(record: logging.LogRecord) -> bool:
    """Returns False for what Beam logs as it is imported without its extra [gcp]."""
    return not record.getMessage().startswith("apitools not found")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("recordmill")
    except PackageNotFoundError:
        return version("recordmill-reader")


if not TYPE_CHECKING:  # type checkers report names that are not above

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            found: Any = _version()
        elif name in __all__:
            module = _ORIGINS.get(name, "schemas.errors")
            logging.getLogger().addFilter(_is_of_use)
            try:
                original = "open_dataset" if name == "open" else name  # not the built-in
                found = getattr(import_module(f"recordmill.{module}"), original)
            except ModuleNotFoundError as error:
                from recordmill.schemas.errors import not_in_reader

                message = f"{not_in_reader(f'recordmill.{name}', error)}."
                raise ImportError(message, name=error.name) from error
            finally:
                logging.getLogger().removeFilter(_is_of_use)
        else:
            raise AttributeError(f"module 'recordmill' has no attribute {name!r}")
        globals()[name] = found  # the next use finds it without a call
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
