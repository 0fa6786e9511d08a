"""Opens the base version of a dataset, and rejects options that are incompatible with it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from recordmill.pipelines.run.run_record import read_record
from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig, OnConflict
from recordmill.schemas.document import first_fault
from recordmill.schemas.errors import UsageError, VerificationFailed
from recordmill.schemas.features import Schema
from recordmill.schemas.findings import Finding, counted, finding
from recordmill.schemas.manifest import Base, Manifest
from recordmill.schemas.option import Affects, fields_that_affect
from recordmill.transforms.functional.rows.feature_values import with_background
from recordmill.transforms.shards.base_shards import base_shard_lookup
from recordmill.transforms.storage.dataset import DatasetFolder
from recordmill.transforms.storage.files import is_local
from recordmill.transforms.storage.published import newest_version, version_numbers


def open_base(config: ConvertConfig) -> Base | None:
    """Returns the dataset given by `--base`; None if the option is not set.

    Raises UsageError if it is not published, its manifest is damaged, or it is the dataset to
    write.
    """
    if config.base is None:
        return None
    try:
        dataset = DatasetFolder.open(config.base)
    except VerificationFailed as error:
        raise UsageError(f"--base {error}") from error
    if _is_same_folder(dataset.directory, config.directory):
        raise UsageError(
            f"--base {dataset.directory}: is the dataset to be written. Raise --version."
        )
    _check_manifest(dataset.directory, dataset.manifest)
    return base_of(dataset, keeps_records=config.append, on_conflict=config.on_conflict)


def newest_findings(config: ConvertConfig, base: Base | None) -> Iterator[Finding]:
    """Yields findings if the newest version stays that, or lacks keys that `forget` has removed."""
    with suppress(VerificationFailed):  # a version that cannot be read says nothing of this one
        folder = layout.join(config.output, config.name)
        if (newest := newest_version(folder)) == folder:
            return
        if version_numbers(os.path.basename(newest)) > version_numbers(config.version):
            text = f"{newest} sorts after {config.version}, so it stays the newest version"
            hint = f"Choose a later --version, or name {config.directory} wherever it is read"
            yield finding("warning", "later_version", text, hint)
        if base and newest == base.directory:
            return
        removed = DatasetFolder.open(newest).manifest.removed_keys
        if back := removed - (base.manifest.removed_keys if base else frozenset()):
            what = f"{newest} was made without {counted(len(back), 'key')} that recordmill forget"
            text = f"{what} had removed; this version has them again if the input does"
            hint = f"To leave them out, set --base {newest}, or forget them in this version, too."
            yield finding("warning", "forgotten_keys", text, hint)


def check_base(base: Base, config: ConvertConfig) -> None:
    """Checks that a base version has valid indexes, and is compatible with the other options.

    Raises UsageError if an index is damaged, or an option is incompatible.
    """
    if base.keeps_records:
        _check_append(config, base.manifest)
    _check_sequences(config, base.manifest)
    _check_groups(config, base.manifest)
    _check_classes(config, base.manifest)
    base_shard_lookup(base)  # a damaged base version fails here, not in a worker


def base_of(dataset: DatasetFolder, keeps_records: bool, on_conflict: OnConflict = "fail") -> Base:
    """Returns a published version as the base of a new one.

    `on_conflict`: which of two different records with one key is kept.
    """
    record = read_record(dataset.directory)
    # No checksum covers run.json. Its fingerprints are valid only for the manifest it was
    # published with: a run.json of another version describes other shards.
    is_its_own = record is not None and record.manifest_sha256 == dataset.manifest_sha256
    return Base(
        directory=dataset.directory,
        manifest_sha256=dataset.manifest_sha256,
        manifest=dataset.manifest,
        fingerprints=record.fingerprints if record and is_its_own else {},
        keeps_records=keeps_records,
        on_conflict=on_conflict,
    )


class _Options(BaseModel):
    """The options in the manifest of a base version that determine the split and shard of a row."""

    model_config = ConfigDict(strict=True)

    columns: dict[str, str]
    group_column: str | None
    splits: dict[str, Any] | None
    split_method: str = "hash"
    seed: int


def _check_manifest(directory: str, manifest: Manifest) -> None:
    """Rejects a manifest with invalid options or classes, even if its checksum is valid."""
    path = layout.join(directory, layout.MANIFEST)
    remedy = "Choose another --base."
    try:
        _Options.model_validate(manifest.config)
    except ValidationError as error:
        raise UsageError(f"--base {path}: {first_fault(error, 'config')}. {remedy}") from error
    for feature in manifest.classes.keys() - manifest.dataset_schema.features.keys():
        raise UsageError(f"--base {path}: at classes: unknown feature {feature!r}. {remedy}")


def _is_same_folder(one: str, other: str) -> bool:
    if is_local(one) and is_local(other):
        return os.path.realpath(one) == os.path.realpath(other)
    return one == other


def _check_append(config: ConvertConfig, manifest: Manifest) -> None:
    """Rejects options under which old and new records would not be one dataset."""
    new, old = config.model_dump(mode="json"), manifest.config
    for name in sorted(fields_that_affect(ConvertConfig, Affects.BASE)):
        if new[name] != old.get(name, ConvertConfig.model_fields[name].default):
            raise UsageError(
                f"--append: --base was written with --{name} {old.get(name)!r}, but this run has "
                f"{new[name]!r}. Use the same --{name}, or convert the whole table without "
                "--append."
            )
    for split, entry in sorted(manifest.splits.items()):
        count = config.requested_shards(split)
        number = len(entry.shards)
        if entry.shards and count not in (None, number):
            raise UsageError(
                f"--append: --base has {number} shards of {split!r}, but --num_shards asks for "
                f"{count}: the shards of old records keep their number. Use --num_shards {number}, "
                "or convert the whole table without --append."
            )
    if config.deduplicate != "none":
        raise UsageError(
            "--append: cannot be combined with --deduplicate content, because the files of the "
            "images in --base are not known. Convert the whole table without --append."
        )
    if config.near_duplicates in ("keep_together", "drop"):
        raise UsageError(
            f"--append: cannot be combined with --near_duplicates {config.near_duplicates}, "
            "because the rows of the images in --base are not in the table. Convert the whole "
            "table without --append, or choose --near_duplicates report."
        )
    if config.records_per_shard is not None:
        raise UsageError(
            "--append: cannot be combined with --records_per_shard, because shards of a fixed "
            "number of records cannot gain any. Convert the whole table without --append."
        )
    if config.group_column is not None and config.split_method != "hash":
        raise UsageError(
            f"--append: cannot be combined with --group_column and --split_method "
            f"{config.split_method}, because the groups of the records in --base are not known. "
            "Convert the whole table without --append."
        )


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
    options = config.model_dump(mode="json")
    column = manifest.config["group_column"]
    if config.group_column is None and column is not None:
        raise UsageError(
            f"--base was written with --group_column {column}, but this run has none: new rows "
            f"could be in a different split than their group. Add --group_column {column}."
        )
    if config.group_column is None:
        return
    # Other methods than hash keep the groups of the base version in their splits.
    by_hash = ("split_method", "splits", "seed") if config.split_method == "hash" else ()
    written = {"split_method": "hash", **manifest.config}
    for name in ("group_column", *by_hash):
        if options[name] != written[name]:
            raise UsageError(
                f"--base was written with --{name} {written[name]!r}, but this run has "
                f"{options[name]!r}: new rows could be in a different split than their group. "
                f"Use the same --{name}."
            )


def _check_classes(config: ConvertConfig, manifest: Manifest) -> None:
    """Rejects a list of classes that would change the class ids of the base version."""
    for feature, names in manifest.classes.items():
        offset = manifest.dataset_schema.features[feature].label_offset
        given = with_background(config.class_names or (), offset)
        if config.class_names is not None and given[: len(names)] != names:
            raise UsageError(
                f"--classes: expected the {len(names)} classes of {feature!r} in --base first, "
                f"from {names[0] if names else 'integers'!r} on: their ids must not change. "
                "Append new classes to the end."
            )
