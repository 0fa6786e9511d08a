"""A format of shards is added in the one file that docs/contributing.md names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from recordmill.schemas.shard_format import SHARD_FORMATS
from tests.recipes.copied_package import commands_of, copy_package

ROOT = Path(__file__).parents[2]
FILE = "schemas/shard_format.py"

XZ = """        ShardFormat(
            "xz",
            beam="lzma",
            suffix=".xz",
            media_types=("application/x-xz",),
            damage=(EOFError, lzma.LZMAError),
            signature=b"\\xfd7zXZ",
            unpack=lambda stream: cast("BinaryIO", lzma.LZMAFile(stream)),
        ),
"""


def _with_xz(folder: Path) -> Path:
    """Returns a copy of the package that has one more format."""
    package = copy_package(folder)
    file = package / FILE
    text = file.read_text("utf-8")
    for old, new in (
        ("import gzip\n", "import gzip\nimport lzma\n"),
        ('Literal["none", ', 'Literal["none", "xz", '),
        ("    )\n}\n", f"{XZ}    )\n}}\n"),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    file.write_text(text, "utf-8")
    return folder


def test_the_page_names_the_file() -> None:
    page = (ROOT / "docs" / "contributing.md").read_text("utf-8")
    section = page.partition("## Add a shard format")[2].partition("\n## ")[0]
    assert f"`{FILE}`" in section
    assert "xz" not in SHARD_FORMATS, "give the test a name that is free"


def test_a_format_needs_no_other_file(tmp_path: Path) -> None:
    copy = _with_xz(tmp_path / "copy")
    (tmp_path / "rows.csv").write_text("key,size\n" + "".join(f"{i},{i}\n" for i in range(90)))

    rows, output = tmp_path / "rows.csv", tmp_path / "out"
    files = ("--input", rows, "--output", output, "--name", "sizes", "--schema", "tabular")
    options = ("--key_column", "key", "--num_shards", "2", "--compression", "xz")
    dataset = output / "sizes" / "1.0.0"
    with commands_of(copy) as commands:
        commands.run("convert", *files, *options)
        shards = sorted(path.name for path in dataset.glob("*tfrecord*"))
        assert [name[-3:] for name in shards] == [".xz"] * 2
        commands.run("verify", dataset)
        assert "size" in commands.run("inspect", dataset, "--key", "42")
    code = f"import recordmill; print(len(list(recordmill.load({str(dataset)!r}))))"
    read = [sys.executable, "-c", code]
    assert subprocess.run(read, capture_output=True, cwd=copy, check=True).stdout.split() == [b"90"]
