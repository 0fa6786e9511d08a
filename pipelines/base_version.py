"""Opens the dataset that a new version is made from, and rejects what does not go with it."""

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
    """Returns the dataset that `--base` names; None if it names none.

    Raises:
        UsageError: if none is published there, it is damaged, or the other flags do not go with it.
    """
    if config.base is None:
        return None
    try:
        dataset = Dataset.open(config.base)
    except VerificationFailed as error:
        raise UsageError(f"--base {error}") from error
    directory, manifest = dataset.directory, dataset.manifest
    if _is_same(directory, config.directory):
        raise UsageError(f"--base {directory}: is the dataset to be made; raise --version")
    _check_manifest(directory, manifest)
    _check_sequences(config, manifest)
    _check_groups(config, manifest)
    _check_classes(config, manifest)
    record = read_record(directory)
    # No checksum covers it: one that was left by another version of the dataset knows other shards.
    is_its_own = record is not None and record.manifest_sha256 == dataset.manifest_sha256
    base = Base(
        directory=directory,
        manifest_sha256=dataset.manifest_sha256,
        manifest=manifest,
        fingerprints=record.fingerprints if record and is_its_own else {},
    )
    base_shard_lookup(
        base
    )  # reads its keys: here, a damaged base is a message, and not an engine's failure
    return base


class _Options(BaseModel):
    """The options of a base that decide where its rows are."""

    model_config = ConfigDict(strict=True)

    columns: dict[str, str]
    group_column: str | None
    splits: dict[str, Any] | None
    seed: int


def _check_manifest(directory: str, manifest: Manifest) -> None:
    """Rejects a manifest whose options and classes no run has written, whatever its checksum."""
    path, remedy = layout.join(directory, layout.MANIFEST), "choose another --base"
    try:
        _Options.model_validate(manifest.config)
    except ValidationError as error:
        first = error.errors()[0]
        place = " > ".join(str(part) for part in first["loc"])
        raise UsageError(f"--base {path}: at config > {place}: {first['msg']}; {remedy}") from error
    for feature in manifest.classes.keys() - manifest.dataset_schema.features.keys():
        raise UsageError(f"--base {path}: at classes: unknown feature {feature!r}; {remedy}")


def _is_same(one: str, other: str) -> bool:
    """Returns whether two paths name one folder, however they are written."""
    if is_local(one) and is_local(other):
        return os.path.realpath(one) == os.path.realpath(other)
    return one == other


def _check_sequences(config: ConvertConfig, manifest: Manifest) -> None:
    """Rejects a base whose records are made from other rows than those of this run."""

    def reported(schema: Schema, columns: Mapping[str, str]) -> str:
        group = schema.sequence and schema.sequence.group
        return (
            f"a record of each {columns.get(group, group)!r}" if group else "a record of each row"
        )

    old = reported(manifest.dataset_schema, manifest.config["columns"])
    new = reported(config.dataset_schema, config.columns)
    if old != new:
        raise UsageError(f"--base was made with {old}, and this run makes {new}: leave --base out")


def _check_groups(config: ConvertConfig, manifest: Manifest) -> None:
    """Rejects what would part the new rows of a group from its old ones."""
    asked, column = config.model_dump(mode="json"), manifest.config["group_column"]
    if config.group_column is None and column is not None:
        raise UsageError(
            f"--base was made with --group_column {column}, and this run has none: new rows would "
            f"not join their group, but could be in another split; give --group_column {column}"
        )
    if config.group_column is None:
        return
    for name in ("group_column", "splits", "seed"):
        if asked[name] != manifest.config[name]:
            raise UsageError(
                f"--base was made with {name} {manifest.config[name]!r}, and this run has "
                f"{asked[name]!r}: new rows would not join their group; give the same --{name}"
            )


def _check_classes(config: ConvertConfig, manifest: Manifest) -> None:
    """Rejects a list of classes that would give those of the base other ids."""
    for feature, names in manifest.classes.items():
        offset = manifest.dataset_schema.features[feature].label_offset
        given = with_background(config.classes or (), offset)
        if config.classes is not None and given[: len(names)] != names:
            raise UsageError(
                f"--classes does not begin with the {len(names)} classes of --base, "
                f"{names[0] if names else 'integers'!r} and so on, that {feature!r} has: "
                "their ids have to stay; append the new ones"
            )
