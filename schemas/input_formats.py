"""The formats of inputs: a new one is a module of functions, and a line here.

The values of `--input_format`, the order of recognition, and what pages list derive from the line.
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
    title: str = ""  # of a format of annotations, on the pages, which have its module's summary

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
    "cvat": InputFormat("cvat", described_by=("xml",), title="CVAT"),
    "voc": InputFormat("voc", title="Pascal VOC"),
    "yolo": InputFormat("yolo", described_by=("yaml", "yml"), title="YOLO"),
    "coco": InputFormat(
        "coco", ("json",), annotations="bbox, segmentation, caption or category_id", title="COCO"
    ),
    "labelme": InputFormat("labelme", title="LabelMe"),
    "dota": InputFormat("dota", title="DOTA"),
}


@dataclass(frozen=True)
class UnreadTool:
    """A tool or dataset whose annotations are recognized, so that a message says what to do."""

    signs: tuple[bytes, ...]  # patterns of what one file has: all of them
    remedy: str = "Export them as COCO, Pascal VOC or YOLO"


# By name, in messages and on the page. A format that reads the annotations takes the tool's place.
UNREAD_TOOLS = {
    "the VGG Image Annotator": UnreadTool((rb'shape_attributes\b|"_via_',)),
    "VoTT": UnreadTool((rb'"assets?"\s*:\s*\{\s*(\}|"(format|id|[0-9a-f]{32})")',)),
    "Create ML": UnreadTool((rb'"coordinates"\s*:\s*\{\s*"(x|y|width|height)"',)),
    "Supervisely": UnreadTool((rb'"(classTitle|geometryType)"',)),
    "BDD100K": UnreadTool((rb'"box2d"\s*:',)),
    "Datumaro": UnreadTool((rb'"items"\s*:\s*\[', rb'"categories"\s*:')),
    "Label Studio": UnreadTool((rb'"(original_width|from_name)"', rb'"(x|value|result)"+\s*:')),
    "Labelbox": UnreadTool((rb'"data_row"\s*:',)),
    "SuperAnnotate": UnreadTool((rb'"className"\s*:', rb'"instances"\s*:')),
    "V7 Darwin": UnreadTool((rb'"slots"\s*:\s*\[', rb'"item"\s*:')),
    "Encord": UnreadTool((rb'"label_hash"\s*:',)),
    "Scale AI": UnreadTool((rb'"task_id"\s*:', rb'"(response|annotations|attachment)"\s*:')),
    "KITTI": UnreadTool((rb"\A[A-Za-z_]+(?: -?\d+(?:\.\d+)?){14,15}\s*(?:\n|\Z)",)),
    "YOLOv4 or keras-yolo3": UnreadTool(
        (rb"(?m)^[^\n,]+\.\w+(?: +\d[\d.]*(?:,\d[\d.]*){4})+\s*$",),
        "Write a row per box to a CSV table: image,xmin,ymin,xmax,ymax,label",
    ),
    "CelebA": UnreadTool(
        (rb"\A\d+\s*\n[\w ]+\n\S+\.\w+(?: +-?\d+)+\s*(?:\n|\Z)",),
        "Write them to a CSV table with a column of images, without the number of rows",
    ),
}

# The values of --input_format: a static type cannot be derived from the names.
if TYPE_CHECKING:
    FormatName: TypeAlias = str
else:
    _NAMES = ("auto", *INPUT_FORMATS)
    FormatName = Literal[_NAMES]
