"""Random sequences of convert, append, forget, gc, kills, links, foreign files and permissions.

After each command, every published version that was to be kept has the same bytes, nothing foreign
has changed, and there is a message in place of a traceback. `SEQUENCES=200` runs more of them.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from recordmill.transforms.storage.published import version_numbers
from tests.end_to_end.command import Ended, published, recordmill
from tests.unprivileged import unprivileged

SEQUENCES = int(os.environ.get("SEQUENCES", "6"))
STEPS = 9
LAYOUT = ("--schema", "tabular", "--key_column", "id", "--splits", "train=0.6,test=0.4")
LAYOUT += ("--num_shards", "train=3,test=2")
FOREIGN = ("upload.lock", "dvc.lock", "NOTES.md", ".birds.run/mine", "dir.lock/mine", "2.0/x")
Snapshot = dict[str, bytes | str]


class Killed(BaseException):
    """Ends a command in the middle of a deletion, as SIGKILL does."""


def table(folder: Path, day: int) -> Path:
    """Writes a table of four rows."""
    rows = [f"row-{day}-{i},{i}\n" for i in range(4)]
    (folder / f"{day}.csv").write_text("id,n\n" + "".join(rows))
    return folder / f"{day}.csv"


def append(birds: Path, table: Path, base: str, version: str) -> Ended:
    flags = ("--base", birds / base, "--append", "--version", version, *LAYOUT, "--no_report")
    target = ("--output", birds.parent, "--name", "birds")
    return recordmill("convert", "--input", table, *target, *flags)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four versions, each with the rows of a day more."""
    folder = tmp_path_factory.mktemp("sequences")
    published(table(folder, 0), folder, *LAYOUT)
    for day in (1, 2, 3):
        ended = append(folder / "birds", table(folder, day), f"1.{day - 1}.0", f"1.{day}.0")
        assert ended.code == 0, ended.err
    return folder


def snapshot(folder: Path) -> Snapshot:
    """Returns the content, or link target, of each file below a folder, or of one file."""
    paths = [folder] if folder.is_symlink() or not folder.is_dir() else sorted(folder.rglob("*"))
    return {
        str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in paths
        if path.is_symlink() or path.is_file()
    }


@dataclass
class World:
    """A folder of versions, and the state that a command has to respect."""

    birds: Path
    made: Path
    draw: random.Random
    foreign: dict[Path, Snapshot] = field(default_factory=dict)
    modes: dict[Path, int] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)

    def versions(self, readable: bool = True) -> list[str]:
        """Returns the published versions that are no links, oldest first."""
        names = (path.parent.name for path in self.birds.glob("*/_SUCCESS"))
        names = (name for name in names if not (self.birds / name).is_symlink())
        found = sorted(names, key=version_numbers)
        return [v for v in found if not (readable and self.birds / v in self.modes)]

    def half_deleted(self) -> list[str]:
        """Returns the versions that have lost their commit marker."""
        found = (path for path in self.birds.glob("1.*.*") if not path.is_symlink())
        return sorted(path.name for path in found if not (path / "_SUCCESS").exists())

    def holders(self, keys: set[str]) -> list[str]:
        """Returns the versions with any of some keys."""
        return [v for v in self.versions() if keys & keys_of(self.birds / v)]

    @property
    def is_obstructed(self) -> bool:
        return bool(self.foreign or self.modes)

    # Changes of the folder, each as a person or another program may make it.

    def publish(self) -> None:
        """Publishes a prepared version, whose unchanged shards are links to those of others."""
        newest = version_numbers((self.versions(readable=False) or ["0.0.0"])[-1])
        for version in ("1.0.0", "1.1.0", "1.2.0", "1.3.0"):
            if version_numbers(version) > newest and not (self.birds / version).exists():
                stage(self.made / "birds" / version, self.birds)
                return

    def append(self) -> None:
        """Appends the rows of a day, with the command."""
        newest, day = self.versions()[-1:], self.draw.randrange(4, 9)
        if newest and not self.is_obstructed:
            number = version_numbers(newest[0])
            version = f"{number[0]}.{number[1] + 1}.0"
            ended = append(self.birds, table(self.made, day), newest[0], version)
            assert ended.code in (0, 4), ended.err  # the rows of that day may be there already

    def half_delete(self) -> None:
        """Leaves an old version as a killed deletion does, of this release or another."""
        for version in self.versions()[:-1][:1]:
            folder = self.birds / version
            (folder / "_SUCCESS").unlink()
            if self.draw.random() < 0.5:
                (folder / "run.json").unlink()
            for path in sorted(folder.glob("birds-*")):
                if self.draw.random() < 0.5:
                    path.unlink()

    def add_foreign(self) -> None:
        where = [*FOREIGN]
        for version in self.versions(readable=False)[:2]:
            where += [f"{version}/notes.txt", f"{version}/records/{'beam-temp-x-' + 'a' * 32}/x"]
        self._note(path := self.birds / self.draw.choice(where), not path.exists())

    def _note(self, path: Path, is_new: bool = True) -> None:
        if is_new and not any(folder in self.modes for folder in path.parents):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("" if path.suffix == ".lock" else "mine")
            self.foreign[path] = snapshot(path)

    def add_link(self) -> None:
        if versions := self.versions(readable=False):
            name = self.draw.choice(("9.0.0", "0.1.0", "latest", "1.0.7"))
            if not os.path.lexists(path := self.birds / name):
                path.symlink_to(self.draw.choice(versions))
                self.foreign[path] = snapshot(path)

    def deny(self) -> None:
        if versions := self.versions():
            version = self.birds / self.draw.choice(versions)
            folder, mode = self.draw.choice(((version, 0), (version / "records", 0o555)))
            if mode:
                self.modes[folder] = 0o755
                folder.chmod(mode)
            elif not any(version in path.parents for path in self.modes):
                self.modes[version] = 0o755
                version.chmod(0)

    def leave_lock(self) -> None:
        """Leaves the lock file of a killed command, which is not locked any more."""
        (self.birds / ".1.0.0.lock").write_text("process 1 on a host\n")

    def clear(self) -> None:
        """Removes all obstacles."""
        for path, mode in self.modes.items():
            path.chmod(mode)
        for path in self.foreign:
            path.unlink()
            if path.parent.name.startswith((".birds", "dir.", "2.0", "beam-temp")):
                path.parent.rmdir()
        self.modes.clear()
        self.foreign.clear()

    # Commands, each with the versions that it may delete.

    def gc(self) -> None:
        keep, dry_run = self.draw.choice((1, 1, 2)), self.draw.random() < 0.2
        old = self.versions()[:-keep]
        flags = ("gc", self.birds, "--keep", keep, *(("--dry_run",) if dry_run else ()))
        ended = self.run(flags, set() if dry_run else {*old, *self.half_deleted()})
        if ended and ended.code == 0 and not dry_run:
            assert not {*old, *self.half_deleted()} & {path.name for path in self.birds.iterdir()}
        if not self.is_obstructed and ended:
            assert ended.code == (0 if old or self.versions() or self.half_deleted() else 2)

    def forget(self) -> None:
        if not self.versions():
            return
        some = sorted(set().union(*(keys_of(self.birds / v) for v in self.versions())))
        keys, purge = set(self.draw.sample(some, 1)), self.draw.random() < 0.7
        (self.made / "keys.txt").write_text("\n".join(keys))
        flags = ("forget", self.birds, "--keys", self.made / "keys.txt", "--allow_missing")
        may_delete = {*self.holders(keys), *self.half_deleted()} if purge else set()
        ended = self.run((*flags, *(("--purge",) if purge else ())), may_delete)
        if ended and purge and ended.code == 0:
            assert not self.holders(keys)
            assert not self.half_deleted()

    def run(self, arguments: tuple[object, ...], may_delete: set[str]) -> Ended | None:
        """Runs a command, which may be killed, and checks what it has left; None if killed."""
        keep = [v for v in self.versions(readable=False) if v not in may_delete]
        with self.all_readable():
            before = {version: snapshot(self.birds / version) for version in keep}
        steps = self.draw.randrange(12) if self.draw.random() < 0.3 else None
        with pytest.MonkeyPatch.context() as patch, unprivileged():
            if steps is not None:
                patch.setattr(os, "unlink", killing(steps))
            try:
                ended = recordmill(*arguments)
            except Killed:
                ended = None
        self.log.append(f"{' '.join(map(str, arguments))} -> {ended or 'killed'}")
        with self.all_readable():
            after = {version: snapshot(self.birds / version) for version in keep}
            assert after == before
            assert {path: snapshot(path) for path in self.foreign} == self.foreign
        if ended:
            assert ended.code in (0, 2, 3, 5), ended.err
            assert "Traceback" not in ended.err
            assert ended.code == 0 or ended.err
        return ended

    def all_readable(self) -> Readable:
        """Returns a context in which all versions can be read."""
        return Readable(self.modes)


@dataclass
class Readable:
    """Lifts permissions for a moment, for users other than root."""

    modes: dict[Path, int]
    denied: dict[Path, int] = field(default_factory=dict)

    def __enter__(self) -> None:
        self.denied = {path: path.stat().st_mode for path in self.modes}
        for path, mode in self.modes.items():
            path.chmod(mode)

    def __exit__(self, *error: object) -> None:
        for path, mode in self.denied.items():
            path.chmod(mode)


def killing(steps: int) -> Callable[..., None]:
    """Returns a function that deletes some files, and then ends the command."""
    unlink, left = os.unlink, iter(range(steps))

    def delete(path: str, **more: object) -> None:
        is_counted = "birds" in os.fspath(path) and ".lock" not in os.fspath(path)
        if is_counted and next(left, None) is None:
            raise Killed
        unlink(path, **more)  # type: ignore[arg-type]

    return delete


def keys_of(version: Path) -> set[str]:
    """Returns the keys in the indexes of a version."""
    tables = (pq.read_table(path, columns=["key"]) for path in version.glob("records/*.parquet"))
    return {key for table in tables for key in table["key"].to_pylist()}


def stage(version: Path, birds: Path) -> None:
    """Copies a version; its links to other versions become links to their copies."""
    copies = {
        original.stat().st_ino: copy
        for folder in birds.iterdir()
        if not folder.is_symlink() and (original_folder := version.parent / folder.name).is_dir()
        for original in original_folder.rglob("*")
        if original.is_file()
        and (copy := folder / original.relative_to(original_folder)).is_file()
        and copy.read_bytes() == original.read_bytes()  # not of another version of that number
    }

    def copy(source: str, target: str) -> None:
        if known := copies.get(os.stat(source).st_ino):
            os.link(known, target)
        else:
            shutil.copy2(source, target)

    shutil.copytree(version, birds / version.name, copy_function=copy)


ACTIONS = {
    World.publish: 5,
    World.gc: 5,
    World.forget: 1,
    World.append: 0.3,
    World.half_delete: 1,
    World.add_foreign: 1.5,
    World.add_link: 1,
    World.deny: 1.5,
    World.leave_lock: 0.5,
    World.clear: 2,
}


@pytest.fixture
def world(made: Path, tmp_path: Path, seed: int) -> Iterator[World]:
    (tmp_path / "birds").mkdir()
    world = World(tmp_path / "birds", made, random.Random(seed))
    yield world
    for path, mode in world.modes.items():
        path.chmod(mode)


@pytest.mark.parametrize("seed", range(SEQUENCES))
def test_no_sequence_of_commands_loses_a_version_or_touches_foreign_files(world: World) -> None:
    world.publish()
    world.publish()
    actions, weights = zip(*ACTIONS.items(), strict=True)
    for action in world.draw.choices(actions, weights, k=STEPS):
        world.log.append(action.__name__)
        action(world)
    world.clear()
    newest = world.versions()[-1:]
    ended = recordmill("gc", world.birds, "--keep", 1)
    assert ended.code == (0 if newest or ended.out else 2), ended.err
    assert [path.name for path in world.birds.iterdir() if path.name[0] != "."] == newest
    for version in newest:
        assert recordmill("verify", world.birds / version).code == 0
