"""Images that annotations name as their tools did, on other machines, or not at all."""

from __future__ import annotations

import pytest

from recordmill.schemas.records import OTHER_NAMES, UNANNOTATED, Row, SkippedInput
from recordmill.schemas.rejects import Reason, Reject
from recordmill.schemas.tables import Part, Projection, TableFile
from recordmill.transforms.functional.sources import annotated
from recordmill.transforms.functional.sources.annotated import Annotated
from recordmill.transforms.functional.values import documents
from recordmill.transforms.inputs.file_tree import FileTree
from recordmill.transforms.inputs.formats import FORMATS
from recordmill.transforms.inputs.recognize import sources_of

XML = (
    "<annotation>{}<object><name>cat</name><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>3</xmax>"
    "<ymax>4</ymax></bndbox></object></annotation>"
)


def put(root, files):
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    return FileTree(str(root))


def found_in(tmp_path, stated, *images, root=None):
    tree = put(tmp_path, {"a/7.xml": "", **dict.fromkeys(images, b"")})
    form = Annotated(
        *("x", ".xml", (), "", lambda data, **_: {"image": stated}),
        is_key=lambda _: False,
        images_of=lambda *_: "i",
    )
    part = Part(TableFile(tree.root, "x"), names=("a/7.xml",))
    projection = Projection(image_root=root)
    return [*form.read(tree, part, projection)]


@pytest.mark.parametrize(
    ("stated", "image", "found"),
    [
        ("1.jpg", "i/1.jpg", "1.jpg"),
        ("sub/1.jpg", "i/sub/1.jpg", "sub/1.jpg"),
        ("sub\\1.jpg", "i/sub/1.jpg", "sub/1.jpg"),
        ("C:\\x\\1.jpg", "i/1.jpg", "1.jpg"),
        ("/home/x/1.jpg", "i/1.jpg", "1.jpg"),
        ("a\\b.jpg", "i/a\\b.jpg", "a\\b.jpg"),
        ("n.078_0", "i/n.078_0.JPG", "n.078_0.JPG"),
        ("C:\\x\\1", "i/1.webp", "1.webp"),
        ("7.png", "i/7.jpg", "7.jpg"),
        ("", "i/7.tif", "7.tif"),
        (None, "i/7.tif", "7.tif"),
        ("missing.jpg", "i/1.jpg", "missing.jpg"),
    ],
)
def test_an_image_is_found_by_its_name(stated, image, found, tmp_path):
    (row,) = found_in(tmp_path, stated, image)
    assert row.values == {"image": found, "id": "7", "split": None}
    assert row.image.uri == f"{tmp_path}/i/{found}"


def test_an_image_with_the_name_of_its_annotation_is_counted(tmp_path):
    other, row = found_in(tmp_path, "IMG_1.jpg", "i/7.jpg")
    assert row.values["image"] == "7.jpg"
    assert other == SkippedInput(OTHER_NAMES, 1, ("a/7.xml: IMG_1.jpg",))


@pytest.mark.parametrize(
    ("images", "detail"),
    [
        (("i/7.jpg", "i/7.png"), "expected one image named '7', got 7.jpg, 7.png. Name one"),
        ((), "does not name its image, and none is named '7' in "),
    ],
)
def test_an_image_without_one_name_is_a_reject(images, detail, tmp_path):
    (reject,) = found_in(tmp_path, "", *images)
    assert reject.reason is Reason.MALFORMED_ROW
    assert reject.detail.startswith(detail)


def test_with_an_image_root_names_are_those_of_the_annotation(tmp_path):
    found = [found_in(tmp_path, name, "i/7.jpg", root="/r")[0] for name in ("x", "")]
    assert [(row.values["image"], row.image) for row in found] == [("x", None), ("7", None)]


def rows_of(tmp_path):
    (file,) = sources_of(str(tmp_path), "auto", has_images=True).files
    form, rows, others = FORMATS[file.format], {}, []
    for part in form.parts(file):
        if isinstance(part, SkippedInput):
            others.append(part)
            continue
        for row in form.read(part, Projection()):
            assert isinstance(row, Row), row
            rows[row.values["image"]] = row.values["split"], row.image.uri[len(f"{tmp_path}/") :]
    return rows, others


def test_the_tree_of_imagenet_has_its_splits(tmp_path):
    train, val = "CLS-LOC/train/n1/n1_10", "CLS-LOC/val/v_1"
    files = {
        f"Annotations/{train}.xml": XML.format("<folder>n1</folder><filename>n1_10</filename>"),
        f"Annotations/{val}.xml": XML.format("<filename>v_1</filename>"),
        f"Data/{train}.JPEG": b"",
        f"Data/{val}.JPEG": b"",
        "Data/CLS-LOC/test/t_1.JPEG": b"",
        "ImageSets/CLS-LOC/val.txt": "v_1 1\n",
    }
    put(tmp_path, files)
    rows, others = rows_of(tmp_path)
    assert rows == {
        f"Data/{train}.JPEG": ("train", f"Data/{train}.JPEG"),
        f"Data/{val}.JPEG": ("val", f"Data/{val}.JPEG"),
    }
    assert others == [SkippedInput(UNANNOTATED, 1, ("Data/CLS-LOC/test/t_1.JPEG",))]


@pytest.mark.parametrize(
    ("xml", "image", "key"),
    [
        ("Annotations/1.xml", "Data/1.png", "1.png"),
        ("annotations/xmls/1.xml", "images/1.png", "1.png"),
        ("annotations/a/1.xml", "images/a/1.png", "images/a/1.png"),
        ("annotations/a/1.xml", "images/1.png", "images/1.png"),
        ("ds/annotations/1.xml", "ds/images/1.png", "1.png"),
        ("a/1.xml", "a/1.png", "a/1.png"),
    ],
)
def test_folders_of_annotations_have_folders_of_images(xml, image, key, tmp_path):
    put(tmp_path, {xml: XML.format(""), image: b""})
    assert rows_of(tmp_path) == ({key: (None, image)}, [])


@pytest.mark.parametrize(
    "encoding",
    ["utf-8", "utf-16", "iso-8859-1", "windows-1252", "gb2312", "GBK", "Shift_JIS", "EUC-KR"],
)
def test_xml_in_any_encoding_is_read(encoding, tmp_path):
    name = "é" if encoding in ("iso-8859-1", "windows-1252") else "中"
    text = (
        f'<?xml version="1.0" encoding="{encoding}"?>{XML.format(f"<filename>{name}</filename>")}'
    )
    put(tmp_path, {"7.xml": text.encode(encoding), "7.png": b"", f"{name}.jpg": b""})
    rows, _ = rows_of(tmp_path)
    assert [*rows] == [f"{name}.jpg"]


def test_an_encoding_that_the_bytes_do_not_have_is_a_reject(tmp_path):
    tree = put(tmp_path, {"7.xml": b'<?xml version="1.0" encoding="gbk"?><annotation>\xff'})
    (part,) = FORMATS["voc"].parts(sources_of(tree.root, "voc", has_images=True).files[0])
    (reject,) = FORMATS["voc"].read(part, Projection())
    assert isinstance(reject, Reject)
    assert "'gbk' codec can't decode byte 0xff" in reject.detail


@pytest.mark.parametrize("names", ['xmlns="http://x"', 'xmlns:v="http://x"'])
def test_namespaces_do_not_matter(names, tmp_path):
    text = XML.format("<filename>1.png</filename>")
    if "v=" in names:
        text = text.replace("</", "\0").replace("<", "<v:").replace("\0", "</v:")
    put(tmp_path, {"1.xml": text.replace("annotation>", f"annotation {names}>", 1), "1.png": b""})
    assert rows_of(tmp_path)[0] == {"1.png": (None, "1.png")}


def test_an_annotation_that_is_too_large_is_rejected(tmp_path, monkeypatch):
    tree = put(tmp_path, {"a.xml": "x" * 10, "b.xml": "x" * 11})
    monkeypatch.setattr(annotated, "_MAX_BYTES", 10)
    form = Annotated("x", ".xml", (), "", lambda data, **_: {"image": "1.jpg"})
    part = Part(TableFile(tree.root, "x"), names=("a.xml", "b.xml"))
    row, reject = form.read(tree, part, Projection())
    assert row.values["id"] == "a"
    what = "expected an annotation of at most 10 bytes, got more"
    assert reject == Reject("", "", tree.path("b.xml"), Reason.MALFORMED_ROW, what)


def test_an_annotation_with_too_many_elements_is_rejected(monkeypatch):
    monkeypatch.setattr(documents, "_MAX_ELEMENTS", 10)
    assert documents.parse_xml(b"<a>" + b"<b/>" * 9 + b"</a>").tag == "a"
    with pytest.raises(ValueError, match="at most 10 elements, got more"):
        documents.parse_xml(b"<a>" + b"<b/>" * 10 + b"</a>")
