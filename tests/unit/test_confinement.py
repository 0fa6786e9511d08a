"""Which references lead out of `--image_root`: addresses by their text, paths by where they go."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.records import ImageRef
from schemas.rejects import RecordError
from transforms.fence import Fence, real_path
from transforms.functional.confinement import check_address, normalized

ROOT = "s3://bucket/photos"
WEB = "https://host/photos/"


def leads(uri: str, root: str) -> str:
    """Returns where a reference leads to outside of a root; "" if it stays within."""
    try:
        check_address(uri, root)
    except RecordError as refusal:
        return place_in(refusal)
    return ""


def place_in(refusal: RecordError) -> str:
    assert refusal.reason == "outside_root"
    assert refusal.detail.endswith("put the file there, or say --allow_outside_root")
    return refusal.detail.removeprefix("leads to ").partition(", outside of ")[0]


@pytest.mark.parametrize(
    ("uri", "root", "place"),
    [
        ("s3://bucket/photos/a/1.jpg", ROOT, ""),
        ("s3://bucket/photos/a/../1.jpg", ROOT + "/", ""),
        ("s3://bucket/photos//./1.jpg", ROOT, ""),
        ("s3://bucket/photos/%2e%2e/1.jpg", ROOT, ""),  # a store's keys have no escapes
        ("s3://bucket/photos/../1.jpg", ROOT, "s3://bucket/1.jpg"),
        ("s3://bucket/photos/a/../../../../1.jpg", ROOT, "s3://bucket/1.jpg"),
        ("s3://bucket/photos2/1.jpg", ROOT, "s3://bucket/photos2/1.jpg"),
        ("s3://bucket/photos", ROOT, "s3://bucket/photos"),
        ("s3://other/photos/1.jpg", ROOT, "s3://other/photos/1.jpg"),
        ("gs://bucket/photos/1.jpg", ROOT, "gs://bucket/photos/1.jpg"),
        ("/etc/passwd", ROOT, "/etc/passwd"),
        ("s3://bucket/photos/1.jpg", "/photos", "s3://bucket/photos/1.jpg"),
        ("file:///photos/1.jpg", "/photos", "file:///photos/1.jpg"),
        ("https://host/photos/1.jpg?size=/../../x", WEB, ""),
        ("HTTPS://HOST/photos/1.jpg", WEB, ""),
        ("http://host/photos/1.jpg", WEB, "http://host/photos/1.jpg"),
        ("https://host/photos/../1.jpg", WEB, "https://host/1.jpg"),
        ("https://host/photos/%2E%2e/1.jpg", WEB, "https://host/1.jpg"),
        ("https://host/photos/..%2f1.jpg", WEB, "https://host/1.jpg"),
        ("https://host/photos/..\\1.jpg", WEB, "https://host/1.jpg"),
        ("https://host\\@evil/photos/1.jpg", WEB, "https://host/@evil/photos/1.jpg"),
        ("https://host@evil/photos/1.jpg", WEB, "https://***@evil/photos/1.jpg"),
        ("https://host.evil/photos/1.jpg", WEB, "https://host.evil/photos/1.jpg"),
        ("https://host:444/photos/1.jpg", WEB, "https://host:444/photos/1.jpg"),
    ],
)
def test_an_address_is_held_to_its_root(uri: str, root: str, place: str) -> None:
    assert leads(uri, root) == place


def test_two_paths_on_this_machine_are_left_to_it() -> None:
    assert leads("/etc/passwd", "photos") == ""


@given(st.lists(st.sampled_from(["a", "..", ".", "", "photos", "%2e%2e", "\\"]), max_size=8))
def test_whatever_passes_lies_below(parts: list[str]) -> None:
    for root in (ROOT, WEB):
        uri = "/".join([root.rstrip("/"), *parts, "x.jpg"])
        place = normalized(uri)
        assert not {"..", "."} & set(place.split("/"))
        assert normalized(place) == place
        assert (leads(uri, root) == "") == place.startswith(root.rstrip("/") + "/")


def ref(uri: object, mask: object = "") -> ImageRef:
    return ImageRef("k", "t.csv", 2, str(uri), None, None, (), mask_uri=str(mask))


def refused(root: object, uri: object, mask: object = "") -> str:
    """Returns where a reference leads to outside of a folder; "" if it stays within."""
    error = Fence(str(root)).refusal(ref(uri, mask))
    return "" if error is None else place_in(error)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder of pictures, and another beside it, which links lead to."""
    root, beside = tmp_path / "photos", tmp_path / "secret"
    for folder in (root / "a", beside):
        folder.mkdir(parents=True)
        (folder / "1.jpg").write_bytes(b"x")
    (root / "link.jpg").symlink_to(beside / "1.jpg")
    (root / "folder").symlink_to(beside)
    (root / "in.jpg").symlink_to(root / "a" / "1.jpg")
    (root / "up").symlink_to("..")
    (tmp_path / "same").symlink_to(root)
    return root


@pytest.mark.parametrize(
    ("path", "leads_to"),
    [
        ("a/1.jpg", ""),
        ("in.jpg", ""),
        ("a/../in.jpg", ""),
        ("../photos/a/1.jpg", ""),
        ("../same/a/1.jpg", ""),
        ("up/photos/in.jpg", ""),
        ("not there.jpg", ""),
        ("link.jpg", "secret/1.jpg"),
        ("folder/1.jpg", "secret/1.jpg"),
        ("folder/not there.jpg", "secret/not there.jpg"),
        ("../secret/1.jpg", "secret/1.jpg"),
        ("a/../../secret/1.jpg", "secret/1.jpg"),
        ("up/secret/1.jpg", "secret/1.jpg"),
        ("folder/../photos/../1.jpg", "1.jpg"),
        ("..", "."),
        ("../photos2", "photos2"),
    ],
)
def test_a_path_is_held_to_where_it_leads(place: Path, path: str, leads_to: str) -> None:
    expected = os.path.realpath(place.parent / leads_to) if leads_to else ""
    assert refused(place, place / path) == expected
    assert refused(place.parent / "same", place / path) == expected
    whole = refused(place, place / "in.jpg", place / path)
    assert whole == expected


def test_an_absolute_path_elsewhere_is_refused_and_a_relative_root_is_one(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place.parent)
    assert refused("photos", "photos/in.jpg") == ""
    assert refused("./photos/", place / "in.jpg") == ""
    assert refused("photos", "/etc/passwd") == os.path.realpath("/etc/passwd")
    assert refused("photos", "photos/a\0/../../x") != ""


def test_without_a_root_all_pass_and_staged_pictures_always_do(place: Path) -> None:
    assert Fence().refusal(ref("/etc/passwd")) is None
    staged = ref("/out/birds/1.0.0/.staging/x.images")._replace(staged=b"hash")
    assert Fence(str(place)).refusal(staged) is None


def test_where_a_path_leads_is_what_the_system_says(place: Path) -> None:
    for path in (".", "..", "link.jpg", "folder/../a", "up/up/photos/link.jpg", "a/", "in.jpg"):
        assert real_path(f"{place}/{path}") == os.path.realpath(f"{place}/{path}")
