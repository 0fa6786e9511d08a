"""Opens the base version of a dataset, and rejects options that are incompatible with it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from recordmill.pipelines.run.run_record import read_record
from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import UsageError, VerificationFailed
from recordmill.schemas.features import Schema
from recordmill.schemas.manifest import Base, Manifest
from recordmill.transforms.functional.rows.labels import with_background
from recordmill.transforms.shards.base_shards import base_shard_lookup
from recordmill.transforms.storage.dataset import Dataset
from recordmill.transforms.storage.files import is_local


def open_base(config: ConvertConfig) -> Base | None:
    """Returns the dataset given by `--base`; None if the option is not set.

    Raises:
        UsageError: if it is not published, is damaged, or is incompatible with the other options.
    """
    if config.base is None:
        return None
    try:
        dataset = Dataset.open(config.base)
    except VerificationFailed as error:
        raise UsageError(f"--base {error}") from error
    directory, manifest = dataset.directory, dataset.manifest
    if _is_same(directory, config.directory):
        raise UsageError(f"--base {directory}: is the dataset to be written. Raise --version.")
    _check_manifest(directory, manifest)
    _check_sequences(config, manifest)
    _check_groups(config, manifest)
    _check_classes(config, manifest)
    record = read_record(directory)
    # No checksum covers run.json. Its fingerprints are valid only for the manifest it was
    # published with: a run.json of another version describes other shards.
    is_its_own = record is not None and record.manifest_sha256 == dataset.manifest_sha256
    base = Base(
        directory=directory,
        manifest_sha256=dataset.manifest_sha256,
        manifest=manifest,
        fingerprints=record.fingerprints if record and is_its_own else {},
    )
    base_shard_lookup(base)  # a damaged base version fails here, not in a worker
    return base


class _Options(BaseModel):
    """The options in the manifest of a base version that determine the split and shard of a row."""

    model_config = ConfigDict(strict=True)

    columns: dict[str, str]
    group_column: str | None
    splits: dict[str, Any] | None
    seed: int


def _check_manifest(directory: str, manifest: Manifest) -> None:
    """Rejects a manifest with invalid options or classes, even if its checksum is valid."""
    path, remedy = layout.join(directory, layout.MANIFEST), "Choose another --base."
    try:
        _Options.model_validate(manifest.config)
    except ValidationError as error:
        first = error.errors()[0]
        field = " > ".join(str(part) for part in first["loc"])
        raise UsageError(f"--base {path}: at config > {field}: {first['msg']}. {remedy}") from error
    for feature in manifest.classes.keys() - manifest.dataset_schema.features.keys():
        raise UsageError(f"--base {path}: at classes: unknown feature {feature!r}. {remedy}")


def _is_same(one: str, other: str) -> bool:
    """Returns whether two paths are the same folder."""
    if is_local(one) and is_local(other):
        return os.path.realpath(one) == os.path.realpath(other)
    return one == other


def _check_sequences(config: ConvertConfig, manifest: Manifest) -> None:
    """Rejects a base version whose records combine rows by another column."""

    def record_unit(schema: Schema, columns: Mapping[str, str]) -> str:
        group = schema.sequence and schema.sequence.group
        return f"one record per {columns.get(group, group)!r}" if group else "one record per row"

    old = record_unit(manifest.dataset_schema, manifest.config["columns"])
    new = record_unit(config.dataset_schema, config.columns)
    if old != new:
        raise UsageError(f"--base has {old}, but this run would write {new}. Remove --base.")


def _check_groups(config: ConvertConfig, manifest: Manifest) -> None:
    """Rejects options that could assign the new rows of a group to another split."""
    options, column = config.model_dump(mode="json"), manifest.config["group_column"]
    if config.group_column is None and column is not None:
        raise UsageError(
            f"--base was written with --group_column {column}, but this run has none: new rows "
            f"could be in a different split than their group. Add --group_column {column}."
        )
    if config.group_column is None:
        return
    for name in ("group_column", "splits", "seed"):
        if options[name] != manifest.config[name]:
            raise UsageError(
                f"--base was written with --{name} {manifest.config[name]!r}, but this run has "
                f"{options[name]!r}: new rows could be in a different split than their group. "
                f"Use the same --{name}."
            )


def _check_classes(config: ConvertConfig, manifest: Manifest) -> None:
    """Rejects a list of classes that would change the class ids of the base version."""
    for feature, names in manifest.classes.items():
        offset = manifest.dataset_schema.features[feature].label_offset
        given = with_background(config.classes or (), offset)
        if config.classes is not None and given[: len(names)] != names:
            raise UsageError(
                f"--classes: expected the {len(names)} classes of {feature!r} in --base first, "
                f"from {names[0] if names else 'integers'!r} on: their ids must not change. "
                "Append new classes to the end."
            )
