"""Finds TFRecord files of any origin and the sets that they are, and reads records to show."""

from __future__ import annotations

import json
import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple

import pyarrow.compute as pc

from recordmill.schemas import layout
from recordmill.schemas.dataset_info import Problem
from recordmill.schemas.errors import UsageError, VerificationFailed
from recordmill.schemas.findings import counted
from recordmill.schemas.shard_format import DAMAGED_STREAM
from recordmill.transforms.functional.images.sniffing import has_image_suffix
from recordmill.transforms.functional.records import framing
from recordmill.transforms.functional.records.examples import read_features
from recordmill.transforms.inputs.formats import has_records
from recordmill.transforms.inputs.record_folders import is_record_file
from recordmill.transforms.storage.dataset import DatasetFolder, RecordLocation
from recordmill.transforms.storage.files import (
    all_files_below,
    entries,
    exists,
    expand,
    is_local,
    open_binary,
)
from recordmill.transforms.storage.published import newest_version, read_file

_SHOWN_KEYS = 3


# Suffixes of tables, which `inspect` is sometimes tried on.
_TABLES = (".csv", ".tsv", ".jsonl", ".parquet", ".arrow")


@dataclass(frozen=True)
class FoundRecord:
    """A record with its location."""

    file: str
    number: int  # the index of the record within the file, from 0
    offset: int  # the first byte of the record in the uncompressed file
    data: bytes
    # The parsed features; None if the record is not a `tf.train.Example`.
    features: dict[str, list[Any]] | None
    key: str = ""  # the key of the record; "" outside of a published dataset
    split: str = ""  # the split of the record; "" outside of a published dataset


@dataclass(frozen=True)
class RecordSource:
    """The files to read records from."""

    files: tuple[str, ...]  # the TFRecord files, in order
    dataset: DatasetFolder | None = None  # the published dataset that the files belong to, if any

    @classmethod
    def of(cls, paths: Sequence[str]) -> RecordSource:
        """Returns the source for paths: one published dataset, or any files and folders.

        Raises UsageError if there is no TFRecord file.
        """
        folder = paths[0]
        if len(paths) == 1 and not _exists(layout.join(folder, layout.SUCCESS)):
            folder = newest_version(folder)
        if len(paths) != 1 or not _exists(layout.join(folder, layout.SUCCESS)):
            return cls(tuple(file for path in paths for file in _files_of(path)[0]))
        dataset = DatasetFolder.open_unchecked(folder)
        return cls(tuple(dataset.path(s.file) for s in dataset.shards().values()), dataset)

    def first(self, count: int) -> Iterator[FoundRecord]:
        """Yields the first records of all files; of a dataset, the first of each split.

        Raises VerificationFailed: at the first damaged record.
        """
        if self.dataset is None:
            yield from islice(self._in_files(), count)
            return
        sizes = {k: min(count, s.records) for k, s in self.dataset.manifest.ordered_splits.items()}
        # In turns, so that small splits leave the rest to larger ones.
        turns = sorted((i, n, k) for n, (k, size) in enumerate(sizes.items()) for i in range(size))
        numbers = Counter(split for _, _, split in turns[:count])
        for split in sizes:
            yield from islice(_in_split(self.dataset, split), numbers[split])

    def by_number(self, number: int) -> FoundRecord:
        """Returns a record by its number, from 0, counted over all files.

        Raises UsageError if there are fewer records.
        """
        total = 0
        # Only a manifest has the number of records per file; other files are read from the start.
        if self.dataset is None:
            for total, record in enumerate(self._in_files(), 1):
                if total > number:
                    return record
        else:
            for shard in self.dataset.shards().values():
                if total + shard.records > number:
                    return _at(self.dataset, *self.dataset.located(shard, [number - total]))
                total += shard.records
        raise UsageError(f"--record {number}: there are {total:,} records, numbered from 0")

    def by_key(self, key: str) -> FoundRecord:
        """Returns the record with a key.

        In files without an index of keys, this is the first record with the key as a value. Raises
        UsageError if there is no such record.
        """
        if self.dataset is None:
            return self._by_value(key)
        location = self.dataset.find(key)
        if location is not None:
            return _at(self.dataset, location)
        keys = self.dataset.columns(self.dataset.select("all"), ["key"])["key"]
        alike = keys.filter(pc.ends_with(keys, key)).to_pylist()
        ending = sorted((not k.endswith(f"/{key}"), k) for k in alike)
        known = [k for _, k in ending[:_SHOWN_KEYS]]
        what = "keys that end with it are" if known else "its first keys are"
        known = known or [record.key for record in self.first(_SHOWN_KEYS)]
        raise UsageError(
            f"--key {key}: {self.dataset.directory} has no record with this key; "
            f"{what} {', '.join(known)}"
        )

    def _by_value(self, key: str) -> FoundRecord:
        sought = key.encode("utf-8", "surrogateescape")  # flags can be invalid UTF-8
        for record in self._in_files():
            if any([sought] == values for values in (record.features or {}).values()):
                return record
        raise UsageError(
            f"--key {key}: no record has this value in a feature; "
            "only datasets published by recordmill have an index of keys"
        )

    def _in_files(self) -> Iterator[FoundRecord]:
        return (record for file in self.files for record in _read_records(file))


def _in_split(dataset: DatasetFolder, split: str) -> Iterator[FoundRecord]:
    for shard in dataset.splits[split].shards:
        keys = dataset.index(shard, ["key"])["key"]
        # Not strict: a shard with a missing or extra record is shown as far as possible.
        for record, key in zip(_read_records(dataset.path(shard.file)), keys, strict=False):
            yield replace(record, key=key.as_py(), split=split)


def _at(dataset: DatasetFolder, location: RecordLocation) -> FoundRecord:
    shard = dataset.shard(location.split, location.shard)
    data = dataset.record(shard, location.record, (location.offset, location.length))
    return FoundRecord(
        file=dataset.path(shard.file),
        number=location.record,
        offset=framing.frame_start(location.offset),  # the index has the offset of the data
        data=data,
        features=_parse_features(data),
        key=location.key,
        split=location.split,
    )


def _exists(path: str) -> bool:
    try:
        return exists(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error


def _read_records(file: str) -> Iterator[FoundRecord]:
    number = 0
    try:
        with open_binary(file) as stream:
            for frame in framing.read_frames(framing.decompressed(stream)):
                yield FoundRecord(
                    file, number, frame.offset, frame.data, _parse_features(frame.data)
                )
                number += 1
    except framing.FrameError as error:
        raise VerificationFailed(_damage(file, error)) from error
    except (OSError, *DAMAGED_STREAM) as error:
        # Only errors of the file system have an errno, not those of a compressed stream.
        if number == 0 and isinstance(error, OSError) and error.errno:
            raise UsageError(f"{file}: cannot be read: {error.strerror}") from error
        what = f"the compressed stream is damaged or truncated: {error}"
        raise VerificationFailed(f"{file}: record {number}: {what}; {_before(number)}") from error


def _damage(file: str, error: framing.FrameError) -> str:
    problem = f"{file}: record {error.record} at byte {error.offset}: {error}"
    if error.record == 0 and error.offset == 0:
        is_table = file.lower().endswith(_TABLES)
        remedy = f". For a table, run: recordmill schema --infer {file}" if is_table else ""
        return f"{problem}; the file is damaged, or is not a TFRecord file{remedy}"
    return f"{problem}; {_before(error.record)}"


def _before(number: int) -> str:
    return f"the {counted(number, 'record')} before it can be read"


def _parse_features(data: bytes) -> dict[str, list[Any]] | None:
    try:
        return read_features(data)
    except ValueError:
        return None


_SHARD = re.compile(r"^(.*[-_.])?(\d+)-of-(\d+)(.*)$")
_SHOWN = 5
_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"


class Split(NamedTuple):
    """A split as `dataset_info.json` of TensorFlow Datasets states it."""

    lengths: Mapping[str, int]  # the number of records by file
    num_bytes: int  # 0 if it is not stated


@dataclass(frozen=True)
class RecordSet:
    """TFRecord files of one folder whose records are alike."""

    folder: str
    files: tuple[str, ...]
    splits: Mapping[str, Split] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()  # missing and surplus shards


def record_sets(path: str) -> list[RecordSet]:
    """Returns the sets of the TFRecord files at a path or pattern.

    Raises UsageError if it does not exist, or is a folder without TFRecord files.
    """
    return sets_of(*_files_of(path))


def sets_of(files: Sequence[str], is_folder: bool = False) -> list[RecordSet]:
    """Returns the sets that files belong to.

    Of a file that is named by itself, the other shards are not required.
    """
    by_folder = defaultdict[str, list[str]](list)
    for file in files:
        folder, slash, name = file.rpartition("/")
        by_folder[folder + slash].append(name)
    return [
        found for folder, names in by_folder.items() for found in _sets_in(folder, names, is_folder)
    ]


def _files_of(path: str) -> tuple[list[str], bool]:
    """Returns the TFRecord files at a path or pattern, and whether it is a folder."""
    if not _exists(path):
        if files := expand(path):
            return files, False
        raise UsageError(f"{path}: no such file or folder; expected TFRecord files or a dataset")
    if layout.is_web(path) or (is_local(path) and not _is_folder(path)):
        return [path], False
    # Object stores have no folders: a prefix without files below it is a file.
    below = all_files_below(path)
    if not below and not is_local(path):
        return [path], False
    if names := _record_names(path, below):
        return [layout.join(path, name) for name in names], True
    raise UsageError(
        f"{path}: contains no file named *tfrecord*, no other file of records, and no dataset with "
        f"{layout.SUCCESS}. Pass the files, or a dataset: DIR/NAME/VERSION"
    )


def _is_folder(path: str) -> bool:
    try:
        with open_binary(path):
            return False
    except IsADirectoryError:
        return True
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error


def _record_names(folder: str, below: Iterable[str]) -> list[str]:
    """Returns the names of TFRecord files: by the name, or by the content of one of their set."""
    visible = [n for n in below if not any(p.startswith((".", "beam-temp-")) for p in n.split("/"))]
    named = {name for name in visible if is_record_file(posixpath.basename(name))}
    sets = defaultdict[str, list[str]](list)
    for name in sorted({*visible} - named):
        base = posixpath.basename(name)
        is_tried = is_local(folder) and not has_image_suffix(base)  # each is a request to a store
        if is_tried or "tfrecord" in base.lower() or _SHARD.match(base):
            sets[_pattern(name)].append(name)
    for names in sets.values():
        if any(has_records(layout.join(folder, name)) for name in names):
            named |= {*names}
    return sorted(named)


def _pattern(name: str) -> str:
    """Returns the name of a set of shards; other names as they are.

    >>> _pattern("a/train-00003-of-00010.gz"), _pattern("a/b.tfrecord")
    ('a/train-*-of-00010.gz', 'a/b.tfrecord')
    """
    folder, slash, base = name.rpartition("/")
    shard = _SHARD.match(base)
    return f"{folder}{slash}{shard[1] or ''}*-of-{shard[3]}{shard[4]}" if shard else name


def _sets_in(folder: str, names: Sequence[str], is_whole: bool) -> Iterator[RecordSet]:
    sets = defaultdict[str, list[str]](list)
    for name in names:
        pattern = _pattern(name)
        sets[pattern if pattern != name else ""].append(name)
    splits, unreadable = _tfds_splits(folder)
    # A file that is named by itself is verified by itself.
    required = {pattern for pattern, shards in sets.items() if is_whole or len(shards) > 1}
    present = {*names} if is_whole or not required else {*names, *_names_in(folder)}
    files = tuple(folder + name for name in names)
    if splits:
        yield RecordSet(
            folder,
            files,
            splits,
            tuple(_unlike_stated(folder, present, required, splits, is_whole)),
        )
        return
    for index, (pattern, shards) in enumerate(sets.items()):
        problems = list(unreadable if index == 0 else ())
        if pattern and pattern in required:
            problems += _missing_shards(folder, pattern, present)
        yield RecordSet(
            folder + pattern, tuple(folder + name for name in shards), {}, tuple(problems)
        )


def _names_in(folder: str) -> list[str]:
    try:
        return entries(folder or ".")[1]
    except OSError:
        return []  # the files that were named are verified


def _unlike_stated(
    folder: str, present: Set[str], required: Set[str], splits: Mapping[str, Split], is_whole: bool
) -> Iterator[Problem]:
    """Yields a problem for each file that `dataset_info.json` states or does not, unlike it is."""
    stated = {name: n for split in splits.values() for name, n in split.lengths.items()}
    for name, length in stated.items():
        if length and name not in present and (is_whole or _pattern(name) in required):
            what = f"is missing; {layout.DATASET_INFO} states {counted(length, 'record')} in it"
            yield Problem(folder + name, what)
    for name in sorted(present - stated.keys()) if is_whole else ():
        yield Problem(folder + name, f"is not among the files that {layout.DATASET_INFO} states")


def incomplete_sets(files: Iterable[str]) -> Iterator[Problem]:
    """Yields a problem for each set of shards of which files are missing, or too many."""
    sets = defaultdict[str, list[str]](list)
    for file in files:
        sets[_pattern(file)].append(file)
    for pattern, shards in sets.items():
        if pattern not in shards:  # else it is a file that is no shard
            yield from _missing_shards("", pattern, shards)


def _missing_shards(folder: str, pattern: str, names: Iterable[str]) -> Iterator[Problem]:
    """Yields a problem if shards of a set are missing, or there are more than its names state."""
    shards = [
        shard for name in names if (shard := _SHARD.match(name)) and _pattern(name) == pattern
    ]
    count, present = int(shards[0][3]), {int(shard[2]) for shard in shards}
    # Some tools count from 1.
    start = int(0 not in present and count in present)
    required = range(start, start + count)
    if surplus := sorted(number for number in present if number not in required):
        yield Problem(
            folder + pattern, f"has shard {surplus[0]}; its name states {counted(count, 'shard')}"
        )
    if missing := count - len(present) + len(surplus):
        first = islice((n for n in required if n not in present), _SHOWN)
        listed = ", ".join(map(str, first)) + (", …" if missing > _SHOWN else "")
        verb = "shard is" if missing == 1 else "shards are"
        yield Problem(folder + pattern, f"{missing:,} of {count:,} {verb} missing: {listed}")


def _tfds_splits(folder: str) -> tuple[Mapping[str, Split], Sequence[Problem]]:
    """Returns the splits that `dataset_info.json` in a folder states; {} if there is none."""
    path = layout.join(folder, layout.DATASET_INFO) if folder else layout.DATASET_INFO
    if layout.is_web(path):
        return {}, ()
    try:
        data = read_file(path)
        return ({}, ()) if data is None else (dict(_stated_splits(json.loads(data))), ())
    except OSError as error:
        return {}, [Problem(path, f"cannot be read: {error.strerror or error}")]
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        return {}, [Problem(path, f"is not the metadata of a dataset: {error}")]


def _stated_splits(info: Mapping[str, Any]) -> Iterator[tuple[str, Split]]:
    for split in info.get("splits", ()):
        lengths = [int(length) for length in split.get("shardLengths", ())]
        template = split.get("filepathTemplate") or _TEMPLATE
        values = {
            "{DATASET}": info["name"],
            "{SPLIT}": split["name"],
            "{FILEFORMAT}": info.get("fileFormat") or "tfrecord",
            "{NUM_SHARDS}": f"{len(lengths):05}",
        }
        for variable, value in values.items():
            template = template.replace(variable, value)
        names = (
            template.replace("{SHARD_INDEX}", f"{index:05}").replace(
                "{SHARD_X_OF_Y}", f"{index:05}-of-{len(lengths):05}"
            )
            for index in range(len(lengths))
        )
        stated = Split(dict(zip(names, lengths, strict=True)), int(split.get("numBytes") or 0))
        if lengths:
            yield split["name"], stated
