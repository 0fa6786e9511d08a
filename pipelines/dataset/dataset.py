"""The `Dataset` class of the public API: files, records, loading and verification.

Importing this module loads neither TensorFlow nor Beam; calling `load` or `verify` does.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pydantic import BaseModel

from recordmill.pipelines.dataset.records import Records, class_weights
from recordmill.pipelines.findings import Outcome, findings_of
from recordmill.schemas import layout
from recordmill.schemas.config import Verify
from recordmill.schemas.dataset_info import Problem
from recordmill.schemas.errors import UsageError, not_in_reader
from recordmill.schemas.findings import Finding, lines
from recordmill.schemas.rejects import reason_counts
from recordmill.schemas.statistics import ChannelStatistics
from recordmill.transforms.storage import dataset as storage
from recordmill.transforms.storage.published import content, newest_version

if TYPE_CHECKING:
    from typing import Concatenate, ParamSpec, TypeVar

    from recordmill.pipelines.dataset.load import load as load_function

    Parameters = ParamSpec("Parameters")
    Loaded = TypeVar("Loaded")

    def _as_method(
        function: Callable[Concatenate[Any, Parameters], Loaded],
    ) -> Callable[Concatenate[Dataset, Parameters], Loaded]: ...


class _Run(BaseModel):
    manifest_sha256: str
    findings: tuple[Finding, ...]


class Dataset(storage.DatasetFolder):
    """A published dataset, as `recordmill.open` returns it."""

    def __repr__(self) -> str:
        """Returns the records of each split, and what the command prints about the run."""
        counts = reason_counts(self.manifest.input.reasons)
        rejects = [f"rejected: {counts}"] if counts else []
        return "\n".join([super().__repr__(), *rejects, *lines(self.findings)])

    @cached_property
    def records(self) -> Records:
        """All records, by number and by key; for a split or slice, use `Records`.

        Raises:
            UsageError: if the shards are compressed.
        """
        return Records(self, "all")

    @property
    def channels(self) -> ChannelStatistics | None:
        """Mean and standard deviation of the color channels, to normalize images with.

        None if the dataset has no images, or is of an earlier release.
        """
        return self.manifest.channels

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What the run noticed about the data, most of which is computed from the manifest.

        The names of skipped inputs are known only if `run.json` is that of the dataset.
        """
        data = content(layout.join(self.directory, layout.RUN)) or b"{}"
        with contextlib.suppress(ValueError):  # damaged, or of an earlier release
            run = _Run.model_validate_json(data)
            if run.manifest_sha256 == self.manifest_sha256:
                return run.findings
        return findings_of(Outcome(self.manifest))

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state without the index of the records, which is read again when needed."""
        return {name: value for name, value in vars(self).items() if name != "records"}

    if TYPE_CHECKING:
        # The parameters are declared once, in load(), whose module imports TensorFlow.
        load = _as_method(load_function)
    else:

        def load(self, split: str = "train", **options: Any) -> Any:
            """Loads records for training; see `recordmill.load`.

            Args:
                split: a split or slice, such as `train[:80%]` or `train[100:200]+test`.
                **options: keywords of `recordmill.load`, such as `batch_size` and `image_size`.

            Raises:
                UsageError: if an option is not valid, or not supported by the dataset.
            """
            from recordmill.pipelines.dataset.load import load  # imports TensorFlow

            return load(self, split, **options)

    def class_weights(self, split: str = "train") -> dict[int, float]:
        """Returns a weight for each class id, by which all classes count the same.

        It is that of scikit-learn's `class_weight="balanced"`: records / (classes * records of the
        class). A class without a record has weight 0.

        Args:
            split: a split or slice, such as `train` or `train[:80%]`.

        Raises:
            UsageError: if records have no class, or several.
        """
        return class_weights(self, split)

    def sizes(self, split: str = "train") -> np.ndarray:
        """Returns the width and height of each image in pixels, (images, 2); reads no shard.

        Args:
            split: a split or slice, such as `train` or `train[:80%]`.

        Raises:
            UsageError: if the dataset has no images.
        """
        schema = self.manifest.dataset_schema
        if not schema.has_image:
            raise UsageError(f"{self.directory}: schema {schema.name!r} has no images.")
        names = ["width", "height"]
        table = self.columns(self.select(split), names)
        # Sequences have a list of sizes per record.
        columns = [table[name].combine_chunks() for name in names]
        flat = [c.flatten() if pa.types.is_list(c.type) else c for c in columns]
        return np.column_stack([column.to_numpy(zero_copy_only=False) for column in flat])

    def verify(self, level: Verify = "parse") -> list[Problem]:
        """Verifies all files against the manifest, and returns the problems.

        Args:
            level: "parse" to parse every record, "decode" to decode every image as well.

        Raises:
            UsageError: if only `recordmill-reader` is installed, which has no verifier.
        """
        try:
            from recordmill.pipelines.dataset.verify import verify_dataset  # imports Beam
        except ModuleNotFoundError as error:
            raise UsageError(f"{not_in_reader('Dataset.verify', error)}.") from error
        return verify_dataset(self.directory, level)[1]


def open_dataset(path: str | os.PathLike[str]) -> Dataset:
    """Opens a published dataset.

    Args:
        path: the dataset's folder, DIR/NAME/VERSION, or DIR/NAME for its newest version; on this
            machine or in an object store.

    Returns:
        The dataset. Its manifest is read and checked against the commit marker.

    Raises:
        VerificationFailed: if no dataset is published there, or its manifest has been changed.
    """
    return Dataset.open(newest_version(path))
