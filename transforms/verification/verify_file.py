"""Verifies TFRecord files of any origin without a schema, and salvages what is intact.

Every record is read: its frame and both checksums, whether it is a `tf.train.Example` or
`SequenceExample`, and which features of which kind it has. Neither Beam nor TensorFlow is needed.
"""

from __future__ import annotations

import io
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import BinaryIO, NamedTuple, TypeAlias, cast

from recordmill.schemas import layout
from recordmill.schemas.dataset_info import Problem
from recordmill.schemas.errors import RecordmillError, UsageError
from recordmill.schemas.rejects import RecordError
from recordmill.schemas.shard_format import DAMAGED_STREAM, format_of_file
from recordmill.transforms.functional.images.codecs import check_pixels
from recordmill.transforms.functional.images.sniffing import FOREIGN, foreign, is_image, sniff
from recordmill.transforms.functional.records import framing
from recordmill.transforms.functional.records.examples import feature_kinds, read_features
from recordmill.transforms.functional.records.framing import SNIFFED_BYTES, decompressed
from recordmill.transforms.functional.rows.binding import common_folder
from recordmill.transforms.storage import files
from recordmill.transforms.workers.sandbox import run_in_subprocess

# Problems of a file that are described; further ones are counted.
_MAX_PROBLEMS = 1000

# Features that are compared; a hostile file may have other ones in each record.
_MAX_FEATURES = 10_000

_DECODE_SECONDS = 60.0
_SIGNATURE_BYTES = 64
_BUFFER_BYTES = 2**20
_KEPT_BYTES = 16 * 2**20


class Seen(NamedTuple):
    """How many records have a feature of a kind, and the first of them."""

    records: int
    file: str
    record: int
    offset: int

    def more(self, records: int) -> Seen:
        """Returns the same first record, with more records."""
        return self._replace(records=self.records + records)


# The names and kinds of the features of a record.
_Kinds: TypeAlias = tuple[tuple[str, str], ...]

# By the name of a feature and its kind, such as "int64_list"; "" for an empty feature.
FeaturesSeen = dict[tuple[str, str], Seen]


def add_features(total: FeaturesSeen, found: FeaturesSeen) -> None:
    """Adds the features of a file to those of the files before it."""
    for key, seen in found.items():
        if key in total:
            total[key] = total[key].more(seen.records)
        elif len(total) < _MAX_FEATURES:
            total[key] = seen


@dataclass
class VerifiedFile:
    """What was read of a file."""

    path: str
    records: int = 0  # the intact ones
    size: int = 0  # the bytes of their frames
    damaged: int = 0  # damaged records and places; the first of them are `problems`
    problems: list[Problem] = field(default_factory=list)
    others: list[Problem] = field(default_factory=list)  # intact records of another message
    num_others: int = 0
    features: FeaturesSeen = field(default_factory=dict)
    is_compressed: bool = False

    def add(self, message: str, record: int | None = None, offset: int | None = None) -> None:
        """Counts a problem."""
        self.damaged += 1
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(Problem(self.path, message, record, offset))


def verify_file(path: str, decode: bool = False) -> VerifiedFile:
    """Verifies all records of a file; `decode` also all values that begin like an image."""
    _keep_freed_memory()
    found = VerifiedFile(path)
    firsts, counts = dict[_Kinds, Seen](), Counter[_Kinds]()
    for run in _intact_records(path, found, decode):
        for number, data in enumerate(run.data):
            try:
                kinds = feature_kinds(data)
            except ValueError as error:
                found.num_others += 1
                if len(found.others) < _MAX_PROBLEMS:
                    found.others.append(Problem(path, str(error), *run.location(number)))
                continue
            # Few records differ in the names, kinds and order of their features.
            counts[kinds] += 1
            if kinds not in firsts:
                firsts[kinds] = Seen(1, path, *run.location(number))
                if len(firsts) >= _MAX_PROBLEMS:
                    _flush(firsts, counts, found.features)
        found.records += len(run.data)
        found.size += run.size
    _flush(firsts, counts, found.features)
    return found


@cache
def _keep_freed_memory() -> None:
    # Otherwise, glibc returns the memory of each record to the system, and the page faults of the
    # next one take as long as reading it. Its thresholds follow the largest block that was freed.
    bytes(_KEPT_BYTES)


def _flush(firsts: dict[_Kinds, Seen], counts: Counter[_Kinds], features: FeaturesSeen) -> None:
    for kinds, first in firsts.items():
        add_features(features, dict.fromkeys(kinds, first._replace(records=counts[kinds])))
    firsts.clear()
    counts.clear()


def check_new(directory: str) -> None:
    """Raises UsageError if a folder has files."""
    try:
        names = files.all_files_below(directory)
    except FileNotFoundError:
        return
    except OSError as error:
        what = error.strerror or error
        raise UsageError(f"--salvage {directory}: cannot be listed: {what}") from error
    if names:
        raise UsageError(f"--salvage {directory}: has files, such as {names[0]}. Name a new folder")


def salvage_files(paths: Sequence[str], directory: str, decode: bool) -> dict[str, int]:
    """Writes the intact records of each damaged file to a new one, and the list of what was lost.

    Returns the number of records that were written, by the path of the new file.
    """
    paths = [os.path.abspath(path) if files.is_local(path) else path for path in paths]
    root = common_folder(paths)
    written, lost = dict[str, int](), list[Problem]()
    for path in paths:
        found = VerifiedFile(path)
        try:
            files.open_binary(path).close()
        except OSError as error:
            lost.append(Problem(path, f"cannot be read: {error.strerror or error}"))
            continue
        # Records of a compressed file are written as they are read: without compression.
        name = path.removeprefix(root).removesuffix(".zlib")
        target = layout.join(directory, name.removesuffix(format_of_file(name).suffix))
        try:
            if files.is_local(target):
                os.makedirs(os.path.dirname(target), exist_ok=True)
            with closing(files.create(target)) as stream:
                for run in _intact_records(path, found, decode):
                    stream.writelines(map(framing.framed, run.data))
                    found.records += len(run.data)
        except OSError as error:
            what = error.strerror or error
            raise RecordmillError(f"{target}: cannot be written: {what}") from error
        if found.records:
            written[target] = found.records
        else:
            files.delete(target)
        lost += found.problems
    lines = "".join(f"{json.dumps(asdict(problem))}\n" for problem in lost)
    files.write_bytes(layout.join(directory, layout.LOST), lines.encode())
    return written


def _intact_records(path: str, found: VerifiedFile, decode: bool) -> Iterator[framing.Run]:
    """Yields the intact records of a file, and adds what is damaged to `found`."""
    with files.open_binary(path) as stored:
        head = stored.read(SNIFFED_BYTES)
        stored.seek(0)
        if kind := _other_kind(head):
            found.add(kind)
            return
        end = (0, 0)  # the next record
        try:
            buffered = io.BufferedReader(cast("io.RawIOBase", stored), _BUFFER_BYTES)
            content = decompressed(cast("BinaryIO", buffered), strict=True)
            found.is_compressed = content is not buffered
            for run in framing.read_runs(content, resync=True):
                if isinstance(run, framing.FrameError):
                    found.add(_described(run), run.record, run.offset)
                    end = (run.record + 1, run.offset + (run.size or 0))
                else:
                    end = run.location(len(run.data))
                    yield from _decodable(run, found) if decode else (run,)
        except DAMAGED_STREAM as error:
            found.add(f"the compressed stream is damaged: {error}", *end)


def _decodable(run: framing.Run, found: VerifiedFile) -> Iterator[framing.Run]:
    """Yields the records whose images can be decoded, one by one."""
    for record, offset, data in run.frames():
        if damage := _decode_error(data):
            found.add(damage, record, offset)
        else:
            yield framing.Run(record, offset, [data])


def _other_kind(head: bytes) -> str | None:
    """Returns the problem of a file that is of another kind by its first bytes."""
    if framing.is_record_header(head):
        return None
    if format_ := sniff(head):
        return f"is an image ({format_}), not a TFRecord file"
    kind = foreign(head)
    if kind is None or kind is FOREIGN["gzip"]:
        return None
    return f"is not a TFRecord file, but {kind.name}. {kind.remedy}"


def _described(error: framing.FrameError) -> str:
    if error.offset or not error.ends:
        return str(error)
    return f"{error}. The whole file is damaged, or it is not a TFRecord file"


def _decode_error(data: bytes) -> str | None:
    """Returns the error of the first value that looks like an image, but cannot be decoded."""
    try:
        features = read_features(data)
    except ValueError:
        return None  # reported with the kinds of features
    for name, values in features.items():
        for value in values:
            if isinstance(value, bytes) and is_image(value[:_SIGNATURE_BYTES]):
                try:
                    run_in_subprocess(check_pixels, value, timeout=_DECODE_SECONDS)
                except RecordError as error:
                    return f"the image in {name!r} cannot be decoded: {error.detail}"
    return None
