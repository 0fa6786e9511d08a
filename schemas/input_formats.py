"""The formats of inputs: a new one is a module of functions, and a line here.

The accepted values of `--input_format`, the order in which files and folders are recognized, and
what reads each are derived from these lines; docs/contributing.md lists the functions of a module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias


@dataclass(frozen=True)
class InputFormat:
    """The declaration of a format."""

    module: str  # in `transforms/functional/sources`
    suffixes: tuple[str, ...] = ()  # of its files, in lower case, without a dot; () for folders
    described_by: tuple[str, ...] = ()  # the suffixes of files that stand for a folder
    is_table: bool = False  # whether rows have paths or bytes of images in a column of any name
    # What a file has to have for a preset, if it may have none; in a message.
    annotations: str = ""

    @property
    def is_folder(self) -> bool:
        """Whether its sources are folders."""
        return not self.suffixes


# By name; the first one that recognizes a folder reads it.
INPUT_FORMATS = {
    "csv": InputFormat("delimited", ("csv",), is_table=True),
    "tsv": InputFormat("delimited", ("tsv", "tab"), is_table=True),
    "jsonl": InputFormat("json_lines", ("jsonl", "ndjson"), is_table=True),
    "parquet": InputFormat("parquet", ("parquet", "pq"), is_table=True),
    "arrow": InputFormat("arrow", ("arrow", "feather"), is_table=True),
    "folder": InputFormat("class_folder"),
    "tar": InputFormat("webdataset", ("tar", "tgz")),
    "tfrecord": InputFormat("tfrecord", ("tfrecord", "tfrecords", "tfrec", "record", "records")),
    "cvat": InputFormat("cvat", described_by=("xml",)),
    "voc": InputFormat("voc"),
    "yolo": InputFormat("yolo", described_by=("yaml", "yml")),
    "coco": InputFormat("coco", ("json",), annotations="bbox, segmentation, keypoints or caption"),
    "labelme": InputFormat("labelme"),
    "dota": InputFormat("dota"),
}

# The values of --input_format: a static type cannot be derived from the names.
if TYPE_CHECKING:
    FormatName: TypeAlias = str
else:
    _NAMES = ("auto", *INPUT_FORMATS)
    FormatName = Literal[_NAMES]
