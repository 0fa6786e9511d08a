"""Reads TFRecord files by what lies beside them: a manifest, TFDS metadata, or class names.

A published dataset has the schema of its records, the names of its classes, and the key of each
record. TFDS has features.json and files of class names; the Object Detection API has label maps.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

from recordmill.schemas import layout
from recordmill.schemas.errors import UsageError, VerificationFailed
from recordmill.schemas.findings import some
from recordmill.schemas.manifest import ShardEntry
from recordmill.schemas.masking import masked_url
from recordmill.schemas.shard_format import SUFFIX_PATTERN
from recordmill.schemas.tables import TableFile
from recordmill.transforms.functional.images.sniffing import has_image_suffix
from recordmill.transforms.functional.rows.binding import common_folder
from recordmill.transforms.functional.rows.feature_values import label_map
from recordmill.transforms.functional.sources import record_columns
from recordmill.transforms.functional.sources.tfrecord import RecordMetadata
from recordmill.transforms.inputs.formats import has_records
from recordmill.transforms.storage.dataset import DatasetFolder, read_index
from recordmill.transforms.storage.files import entries, is_local
from recordmill.transforms.storage.published import newest_version, read_file, version_numbers

# What a run that has begun to write a dataset leaves in its folder.
_OF_RUN = (layout.RUN, layout.MANIFEST)

FEATURES = "features.json"
_LABELS = ".labels.txt"
_MAX_BYTES = 64 * 2**20

# The features of class ids whose names a file without the name of a feature has.
_UNNAMED = ("image/object/class/label", "image/class/label", "label")
_VERSION = re.compile(r"\d+\.\d+\.\d+", re.ASCII)
_RECORDS = re.compile(rf"\.(tfrecords?|tfrec|records?)(-\d+-of-\d+)?{SUFFIX_PATTERN}$")
_NUMBERED = re.compile(r"(\d+):(.+)")


@dataclass(frozen=True)
class Metadata(RecordMetadata):
    """The files beside TFRecord files that describe their records."""

    folder: str  # their folder, such as that of a published dataset
    sha256: str  # the digest of their content, by which a change during the run is noticed

    @property
    def columns(self) -> record_columns.RecordColumns:
        """The columns of the records."""
        return _described(self).columns

    @property
    def group_column(self) -> str:
        """The column whose groups are each in one split of a published dataset; "" if none is."""
        return _described(self).group_column

    def keys_of(self, path: str) -> list[str] | None:
        """Returns the keys of a file's records, if any; VerificationFailed if unreadable."""
        shard = _described(self).shards.get(posixpath.basename(path))
        if shard is None:
            return None
        index = layout.join(self.folder, shard.index_file)
        keys: list[str] = read_index(index, ["key"], shard.index_sha256)["key"].to_pylist()
        return keys


class Description(NamedTuple):
    """What is known of the records of the TFRecord files in a folder."""

    columns: record_columns.RecordColumns
    # The shards of a published dataset by file; {} for other folders.
    shards: Mapping[str, ShardEntry] = {}
    name: str = ""  # the name of the dataset; "" for other folders
    version: str = ""
    group_column: str = ""


def record_files(folder: str) -> list[str]:
    """Returns the TFRecord files of a dataset, or of a folder without images; [] for others.

    Of the versions of a dataset, the newest is read.
    """
    folders, files = entries(folder)
    _check_published(folder, files)
    if {layout.SUCCESS, layout.MANIFEST} <= {*files}:
        metadata = _metadata_of(folder)
        shards = _described(metadata).shards if metadata else ()
        return [layout.join(folder, name) for name in shards]
    if versions := sorted(filter(_VERSION.fullmatch, folders), key=version_numbers):
        if (newest := newest_version(folder)) != folder:
            return record_files(newest)
        for version in versions:
            below = layout.join(folder, version)
            _check_published(below, entries(below)[1])
        if FEATURES in entries(below)[1]:  # the newest version of TFDS
            return record_files(below)
    names = sorted(filter(is_record_file, files))
    # Salvaged records are in files of any name, which `lost.jsonl` is beside.
    is_mixed = folders or layout.LOST in files or any(map(has_image_suffix, files))
    return [] if is_mixed and FEATURES not in files else [layout.join(folder, n) for n in names]


def is_record_file(name: str) -> bool:
    """Returns whether a file is named like those of TFRecords."""
    return _RECORDS.search(name.lower()) is not None


def _check_published(folder: str, files: Collection[str]) -> None:
    """Rejects the folder of a run that was not published: its shards are not verified."""
    # A folder without shards may have files of these names for other reasons.
    is_run = not {*_OF_RUN}.isdisjoint(files) and any(map(is_record_file, files))
    if is_run and layout.SUCCESS not in files:
        raise UsageError(
            f"{folder}: is not published: it has no {layout.SUCCESS}, so its records are "
            "not verified. Run its conversion again, or name another version."
        )


def _metadata_of(folder: str) -> Metadata | None:
    """Returns the metadata of the TFRecord files in a folder; None if there is none."""
    if layout.is_web(folder):
        return None  # most hosts answer requests of files that they do not have in their own ways
    marker = read_file(layout.join(folder, layout.SUCCESS))
    if marker is None:
        _check_published(folder, entries(folder)[1])
    if marker is not None and read_file(layout.join(folder, layout.MANIFEST)) is not None:
        return Metadata(folder, marker.decode("ascii", "replace").strip())
    files = _described_by(folder)
    return Metadata(folder, _digest(files)) if files else None


def metadata_in(file: TableFile) -> Metadata | None:
    """Returns the metadata that a source was listed with; None if there is none."""
    return file.options if isinstance(file.options, Metadata) else None


@lru_cache(8)
def _described(metadata: Metadata) -> Description:
    folder = metadata.folder
    changed = f"{folder}: the metadata has changed during the run. Convert again."
    files = _described_by(folder)
    if metadata.sha256 == _digest(files):
        return Description(_by_files(files, folder))
    try:
        dataset = DatasetFolder.open(folder)
    except VerificationFailed as error:
        raise UsageError(str(error)) from error
    if dataset.manifest_sha256 != metadata.sha256:
        raise UsageError(changed)
    manifest = dataset.manifest
    columns = record_columns.columns_of(manifest.dataset_schema, manifest.classes)
    shards = {shard.file: shard for shard in dataset.shards().values()}
    groups = manifest.config["group_column"] or ""
    return Description(columns, shards, manifest.name, manifest.version, groups)


def with_metadata(files: Sequence[TableFile]) -> list[TableFile]:
    """Returns TFRecord files with what describes their records, and other files as they are."""
    folders = {posixpath.dirname(file.path) for file in files if file.format == "tfrecord"}
    if not folders:
        return list(files)
    metadata = {folder: _metadata_of(folder or ".") for folder in sorted(folders)}
    prefixes = _key_prefixes([found for found in metadata.values() if found])
    described_files = list[TableFile]()
    for file in files:
        found = metadata.get(posixpath.dirname(file.path)) if file.format == "tfrecord" else None
        if found and _is_about(found, file):
            file = replace(file, options=found, key_prefix=prefixes.get(found, ""))
        described_files.append(file)
    return described_files


def _is_about(metadata: Metadata, file: TableFile) -> bool:
    """Returns whether metadata is about a file: a dataset lists its shards."""
    shards = _described(metadata).shards
    return not shards or posixpath.basename(file.path) in shards


def _key_prefixes(metadata: Sequence[Metadata]) -> dict[Metadata, str]:
    """Returns a folder for the keys of each of several datasets, whose keys may be equal."""
    datasets = {found: one for found in metadata if (one := _described(found)).shards}
    if len(datasets) < 2:
        return {}
    root = common_folder([f"{found.folder}/" for found in datasets])
    for names in (
        [one.name for one in datasets.values()],
        [f"{one.name}/{one.version}" for one in datasets.values()],
        [found.folder.removeprefix(root) for found in datasets],
    ):
        if len(set(names)) == len(names):
            break
    return {found: f"{name}/" for found, name in zip(datasets, names, strict=True)}


def dataset_lines(files: Sequence[TableFile]) -> Iterator[str]:
    """Yields a description of each dataset in an input, and files of records that are not read."""
    for found in dict.fromkeys(filter(None, map(metadata_in, files))):
        if (dataset := _described(found)).shards:
            yield f"{masked_url(found.folder)}: read as dataset {dataset.name} {dataset.version}"
        elif _VERSION.fullmatch(version := posixpath.basename(found.folder)):
            name = posixpath.basename(posixpath.dirname(found.folder))
            yield f"{masked_url(found.folder)}: read as dataset {name} {version} of TFDS"
    known = {file.path for file in files if file.format == "tfrecord"}
    for folder in sorted({*filter(is_local, map(posixpath.dirname, known))}):
        beside = entries(folder or ".")[1]
        if layout.LOST in beside:
            yield f"{layout.join(folder, layout.LOST)}: lists damaged records that these files lack"
        here = {layout.join(folder, name) for name in beside} - known
        if names := sorted(n for n in here if not has_image_suffix(n) and has_records(n)):
            yield f"not read: {some(names)}: other TFRecords in the folder; name them with --input"


def _described_by(folder: str) -> dict[str, bytes]:
    """Returns the content of the files that describe TFRecord files, by name."""
    names = sorted(name for name in entries(folder)[1] if _describes(name))
    found = ((name, read_file(layout.join(folder, name))) for name in names)
    return {name: data for name, data in found if data is not None and len(data) <= _MAX_BYTES}


def _describes(name: str) -> bool:
    is_map = name.endswith(".pbtxt") and "label" in name
    return name in (FEATURES, "labels.txt") or name.endswith(_LABELS) or is_map


def _digest(files: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, data in files.items():
        digest.update(f"{name} {len(data)} ".encode() + data)
    return digest.hexdigest()


def _by_files(files: Mapping[str, bytes], folder: str) -> record_columns.RecordColumns:
    columns, classes = record_columns.conventional_columns(), dict[str, dict[int, str]]()
    for name, data in files.items():
        where = layout.join(folder, name)
        try:
            text = data.decode("utf-8-sig")
            names = label_map(text) if name.endswith(".pbtxt") else _numbered(text)
        except UnicodeDecodeError as error:
            raise UsageError(f"{where}: byte {error.start} is not valid UTF-8") from error
        except ValueError as error:
            raise UsageError(f"{where}: {error}") from error
        if name == FEATURES:
            columns = _by_tfds(columns, text, where)
        elif name.endswith(_LABELS):
            # TFDS writes the `/` and the nesting of features as `.` and `-`.
            stem = name.removesuffix(_LABELS)
            names = dict(enumerate(line.strip() for line in text.splitlines()))
            classes |= dict.fromkeys({stem, stem.replace(".", "/"), stem.replace("-", "/")}, names)
        elif names:
            classes |= {feature: names for feature in _UNNAMED if feature not in classes}
    return replace(columns, classes=classes)


def _numbered(text: str) -> dict[int, str]:
    """Returns the names in a labels.txt by id: `ID:NAME` of TF-Slim, or one name per line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    pairs = [_NUMBERED.fullmatch(line) for line in lines]
    if all(pairs):
        return {int(pair[1]): pair[2].strip() for pair in pairs if pair}
    return dict(enumerate(lines))


def _by_tfds(
    columns: record_columns.RecordColumns, text: str, where: str
) -> record_columns.RecordColumns:
    """Returns the columns with the boxes and labels that TFDS declares in features.json."""
    try:
        found = dict(_tfds_features(json.loads(text), ""))
    except (ValueError, RecursionError, AttributeError, TypeError) as error:
        raise UsageError(f"{where}: is not features.json of TFDS: {error}") from error
    boxes = [name for name, kind in found.items() if kind.endswith("BBoxFeature")]
    if len(boxes) != 1:
        return columns
    folder = posixpath.dirname(boxes[0])
    labels = {"labels": (record_columns.Labels(posixpath.join(folder, "label")),)}
    keys = {"is_crowd": "is_crowd", "difficult": "is_difficult"}
    others = {name: (posixpath.join(folder, key),) for name, key in keys.items()}
    return replace(
        columns,
        boxes=(boxes[0],),
        order="yxyx",
        labels={**columns.labels, **labels},
        columns={**columns.columns, **others},
        areas={},
    )


def _tfds_features(document: Any, name: str) -> Iterator[tuple[str, str]]:
    """Yields the key of each feature in records, and the class of TFDS that describes it."""
    if "featuresDict" in document:
        for key, inner in document["featuresDict"].get("features", {}).items():
            yield from _tfds_features(inner, posixpath.join(name, key))
    elif "sequence" in document:
        yield from _tfds_features(document["sequence"].get("feature", {}), name)
    else:
        yield name, str(document.get("pythonClassName", ""))
