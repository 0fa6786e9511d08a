"""Code that reads a dataset with each library, complete and ready to run."""

from __future__ import annotations

from recordmill.schemas.features import Feature, Kind, Schema
from recordmill.transforms.storage.dataset import Dataset

_DTYPES = {Kind.INT64: "tf.int64", Kind.FLOAT: "tf.float32", Kind.BYTES: "tf.string"}


def snippets(dataset: Dataset) -> dict[str, str]:
    """Returns code that reads the first split, by library; libraries that cannot are left out."""
    schema, path = dataset.manifest.dataset_schema, repr(dataset.directory)
    split = repr("train" if "train" in dataset.splits else next(iter(dataset.splits), "train"))
    found = {
        "recordmill.load": _load(dataset, schema, path, split),
        "tf.data": _tf_data(dataset, schema, split),
    }
    if not dataset.is_gzipped:  # gzip streams are not seekable
        found["PyTorch"] = _torch(schema, path, split)
        found["Grain"] = (
            "import grain.python as grain\n\nimport recordmill\n\n"
            f"records = recordmill.Records({path}, {split})\n"
            "examples = grain.MapDataset.source(records).shuffle(seed=1).to_iter_dataset()"
        )
        if schema.sequence is None:
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
    zipped = ', compression_type="GZIP"' if dataset.is_gzipped else ""
    shards = dataset.path(f"{dataset.manifest.name}-{split[1:-1]}.tfrecord-*")
    parsed = [f"    {line}" for line in parse_code(schema).split("\n")]
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
            f"examples = tf.data.TFRecordDataset(shards{zipped}).map(parse)",
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


def parse_code(schema: Schema) -> str:
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
