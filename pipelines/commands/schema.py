"""`recordmill schema`: prints a schema or that of a dataset, or infers one from a table.

A schema is printed with its features, its required columns, and the parse spec of its records; that
of a dataset with its classes, and the code that reads it with each library.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

from recordmill.pipelines.console.terminal import Terminal, outcome, say, say_json
from recordmill.pipelines.infer_schema import infer_schema
from recordmill.pipelines.options import load_schema
from recordmill.schemas import layout
from recordmill.schemas.errors import UsageError, VerificationFailed
from recordmill.schemas.features import NO_COLUMN, Feature, Kind, Missing, Origin, Schema, Source
from recordmill.schemas.settings import BoxSettings
from recordmill.schemas.yaml_files import preset_names
from recordmill.transforms.storage.dataset import Dataset
from recordmill.transforms.storage.published import newest_version

_DTYPES = {Kind.INT64: "tf.int64", Kind.FLOAT: "tf.float32", Kind.BYTES: "tf.string"}


def _snippets(dataset: Dataset) -> dict[str, str]:
    """Returns code that reads the first split, by library; libraries that cannot are left out."""
    schema, path = dataset.manifest.dataset_schema, repr(dataset.directory)
    split = repr("train" if "train" in dataset.splits else next(iter(dataset.splits), "train"))
    found = {"recordmill.load": _load(dataset, schema, path, split)}
    if dataset.shard_format.tensorflow is not None:
        found["tf.data"] = _tf_data(dataset, schema, split)
    if dataset.shard_format.seekable:
        found["PyTorch"] = _torch(schema, path, split)
        found["Grain"] = (
            "import grain.python as grain\n\nimport recordmill\n\n"
            f"records = recordmill.Records({path}, {split})\n"
            "examples = grain.MapDataset.source(records).shuffle(seed=1).to_iter_dataset()"
        )
        if dataset.shard_format.in_tfds and schema.sequence is None:
            pairs = ", as_supervised=True" if schema.supervised else ""
            found["TFDS"] = (
                "import tensorflow_datasets as tfds\n\n"
                f"builder = tfds.builder_from_directory({path})\n"
                f"examples = builder.as_dataset(split={split}, shuffle_files=True{pairs})"
            )
    return found


def _load(dataset: Dataset, schema: Schema, path: str, split: str) -> str:
    options = ["batch_size=32", "shuffle=True"]
    options += ["image_size=224"] if schema.image_feature else []
    options += ["as_supervised=True"] if schema.supervised else []
    lines = [
        "import recordmill\n",
        f"dataset = recordmill.open({path})",
        f"examples = dataset.load({split}, {', '.join(options)})",
    ]
    lines += [f"names = dataset.classes[{feature!r}]" for feature in list(dataset.classes)[:1]]
    return "\n".join(lines)


def _tf_data(dataset: Dataset, schema: Schema, split: str) -> str:
    kind = dataset.shard_format.tensorflow
    compressed = f', compression_type="{kind}"' if kind else ""
    shards = dataset.path(f"{dataset.manifest.name}-{split[1:-1]}.tfrecord-*")
    parsed = [f"    {line}" for line in _parse_code(schema).split("\n")]
    last = parsed.pop().strip()
    result = "example" if schema.sequence is None else "example, frames"
    decode = []
    if schema.sequence is None and schema.encoded_image:
        image = f"example[{schema.encoded_image!r}]"
        decode = [f"    {image} = tf.io.decode_image({image}, 3, expand_animations=False)"]
    return "\n".join(
        [
            "import tensorflow as tf\n\n",
            "def parse(record):",
            *parsed,
            f"    {result} = {last}",
            *decode,
            f"    return {result}\n\n",
            f"shards = sorted(tf.io.gfile.glob({shards!r}))",
            f"examples = tf.data.TFRecordDataset(shards{compressed}).map(parse)",
        ]
    )


def _torch(schema: Schema, path: str, split: str) -> str:
    label = schema.supervised and schema.features[schema.supervised[1]]
    if not label or label.shape is not None or label.is_mask or schema.sequence is not None:
        return (
            "from torch.utils.data import DataLoader\n\nimport recordmill\n\n"
            f"records = recordmill.Records({path}, {split})\n"
            "loader = DataLoader(records, batch_size=32, shuffle=True, collate_fn=list)"
        )
    image, name = schema.supervised or ("", "")
    return f"""import torch
from torch.utils.data import DataLoader

import recordmill


def pair(record):
    image = torch.from_numpy(record[{image!r}]).permute(2, 0, 1)  # (channels, height, width)
    image = torch.nn.functional.interpolate(image[None] / 255, (224, 224), mode="bilinear")[0]
    return image, record[{name!r}]


records = recordmill.Records({path}, {split}, transform=pair)
loader = DataLoader(records, batch_size=32, shuffle=True, num_workers=2)"""


def _parse_code(schema: Schema) -> str:
    """Returns TensorFlow code that parses the records of a schema."""
    lines = [
        f"    {name!r}: {_spec(feature)}," for name, feature in schema.context_features.items()
    ]
    if schema.sequence is not None:
        frames = [
            f"    {name!r}: {_spec_of_frames(feature)},"
            for name, feature in schema.frame_features.items()
        ]
        parse = "tf.io.parse_single_sequence_example(record, context, frames)"
        return "\n".join(["context = {", *lines, "}", "frames = {", *frames, "}", parse])
    return "\n".join(["spec = {", *lines, "}", "tf.io.parse_single_example(record, spec)"])


def _spec(feature: Feature) -> str:
    dtype = _DTYPES[feature.kind]
    if feature.optional:
        return f"tf.io.VarLenFeature({dtype})"
    shape = list(feature.shape or ())
    if feature.has_open_rows:
        return f"tf.io.FixedLenSequenceFeature({shape[1:]}, {dtype}, allow_missing=True)"
    return f"tf.io.FixedLenFeature({shape}, {dtype})"


def _spec_of_frames(feature: Feature) -> str:
    dtype = _DTYPES[feature.kind]
    if feature.optional:
        return f"tf.io.RaggedFeature({dtype})"
    return f"tf.io.FixedLenSequenceFeature({list(feature.shape or ())}, {dtype})"


_SHOWN_CLASSES = 24


def run(flags: argparse.Namespace) -> int:
    """Prints a schema or that of a dataset, or infers one; returns the exit code."""
    if flags.infer is not None:
        text = infer_schema(flags.infer, flags.image_root, flags.input_format, flags.columns)
        say(text, end="") if not flags.json else say_json({**outcome(), "yaml": text})
        return 0
    dataset = _dataset(flags.schema)
    schema = dataset.manifest.dataset_schema if dataset else load_schema(flags.schema)
    if flags.json:
        say_json({**outcome(), **_as_json(schema, dataset)})
    elif dataset:
        _show_dataset(Terminal(), dataset)
    else:
        _show_schema(Terminal(), schema)
    return 0


def _dataset(name: str) -> Dataset | None:
    """Returns the dataset in a folder; None for a preset or a schema file."""
    is_file = layout.is_url(name) and name.endswith((".yaml", ".yml"))
    is_folder = os.path.isdir(name) or (layout.is_url(name) and not is_file)
    if not is_folder or name in preset_names():
        return None
    try:
        return Dataset.open(newest_version(name))
    except VerificationFailed as error:  # a wrong argument
        raise UsageError(str(error)) from error


def _as_json(schema: Schema, dataset: Dataset | None = None) -> dict[str, Any]:
    """Returns a schema as a JSON document.

    `dataset` is a dataset with this schema, to add its splits, classes and code.
    """
    document: dict[str, Any] = {
        "schema": schema.name,
        "description": schema.description,
        "columns": _columns_of(schema),
        "features": {
            name: feature.model_dump(mode="json", by_alias=True, exclude_defaults=True)
            for name, feature in schema.features.items()
        },
    }
    if dataset:
        document |= {
            "directory": dataset.directory,
            "name": dataset.manifest.name,
            "version": dataset.manifest.version,
            "splits": {name: split.records for name, split in dataset.splits.items()},
            "classes": dataset.classes,
            "snippets": _snippets(dataset),
        }
    return document


def _show_dataset(terminal: Terminal, dataset: Dataset) -> None:
    """Prints the splits, features and classes of a dataset, and the code that reads it."""
    schema = dataset.manifest.dataset_schema
    found = dataset.manifest.ordered_splits
    splits = ", ".join(f"{name} {split.records:,}" for name, split in found.items())
    terminal.heading(dataset.directory, f" {splits} records; schema {schema.name}")
    terminal.line()
    _show_features(terminal, schema)
    for feature, names in dataset.classes.items():
        shown = [f"{number} {name}" for number, name in enumerate(names[:_SHOWN_CLASSES])]
        more = len(names) - len(shown)
        tail = f", and {more:,} more in {layout.labels_name(feature)}" if more else ""
        terminal.lines(("", f"Classes of {feature}: {', '.join(shown)}{tail}"))
    for name, code in _snippets(dataset).items():
        terminal.lines(("", f"# {name}", "", *code.split("\n")))


def _show_schema(terminal: Terminal, schema: Schema) -> None:
    """Prints a schema: features, columns, and the code that parses its records."""
    terminal.heading(schema.name, f" {schema.description}")
    terminal.line()
    if schema.every_column:
        terminal.line("Every column of the table is a feature, by its type.")
        return
    _show_features(terminal, schema)
    terminal.lines(("", f"Columns: {', '.join(_columns_of(schema)) or 'none'}", ""))
    terminal.lines(_parse_code(schema).split("\n"))


def _show_features(terminal: Terminal, schema: Schema) -> None:
    heads = ("feature", "kind", "shape", "from", "missing")
    rows = [(name, *_describe(feature)) for name, feature in schema.features.items()]
    terminal.table(heads, rows, whole=True)


def _describe(feature: Feature) -> tuple[str, str, str, str]:
    """Returns kind, shape, sources and treatment of missing values, as text."""
    shape = "one value" if feature.shape is None else str(list(feature.shape))
    shape = shape.replace("None", "any") + (" a box" if feature.of_boxes else "")
    shape += " a frame" if feature.per == "frame" else ""
    missing = "row is rejected" if feature.missing is Missing.REQUIRED else "empty list"
    if feature.default is not None:
        missing = f"default {feature.default!r}"
    kind = f"{feature.kind.value}, class id" if feature.classes else feature.kind.value
    return kind, shape, " or ".join(str(s) for s in feature.sources), missing


def _columns_of(schema: Schema) -> list[str]:
    """Returns the columns that a table must have, with alternatives joined by "or"."""
    columns = [schema.image.column] if schema.has_image else []
    if schema.sequence is not None:
        columns += [schema.sequence.group, schema.sequence.order]
    if schema.has_boxes:
        columns += _box_columns(schema.boxes)
    for feature in schema.features.values():
        named = [_named(s, schema) for s in feature.sources if s.origin not in NO_COLUMN]
        optional = any(s.origin is Origin.KEY for s in feature.sources)
        optional |= feature.missing is Missing.EMPTY or feature.default is not None
        text = " or ".join(named) + (" (optional)" if optional else "")
        if named and text not in columns:
            columns.append(text)
    return columns


def _named(source: Source, schema: Schema) -> str:
    drawn = source.origin is Origin.SEGMENTATION
    return f"{source.name} with {schema.masks.labels}" if drawn else source.name


def _box_columns(boxes: BoxSettings) -> list[str]:
    """Returns the columns of boxes, and the column of their units."""
    ways = [", ".join(boxes.columns or ()), boxes.column]
    units = [] if boxes.units_column is None else [f"{boxes.units_column} (optional)"]
    return [" or ".join(way for way in ways if way), *units]
