"""Version tags and fingerprints: they change whenever an image or mask changes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.dataset_info import ImageFault
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.records import ImageRef, Row
from recordmill.schemas.rejects import Reason, RecordError, Reject
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.functional import read_ahead
from recordmill.transforms.functional.rows.batches import RefBatch
from recordmill.transforms.functional.rows.binding import Binding
from recordmill.transforms.read_rows import _staged, _staging_file
from recordmill.transforms.shards.build_examples import Fetched, _fetch
from recordmill.transforms.shards.checkpoints import Fingerprint
from recordmill.transforms.shards.shard_task import _file_version_tags, _ref_version_tags
from recordmill.transforms.storage import local_files
from recordmill.transforms.storage.files import VersionTags
from recordmill.transforms.storage.local_files import ImageRootGuard
from recordmill.transforms.storage.stores import objects
from tests.binding import bind

RESOLVED = ResolvedSchema(preset("image_classification"), {"label": ("cat", "dog")})


def ref(uri: str, **fields: Any) -> ImageRef:
    return ImageRef("key", "t.csv", 2, uri, None, None, (None, b"key", 0), **fields)


def fingerprint(refs: list[ImageRef], guard: ImageRootGuard | None = None) -> str | None:
    """Returns the fingerprint of a shard of these references."""
    return fingerprint_of(refs, _file_version_tags(refs, guard or ImageRootGuard(), remote=True))


def fingerprint_of(refs: list[ImageRef], tags: VersionTags) -> str | None:
    found = _ref_version_tags(refs, tags)
    if found is None:
        return None
    return Fingerprint("settings", "train", 0, RefBatch.of(refs), found, RESOLVED).digest


@pytest.mark.parametrize("folder", [".staging", "photos", "a/.staging/b"])
def test_a_changed_image_is_detected_in_any_folder(folder: str, tmp_path: Path) -> None:
    path = tmp_path / folder / "1.bmp"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"old")
    before = fingerprint([ref(str(path))])
    path.write_bytes(b"newer")
    assert fingerprint([ref(str(path))]) != before


def test_equal_names_in_two_folders_are_different_files(tmp_path: Path) -> None:
    absent = [fingerprint([ref(f"{tmp_path}/{name}/.staging/1.bmp")]) for name in "ab"]
    assert absent[0] != absent[1]


@pytest.mark.parametrize(
    "path",
    [".staging/link.jpg", "root/.staging/../../outside/1.jpg", "http://h/1.jpg?/.staging/"],
)
def test_no_path_escapes_the_image_root(path: str, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "1.jpg").write_bytes(b"secret")
    root = tmp_path / "root"
    (root / ".staging").mkdir(parents=True)
    (root / ".staging" / "link.jpg").symlink_to(tmp_path / "outside" / "1.jpg")
    binding = Binding(RESOLVED, {}, image_root=str(root), guard=str(root))
    row = Row({"image": path.replace("root/", f"{root}/"), "label": "cat"}, "t.csv", 2)
    with pytest.raises(RecordError, match="outside of --image_root"):
        ImageRootGuard(str(root)).check(bind(row, binding).uri)


def test_a_file_replaced_within_one_clock_tick_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Size and both times are equal, as on kernels with a clock tick of 4 to 10 ms."""

    def coarse(path: str) -> SimpleNamespace:
        return SimpleNamespace(st_size=3, st_mtime_ns=1, st_ctime_ns=1, st_ino=os.stat(path).st_ino)

    monkeypatch.setattr(local_files, "os", SimpleNamespace(stat=coarse))
    path, other = tmp_path / "1.bmp", tmp_path / "2.bmp"
    path.write_bytes(b"old")
    other.write_bytes(b"new")
    before = fingerprint([ref(str(path))])
    os.replace(other, path)
    assert fingerprint([ref(str(path))]) != before


@pytest.mark.parametrize(
    "reason", [Reason.OUTSIDE_ROOT, Reason.READ_ERROR, Reason.MISSING_FILE, Reason.TIMEOUT]
)
def test_transient_rejects_leave_no_checkpoint(reason: Reason) -> None:
    assert ImageFault(position=0, reason=reason, detail="").is_transient


@pytest.mark.parametrize("changed", ["nothing", "mask", "image", "both"])
def test_a_remote_image_and_a_local_mask_have_the_tags_of_the_bytes_read(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mask changes while the run waits for the store, the object between two requests."""
    tags, mask = {"now": "v1"}, tmp_path / "mask.png"
    mask.write_bytes(b"mask")

    def get(*_: object) -> tuple[bytes, str]:
        if changed in ("mask", "both"):
            mask.write_bytes(b"another mask")
        return b"image", tags["now"]

    monkeypatch.setattr(objects.OBJECTS, "read", get)
    monkeypatch.setattr(objects.OBJECTS, "version_tag", lambda _: tags["now"])
    refs = [ref("s3://bucket/1.jpg", others=((str(mask), None, None, b""),))]
    first = _file_version_tags(refs, ImageRootGuard(), remote=False)
    seen = dict(first)
    _fetch(refs[0], seen, ImageRootGuard(), ["mask"])
    again = _file_version_tags(refs, ImageRootGuard(), remote=True)
    mask_changed = changed in ("mask", "both")
    assert (_ref_version_tags(refs, first), _ref_version_tags(refs, seen) is None) == (
        None,
        mask_changed,
    )
    assert (_ref_version_tags(refs, seen) == _ref_version_tags(refs, again)) is (
        changed in ("nothing", "image")
    )
    if changed in ("image", "both"):
        tags["now"] = "v2"
        _fetch(refs[0], again, ImageRootGuard(), ["mask"])
        assert _ref_version_tags(refs, again) is None  # nobody knows which of the two was read


class World:
    """The input of two runs, and changes of it during or after the first run."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ticks = folder, count(10**18)
        self.root = folder / "root"
        for name in ("root/.staging", "root/sub", "outside"):
            (folder / name).mkdir(parents=True)
        self.images = [
            self.root / name for name in ("1.bmp", ".staging/2.bmp", "sub/3.bmp", "link.bmp")
        ]
        for number, path in enumerate(self.images[:3]):
            path.write_bytes(b"image %d" % number)
        self.images[3].symlink_to(self.images[0])
        (folder / "outside" / "3.bmp").write_bytes(b"image 2")
        self.mask = self.root / "mask.png"
        self.mask.write_bytes(b"mask")
        self.embedded = [b"embedded 0", b"embedded 1"]
        self.label = 0

    def refs(self) -> list[ImageRef]:
        """Reads the table, the first step of each run."""
        found = (Row({}, "t.parquet", line, image=data) for line, data in enumerate(self.embedded))
        rows = _staged(found, _staging_file(str(self.folder / "work")))
        values = (None, b"key", self.label)
        in_table = [
            ImageRef("key", row.file, row.line, *row.image[:3], values, staged=row.image.staged)
            for row in rows
        ]
        refs = [ImageRef("key", "t.csv", 2, str(path), None, None, values) for path in self.images]
        refs[0] = refs[0]._replace(others=((str(self.mask), None, None, b""),))
        return in_table + refs

    def rewrite(self, path: Path, data: bytes) -> None:
        if path.exists():
            path.write_bytes(data)
            os.utime(path, ns=(next(self.ticks),) * 2)  # the clock went on

    def replace(self, path: Path, data: bytes) -> None:
        """Replaces a file with another one of the same times."""
        if path.exists():
            state = path.stat()
            new = path.with_name("new")
            new.write_bytes(data)
            os.utime(new, ns=(state.st_atime_ns, state.st_mtime_ns))
            os.replace(new, path)

    def delete(self, path: Path, _: bytes) -> None:
        path.unlink(missing_ok=True)

    def turn_the_link(self, path: Path, _: bytes) -> None:
        if path != self.images[3]:
            self.images[3].unlink(missing_ok=True)
            self.images[3].symlink_to(path)

    def lead_out(self, _: Path, data: bytes) -> None:
        """Moves a folder out of the root and links to it, or moves it back."""
        sub, away = self.root / "sub", self.folder / "away"
        if sub.is_symlink():
            sub.unlink()
            shutil.move(away, sub)
        else:
            shutil.move(sub, away)
            sub.symlink_to(away)

    def change_the_table(self, _: Path, data: bytes) -> None:
        self.embedded = [data, self.embedded[0]]

    def change_a_label(self, _: Path, data: bytes) -> None:
        self.label = len(data) % 2


CHANGES: list[Callable[[World, Path, bytes], None]] = [
    World.rewrite,
    World.replace,
    World.delete,
    World.turn_the_link,
    World.lead_out,
    World.change_the_table,
    World.change_a_label,
]


def outcome(
    refs: list[ImageRef], guard: ImageRootGuard, seen: VersionTags | None = None
) -> list[Any]:
    """Returns the content of a shard of these references: values, and files or rejects."""
    return [(one.values, holding(_fetch(one, seen, guard, ()))) for one in refs]


def holding(fetched: Fetched | Reject) -> tuple[Any, ...]:
    """Returns the reason and detail of a reject, or the bytes of all files."""
    if isinstance(fetched, Reject):
        return fetched.reason, fetched.detail
    return fetched.image, *fetched.others


def is_passing(written: list[Any]) -> bool:
    """Returns whether a shard has no checkpoint because a reject may be transient."""
    reasons = [found[0] for _, found in written if isinstance(found[0], Reason)]
    return any(ImageFault(position=0, reason=reason, detail="").is_transient for reason in reasons)


def test_a_link_that_changes_briefly_leaves_no_checkpoint(tmp_path: Path) -> None:
    """For links of files and of folders: the tag is that of the bytes read."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.bmp").write_bytes(name.encode())
    folder, link = tmp_path / "folder", tmp_path / "1.bmp"
    refs = [ref(f"{folder}/1.bmp"), ref(str(link))]

    def lead_to(name: str) -> None:
        for path, to in ((folder, tmp_path / name), (link, tmp_path / name / "1.bmp")):
            path.unlink(missing_ok=True)
            path.symlink_to(to)

    lead_to("a")
    known = fingerprint(refs)
    taken = _file_version_tags(refs, ImageRootGuard(), remote=False)
    lead_to("b")
    seen = dict(taken)
    assert [files[0] for _, files in outcome(refs, ImageRootGuard(), seen)] == [b"b", b"b"]
    lead_to("a")
    assert fingerprint(refs) == known  # nothing shows it afterwards
    assert (_ref_version_tags(refs, taken) is None, _ref_version_tags(refs, seen)) == (False, None)


@settings(max_examples=60)
@given(data=st.data(), confined=st.booleans())
def test_a_finished_shard_is_reused_only_if_a_new_one_would_be_equal(
    data: st.DataObject, confined: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Changes occur between any two steps of the first run, and after it."""
    world = World(tmp_path_factory.mktemp("world"))
    change = st.tuples(
        st.sampled_from(CHANGES),
        st.sampled_from([*world.images[:3], world.mask]),
        st.sampled_from([b"image 0", b"image 9", b"embedded 9", b"longer image"]),
    )

    def guard() -> ImageRootGuard:
        return ImageRootGuard(str(world.root)) if confined else ImageRootGuard()

    def meanwhile() -> None:
        for apply, path, new in data.draw(st.lists(change, max_size=2)):
            apply(world, path, new)

    refs = world.refs()
    meanwhile()
    asked = data.draw(st.booleans())  # as they are if a checkpoint may match
    seen = _file_version_tags(refs, guard(), remote=False) if asked else {}
    meanwhile()
    written = outcome(refs, guard(), seen)
    known = fingerprint_of(refs, seen)
    meanwhile()
    again = world.refs()
    if known is not None and not is_passing(written) and fingerprint(again, guard()) == known:
        assert repr(outcome(again, guard())) == repr(written)


def test_tags_taken_by_threads_are_those_taken_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    world.images[1].unlink()
    guard = ImageRootGuard(str(world.root))
    expected = _file_version_tags(world.refs(), guard, remote=False)
    assert len(expected) > 4
    monkeypatch.setattr(read_ahead, "_SLOW_CALL", 0.0)
    assert _file_version_tags(world.refs(), guard, remote=False) == expected


def test_an_unchanged_shard_is_reused(tmp_path: Path) -> None:
    world = World(tmp_path)
    known = fingerprint(world.refs(), ImageRootGuard(str(world.root)))
    assert known is not None
    assert fingerprint(world.refs(), ImageRootGuard(str(world.root))) == known
