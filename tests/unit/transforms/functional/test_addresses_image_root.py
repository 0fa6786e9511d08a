"""Which references lead out of `--image_root`: addresses by their text, paths by where they go."""

from __future__ import annotations

import os
import pickle
import posixpath
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from urllib3.connection import HTTPConnection

from recordmill.schemas.layout import is_web
from recordmill.schemas.masking import masked_url
from recordmill.schemas.records import ImageRef
from recordmill.schemas.rejects import RecordError
from recordmill.transforms.functional.addresses import _normalized, check_address, parse_web_address
from recordmill.transforms.storage.local_files import ImageRootGuard
from recordmill.transforms.storage.stores import web
from recordmill.transforms.storage.stores.options import StoreOptions, use_options

ROOT = "s3://bucket/photos"
WEB = "https://host/photos/"


def leads(uri: str, root: str) -> str:
    """Returns the resolved address of a reference outside a root; "" for one below it."""
    try:
        check_address(uri, root)
    except RecordError as rejection:
        return place_in(rejection)
    return ""


def place_in(rejection: RecordError) -> str:
    assert rejection.reason == "outside_root"
    assert rejection.detail.endswith("Put the file there, or pass --allow_outside_root.")
    return rejection.detail.removeprefix("leads to ").partition(", outside of ")[0]


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
        ("https://host/photos/a%2F1.jpg", WEB, ""),
        ("https://host/photos/100%25 of..them.jpg", WEB, ""),
        ("https://host/photos%2F1.jpg", WEB, "https://host/photos/1.jpg"),
        ("https://host//photos/1.jpg", WEB, "https://host/photos/1.jpg"),
        ("https://host/photos/..;a=b/1.jpg", WEB, "https://host/photos/..;a=b/1.jpg"),
        ("https://host/photos/%252e%252E/1.jpg", WEB, "https://host/photos/%2e%2E/1.jpg"),
        ("https://host/photos/%2e%2e%00/1.jpg", WEB, "https://host/photos/..\0/1.jpg"),
        ("https://host/photos/%25252525252e/1.jpg", WEB, "https://host/photos/%252525252e/1.jpg"),
        ("https://host/photos/%c0%ae%C0%AE/1.jpg", WEB, "https://host/photos/����/1.jpg"),
        ("https://host/photos/.%u002E%c0%af1.jpg", WEB, "https://host/photos/.%u002E%C0%AF1.jpg"),
        ("https://host/photos/\uff0e./1.jpg", WEB, "https://host/photos/\uff0e./1.jpg"),
        ("https://host/photos/.%09./1.jpg", WEB, "https://host/photos/.\t./1.jpg"),
        ("https://host/photos/%c0%ae%c0%aethem.jpg", WEB, ""),
        ("https://host:443/photos/1.jpg", WEB, ""),
        ("https://me:pw@host/photos/1.jpg?a#b", WEB, ""),
        ("https://host@evil/photos/1.jpg", WEB, "https://evil/photos/1.jpg"),
        ("https://host./photos/1.jpg", WEB, "https://host./photos/1.jpg"),
        ("https://[::1%25a]/photos/1.jpg", "https://[::1]/photos", "https://[::1%a]/photos/1.jpg"),
        ("hdfs://photos/a/1.jpg", "hdfs://photos", ""),
        ("hdfs://photos/../etc/1.jpg", "hdfs://photos", "hdfs://photos/etc/1.jpg"),
        ("hdfs://photos/../etc/1\n/../../a", "hdfs://photos", "hdfs://photos/a"),
        ("azfs://me/box/../box2/1.jpg", "azfs://me/box", "azfs://me/box2/1.jpg"),
        ("s3://bucket/x/../photos/1.jpg", ROOT, "s3://bucket/photos/1.jpg"),  # keys have no ..
        ("S3://bucket/photos/1.jpg", ROOT, "s3://bucket/photos/1.jpg"),
        ("https://host.evil/photos/1.jpg", WEB, "https://host.evil/photos/1.jpg"),
        ("https://host:444/photos/1.jpg", WEB, "https://host:444/photos/1.jpg"),
    ],
)
def test_addresses_outside_the_root_are_rejected(uri: str, root: str, place: str) -> None:
    assert leads(uri, root) == place


def test_local_paths_are_not_checked_by_their_text() -> None:
    assert leads("/etc/passwd", "photos") == ""


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("https://host\\@evil/photos/1.jpg", "it has a backslash before its path"),
        ("https://host\\photos\\x@evil/photos/1.jpg", "it has a backslash before its path"),
        ("https://host/photos/.\t./1.jpg", "it has control characters"),
        ("https://host/photos/.\n./1.jpg", "it has control characters"),
        ("https://host/photos/\x85/1.jpg", "it has control characters"),
        ("https://host:x/photos/1.jpg", "its host or its port is not valid"),
        ("https://host:99999/photos/1.jpg", "its host or its port is not valid"),
        ("https://ho\u017ft/photos/1.jpg", "its host or its port is not valid"),
        ("https://host\u3002/photos/1.jpg", "its host or its port is not valid"),
        ("https:///photos/1.jpg", "it has no host"),
        ("https://host/photos/" + 8192 * "a", "it has more than 8,192 characters"),
    ],
)
def test_ambiguous_addresses_are_outside(uri: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"^{why}$"):
        parse_web_address(uri)
    assert leads(uri, WEB) == f"{masked_url(uri)[:200]!r}, which is not a valid web address: {why}"


PIECES = (
    *("a", "..", ".", "/", "//", "photos", "%2e%2e", "%2E.", "%252e", "%2f", "%5c", "\\", "@", ";"),
    *(
        "host",
        "evil",
        ":",
        "80",
        ":80",
        ":081",
        "?",
        "#",
        "\t",
        "\n",
        "\r",
        "\0",
        "\x85",
        " ",
        "%00",
    ),
    *("\u3002", "\uff0e", "\u212a", "\u017f", "\uff0f", "[", "]", "[::1]", "%25", "%", "127.0.0.1"),
    *("http:", "http://", "https://", "HOST", "me:pw@", "\ud800", "\xad"),
)
STARTS = ("http://host/photos/", "http://host", "http://", "HTTP://host/photos", "")


@pytest.fixture(scope="module")
def asked() -> Iterator[Callable[[str], list[tuple[str, int, str]]]]:
    """Fetches a web address, and returns the host, port and target of each request."""
    made: list[tuple[str, int, str]] = []

    def request(self: HTTPConnection, method: str, target: str, **_: object) -> None:
        made.append((self.host, self.port, target))
        raise PermissionError("no host is asked")

    def ask(url: str) -> list[tuple[str, int, str]]:
        made.clear()
        with suppress(OSError):
            list(web._chunks(url, None, 1000, time.monotonic() + 60))
        return list(made)

    use_options(StoreOptions(allow_private_hosts=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HTTPConnection, "request", request)
        yield ask
    use_options(None)


@given(st.sampled_from(STARTS), st.lists(st.sampled_from(PIECES) | st.text(max_size=2), max_size=8))
@example("http://host", ["\\", "photos", "\\", "x", "@", "evil", "/photos/"])
@example("http://host/photos/", [".", "\t", ".", "/", "secret"])
def test_accepted_addresses_are_requested_below_the_root(
    asked: Callable[[str], list[tuple[str, int, str]]], start: str, pieces: list[str]
) -> None:
    uri = start + "".join(pieces)
    if leads_out(uri, "http://host/photos"):
        return
    ((host, port, target),) = asked(uri)
    assert (host, port) == ("host", 80)
    path = target.partition("?")[0]
    for _ in range(5):  # whatever a server decodes
        assert path.startswith("/photos/")
        assert posixpath.normpath(path.replace("\\", "/")).startswith("/photos")
        path = unquote(path)


def leads_out(uri: str, root: str) -> bool:
    if not is_web(uri):  # a path, which is not fetched
        return True
    try:
        check_address(uri, root)
    except RecordError:
        return True
    return False


@given(st.lists(st.sampled_from(["a", "..", ".", "", "photos", "\n"]), max_size=8))
@pytest.mark.parametrize("root", [ROOT, "hdfs://photos", "azfs://me/box", "gs://bucket/a/b"])
def test_accepted_keys_are_below_the_root_as_text_and_as_path(root: str, parts: list[str]) -> None:
    uri = "/".join([root, *parts, "x.jpg"])
    if leads(uri, root) != "":
        return
    assert uri.startswith(f"{root}/")
    whole = uri.partition(":/")[2].partition("\n")[0]  # HDFS takes all as one path
    assert posixpath.normpath(whole).startswith(root.partition(":/")[2] + "/")


def test_messages_show_the_resolved_path() -> None:
    assert _normalized("s3://bucket/a/../..//./b/") == "s3://bucket/b"


def ref(uri: object, mask: object = "") -> ImageRef:
    return ImageRef(
        "k", "t.csv", 2, str(uri), None, None, (), others=((str(mask), None, None, b""),)
    )


def rejected(root: object, uri: object, mask: object = "") -> str:
    """Returns the resolved path of a reference outside a folder; "" for one below it."""
    try:
        ImageRootGuard(str(root)).check_ref(ref(uri, mask))
    except RecordError as error:
        return place_in(error)
    return ""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder of images, and another folder that links point to."""
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
def test_paths_are_checked_at_their_link_targets(place: Path, path: str, leads_to: str) -> None:
    expected = os.path.realpath(place.parent / leads_to) if leads_to else ""
    assert rejected(place, place / path) == expected
    assert rejected(place.parent / "same", place / path) == expected
    whole = rejected(place, place / "in.jpg", place / path)
    assert whole == expected


def test_an_absolute_path_elsewhere_is_rejected_and_a_relative_root_is_one(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place.parent)
    assert rejected("photos", "photos/in.jpg") == ""
    assert rejected("./photos/", place / "in.jpg") == ""
    assert rejected("photos", "/etc/passwd") == os.path.realpath("/etc/passwd")
    assert rejected("photos", "photos/a\0/../../x") != ""


def test_all_paths_pass_without_a_root_and_staged_images_always(place: Path) -> None:
    ImageRootGuard().check_ref(ref("/etc/passwd"))
    staged = ref("/out/birds/1.0.0/.staging/x.images")._replace(staged=b"hash")
    ImageRootGuard(str(place)).check_ref(staged)


def test_changed_links_are_followed_by_the_next_run(place: Path) -> None:
    """A worker or a host program can live longer than the run."""
    link, elsewhere = place / "folder", place.parent / "secret"
    paths = [place / "folder/1.jpg", place / "up/photos/a/1.jpg"]
    before = [rejected(place, path) for path in paths]
    link.unlink()
    link.symlink_to("a")
    (place / "up").unlink()
    (place / "up").symlink_to(elsewhere)
    (elsewhere / "photos").symlink_to(elsewhere)
    after = [rejected(place, path) for path in paths]
    assert before == [os.path.realpath(elsewhere / "1.jpg"), ""]
    assert after == ["", os.path.realpath(elsewhere / "a/1.jpg")]


def test_workers_do_not_share_cached_results(place: Path) -> None:
    guard = ImageRootGuard(str(place))
    guard.check(str(place / "a/1.jpg"))
    assert vars(pickle.loads(pickle.dumps(guard))) == {"root": str(place)}  # noqa: S301


def test_link_targets_agree_with_the_file_system(place: Path) -> None:
    for path in (".", "..", "link.jpg", "folder/../a", "up/up/photos/link.jpg", "a/", "in.jpg"):
        assert ImageRootGuard()._resolve(f"{place}/{path}")[0] == os.path.realpath(
            f"{place}/{path}"
        )
