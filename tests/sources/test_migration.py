"""The pages for users of other tools: their commands work on data as these tools lay it out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from tests.docs.pages import DOCS, blocks
from tests.docs.test_pages import commands_of
from tests.docs.test_tutorials import of_python
from tests.end_to_end.command import recordmill
from tests.end_to_end.layouts import LAYOUTS
from tests.images import jpeg, png
from tests.sources import test_objects

VOC = (
    "<annotation><filename>{0}.jpg</filename><object><name>cat</name><bndbox><xmin>1</xmin>"
    "<ymin>1</ymin><xmax>5</xmax><ymax>4</ymax></bndbox></object></annotation>"
)
OUTLINE = [1, 1, 5, 1, 5, 4, 1, 4]
LABEL = {"names": ["owl", "cat"], "_type": "ClassLabel"}


def put(path: str, data: bytes | str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(data if isinstance(data, bytes) else data.encode())


def image_folder() -> None:
    for i in range(6):
        put(f"pets/{('train', 'val')[i % 2]}/{('cat', 'owl')[i // 3]}/{i}.jpg", jpeg(8, 6, i))


def annotated() -> None:
    for i, split in enumerate(("train", "val")):
        for folder in (f"coco/{split}2017", f"yolo/images/{split}", "VOCdevkit/VOC2007/JPEGImages"):
            put(f"{folder}/{i}.jpg", jpeg(8, 6, i))
        put(f"yolo/labels/{split}/{i}.txt", "0 .5 .5 .5 .5\n")
        put(f"VOCdevkit/VOC2007/Annotations/{i}.xml", VOC.format(i))
        put(f"VOCdevkit/VOC2007/ImageSets/Main/{split}.txt", f"{i}\n")
        document = {
            "images": [{"id": i, "file_name": f"{i}.jpg"}],
            "annotations": [
                {"image_id": i, "category_id": 3, "bbox": [1, 1, 4, 3], "segmentation": [OUTLINE]}
            ],
            "categories": [{"id": 3, "name": "cat"}],
        }
        put(f"coco/annotations/instances_{split}2017.json", json.dumps(document))
    put("yolo/data.yaml", "train: images/train\nval: images/val\nnames: [cat]\n")
    names = test_objects.photos(Path("people/val2017"))
    persons = [test_objects.person() for _ in names]
    test_objects.coco_file(Path("people/person_keypoints_val2017.json"), names, persons)
    test_objects.panoptic(Path("panoptic"))
    test_objects.yolo(Path("pose"), "pose")
    test_objects.yolo(Path("ships"), "obb")


def annotation_tools() -> None:
    layouts = {
        "labelimg": "labelimg: voc",
        "cvat": "cvat: project",
        "labelme": "labelme",
        "label_studio": "label studio: yolo",
        "roboflow": "roboflow: yolo",
    }
    for folder, name in layouts.items():
        for path, text in LAYOUTS[name].files.items():
            put(f"{folder}/{path}", jpeg(8, 8) if path.endswith(".jpg") else text)


def hugging_face() -> None:
    for image, label, path in (
        ("image", "label", "hub/data/train-00000-of-00001.parquet"),
        ("image", "label", "hub/data/test-00000-of-00001.parquet"),
        ("img", "fine_label", "photos/train-00000-of-00001.parquet"),
        ("image", "label", "saved/train/data-00000-of-00001.arrow"),
    ):
        cell = {"bytes": png(4, 4, len(path)), "path": f"{path}.png"}
        table = pa.table({image: [cell], label: [1]})
        features = json.dumps({"info": {"features": {label: LABEL}}})
        table = table.replace_schema_metadata({"huggingface": features})
        put(path, b"")
        if path.endswith(".parquet"):
            pq.write_table(table, path)
            continue
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    for split in ("train", "test"):
        put(f"labeled/{split}/1.jpg", jpeg(8, 6, len(split)))
        put(f"labeled/{split}/metadata.csv", "file_name,label\n1.jpg,cat\n")
    put("saved/dataset_dict.json", '{"splits": ["train"]}')
    put("saved/train/state.json", "{}")


def kaggle() -> None:
    page = DOCS / "how-to" / "from-kaggle.md"
    for name, yaml in zip(("unlabeled", "both"), blocks(page, "yaml"), strict=True):
        put(f"{name}.yaml", yaml)
    for i in range(5):
        put(f"leaves/images/{i}.jpg", jpeg(8, 6, i))
        put(f"retina/train_images/{i}a.png", png(8, 6, i))
        put(f"retina/test_images/{i}b.png", png(8, 6, i + 5))
        put(f"whales/train_images/{i}.jpg", jpeg(8, 6, i + 9))
    put("leaves/train.csv", "filename,species\n0.jpg,fern\n1.jpg,moss\n2.jpg,fern\n")
    put("retina/train.csv", "id_code,diagnosis,patient\n0a,0,p\n1a,4,q\n2a,1,r\n")
    put("retina/test.csv", "id_code\n0b\n1b\n2b\n")
    (program,) = blocks(page, "python")
    of_python(program)
    put("whales/train.csv", "image_id,species\n0,orca\n1,orca\n2,beluga\n")


def script() -> None:
    yaml, _ = blocks(DOCS / "how-to" / "from-tfrecord-script.md", "yaml")
    put("script.yaml", yaml)
    put("animals.csv", "file,species,kg\n0.jpg,owl,1.5\n1.jpg,cat,4\n")
    Path("old").mkdir()
    with tf.io.TFRecordWriter("old/part-0.tfrecord") as writer:
        for i, name in enumerate(("owl", "cat")):
            put(f"{i}.jpg", jpeg(8, 6, i))
            values = {
                "image_raw": tf.train.Feature(bytes_list={"value": [jpeg(8, 6, i)]}),
                "text": tf.train.Feature(bytes_list={"value": [name.encode()]}),
                "weight": tf.train.Feature(float_list={"value": np.float32([1.5])}),
            }
            example = tf.train.Example(features=tf.train.Features(feature=values))
            writer.write(example.SerializeToString())


@pytest.mark.parametrize(
    ("page", "lay_out"),
    [
        ("from-image-folder", image_folder),
        ("from-coco-yolo-voc", annotated),
        ("from-annotation-tools", annotation_tools),
        ("from-hugging-face", hugging_face),
        ("from-kaggle", kaggle),
        ("from-tfrecord-script", script),
    ],
)
def test_the_commands_of_the_page_work(
    page: str, lay_out: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lay_out()
    given = commands_of(DOCS / "how-to" / f"{page}.md")
    assert given
    for words in given:
        ended = recordmill(*words, *(["--no_report"] if words[0] == "convert" else []))
        assert ended.code == 0, f"{words}\n{ended.err}"
