"""`--image_root` confines every source: no image or mask outside of it is read unless allowed."""

from __future__ import annotations

import io
import json
import re
import tarfile
from pathlib import Path

import pytest

from recordmill.transforms.functional.sources import webdataset
from tests.end_to_end import readers
from tests.end_to_end.command import convert, published
from tests.images import jpeg, png

BOXES = ("--schema", "object_detection")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with an image, an image outside of it, and two links to that one."""
    root, beside = tmp_path / "photos", tmp_path / "secret"
    for folder in (root / "cat", beside):
        folder.mkdir(parents=True)
    (root / "cat/good.jpg").write_bytes(jpeg(seed=1))
    (beside / "hidden.jpg").write_bytes(jpeg(seed=2))
    (root / "cat/link.jpg").symlink_to(beside / "hidden.jpg")
    (root / "dog").symlink_to(beside)
    return root


def outside(root: Path) -> str:
    """Returns the detail of the reject of a row with the outside image."""
    there = (root.parent / "secret/hidden.jpg").resolve()
    remedy = "Put the file there, or pass --allow_outside_root."
    return f"leads to {there}, outside of --image_root {root}. {remedy}"


def rejects_of(source: Path, root: Path, *flags: object) -> list[tuple[str, str, str]]:
    """Returns (key, reason, detail) of each reject; the valid image must be written."""
    flags = (*flags, "--image_root", root, "--max_rejects", "99")
    dataset = published(source, root.parent / "out", *flags)
    (record,) = readers.index_rows(dataset, "train")
    assert record["key"].endswith("good.jpg")
    if "--report" in flags:
        report = (dataset / "report.html").read_text("utf-8")
        # What is outside is not shown either; the image inside may be in several sections.
        assert len(set(re.findall(r'data:image/[^"]+', report))) == 1
    return sorted((r["key"], r["reason"], r["detail"]) for r in readers.rejects(dataset))


def table(root: Path, *paths: object) -> Path:
    lines = ["image,label", "cat/good.jpg,cat", *(f"{path},dog" for path in paths)]
    (root.parent / "labels.csv").write_text("".join(f"{line}\n" for line in lines))
    return root.parent / "labels.csv"


def test_rows_that_lead_outside_are_rejected_without_any_request(root: Path) -> None:
    """By paths, links and URLs, also for rows that are rejected for another reason."""
    absolute = root.parent / "secret/hidden.jpg"
    paths = ["../secret/hidden.jpg", str(absolute), "cat/link.jpg", "dog/hidden.jpg"]
    urls = ["file:///etc/passwd", "http://127.0.0.1:9/1.jpg?sig=abc", "s3://nowhere/1.jpg"]
    source = table(root, *paths, *urls)
    source.write_text(source.read_text() + "cat/../cat/link.jpg,cow\n")
    (root.parent / "classes.txt").write_text("cat\ndog\n")
    found = rejects_of(source, root, "--report", "--classes", root.parent / "classes.txt")
    others = [reject for reject in found if reject[0] not in paths]
    assert [reject for reject in found if reject[0] in paths] == sorted(
        (path, "outside_root", outside(root)) for path in paths
    )
    assert [(reason, detail.partition(",")[0]) for _, reason, detail in others[1:]] == [
        ("outside_root", "leads to /etc/passwd"),
        ("outside_root", "leads to http://127.0.0.1:9/1.jpg"),
        ("outside_root", "leads to s3://nowhere/1.jpg"),
    ]
    assert others[0][:2] == ("cat/../cat/link.jpg", "unknown_label")


def test_outside_images_are_read_if_allowed_and_not_reused_afterwards(root: Path) -> None:
    source, output = table(root, "cat/link.jpg"), root.parent / "out"
    flags = ("--image_root", root, "--num_shards", "1")
    cut = convert(source, output, *flags, "--allow_outside_root", "--verify", "parse")
    assert cut.code == 0
    assert readers.keys(output / "birds/1.0.0", "train").count("cat/link.jpg") == 1
    # A run that was allowed to, and did not publish, leaves its shards: they are not taken.
    broken = table(root, "cat/link.jpg", "not there.jpg")
    assert convert(broken, root.parent / "two", *flags, "--allow_outside_root").code == 4
    dataset = published(broken, root.parent / "two", *flags, "--max_rejects", "2")
    assert readers.keys(dataset, "train") == ["cat/good.jpg"]
    assert {r["reason"] for r in readers.rejects(dataset)} == {"outside_root", "missing_file"}


def test_links_in_a_folder_of_classes_are_followed_only_within(root: Path) -> None:
    found = rejects_of(root, root)
    assert found == [
        ("cat/link.jpg", "outside_root", outside(root)),
        ("dog/hidden.jpg", "outside_root", outside(root)),
    ]


def test_without_an_image_root_links_are_followed(root: Path) -> None:
    dataset = published(root, root.parent / "out")
    assert sorted(readers.keys(dataset, "train")) == [
        "cat/good.jpg",
        "cat/link.jpg",
        "dog/hidden.jpg",
    ]


def test_coco_images_are_confined(root: Path) -> None:
    names = ["cat/good.jpg", "../secret/hidden.jpg", "cat/link.jpg"]
    document = {
        "images": [{"id": i, "file_name": name} for i, name in enumerate(names)],
        "annotations": [
            {"image_id": i, "bbox": [0, 0, 4, 4], "category_id": 1, "area": 16, "iscrowd": 0}
            for i in range(len(names))
        ],
        "categories": [{"id": 1, "name": "cat"}],
    }
    (root.parent / "coco.json").write_text(json.dumps(document))
    found = rejects_of(root.parent / "coco.json", root, *BOXES)
    assert [(key, reason) for key, reason, _ in found] == [
        ("../secret/hidden.jpg", "outside_root"),
        ("cat/link.jpg", "outside_root"),
    ]


def test_voc_images_are_confined(root: Path) -> None:
    annotations = root.parent / "Annotations"
    annotations.mkdir()
    for i, name in enumerate(["cat/good.jpg", "../secret/hidden.jpg", "cat/link.jpg"]):
        box = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>4</xmax><ymax>4</ymax></bndbox>"
        found = f"<filename>{name}</filename><object><name>cat</name>{box}</object>"
        (annotations / f"{i}.xml").write_text(f"<annotation>{found}</annotation>")
    rejects = rejects_of(annotations, root, *BOXES, "--input_format", "voc")
    assert [(key, reason) for key, reason, _ in rejects] == [
        ("../secret/hidden.jpg", "outside_root"),
        ("cat/link.jpg", "outside_root"),
    ]


def test_yolo_images_are_confined(root: Path) -> None:
    (root / "classes.txt").write_text("cat\n")
    for name in ("good", "link"):
        (root / f"cat/{name}.txt").write_text("0 0.5 0.5 0.2 0.2\n")
    found = rejects_of(root, root, *BOXES, "--input_format", "yolo")
    assert [(key, reason) for key, reason, _ in found] == [
        ("cat/link.jpg", "outside_root"),
        ("dog/hidden.jpg", "outside_root"),
    ]


def test_masks_are_confined(root: Path) -> None:
    (root / "mask.png").write_bytes(png(16, 12, 1, "L"))
    (root.parent / "secret/mask.png").write_bytes(png(32, 24, 1, "L"))
    (root / "link.png").symlink_to(root.parent / "secret/mask.png")
    masks = ["../secret/mask.png", "link.png", "s3://nowhere/mask.png"]
    rows = [{"image": "cat/good.jpg", "mask": mask, "id": mask} for mask in [*masks, "mask.png"]]
    (root.parent / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = ("--schema", "segmentation", "--key_column", "id", "--image_root", root)
    dataset = published(root.parent / "t.jsonl", root.parent / "out", *flags, "--max_rejects", "9")
    found = sorted((r["key"], r["reason"]) for r in readers.rejects(dataset))
    assert found == [(mask, "outside_root") for mask in sorted(masks)]


def test_a_dry_run_reads_nothing_outside(root: Path) -> None:
    flags = ("--image_root", root, "--dry_run", "--max_rejects", "9")
    ended = convert(table(root, "cat/link.jpg"), root.parent / "out", *flags)
    assert ended.code == 0, ended.err
    assert "outside_root" in ended.out


def test_links_and_upward_names_in_a_tar_touch_no_file(root: Path) -> None:
    """Members are read in place, never unpacked: a member name is a key, not a path."""
    archive = root.parent / "hostile.tar"
    data = jpeg(seed=3)
    with tarfile.open(archive, "w") as tar:
        for name in ("good.jpg", "../../secret/up.jpg", "/etc/absolute.jpg"):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        for kind, name in ((tarfile.SYMTYPE, "soft.jpg"), (tarfile.LNKTYPE, "hard.jpg")):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, str(root.parent / "secret/hidden.jpg")
            tar.addfile(member)
    before = sorted(root.parent.rglob("*"))
    dataset = published(archive, root.parent / "out", "--max_rejects", "9", *unlabelled(root))
    assert sorted(readers.keys(dataset, "train")) == ["/etc/absolute.jpg", "good.jpg"]
    manifest = json.loads((dataset / "manifest.json").read_bytes())
    assert manifest["input"]["asides"] == {webdataset.HIDDEN: 1}  # that in ".."
    found = readers.rejects(dataset)
    assert [r["reason"] for r in found] == ["malformed_row"] * 2
    assert "hard link" in found[0]["detail"] + found[1]["detail"]
    written = {path for path in root.parent.rglob("*") if "out" not in path.parts}
    assert written == {*before, root.parent / "schema.yaml"}


def unlabelled(root: Path) -> tuple[object, ...]:
    """Returns the flags to convert images without labels."""
    (root.parent / "schema.yaml").write_text(
        'name: bare\nfeatures:\n  image: {kind: bytes, from: "image:bytes"}\n'
    )
    return ("--schema", root.parent / "schema.yaml")
