"""No secret in a URL, a flag or a table appears in the output of the program."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.end_to_end.command import Ended, recordmill
from tests.images import jpeg

SECRET = "Hu5hHush"  # noqa: S105 - no secret but this test
QUERIES = (
    f"X-Amz-Signature={SECRET}",
    f"token={SECRET}",
    f"sv=1&sig={SECRET}",
    f"plain={SECRET}&{SECRET}",
    SECRET,
)

SCHEMA = """
name: signed
features:
  id: {kind: bytes, from: key}
  image: {kind: bytes, from: "image:bytes"}
  mask: {kind: bytes, from: "mask:mask", classes: true}
"""


class _Quiet(SimpleHTTPRequestHandler):
    """Serves a folder and ignores queries."""

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL, with a password, of images and of tables with signed URLs."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "a b.jpg").write_bytes(jpeg(20, 10))
    (folder / "c.jpg").write_bytes(jpeg(10, 20))
    Image.new("L", (20, 10), 1).save(folder / "mask.png")
    (folder / "broken.jpg").write_bytes(jpeg(20, 10)[:-90])
    (folder / "classes.txt").write_text("background\ncat\n")
    (folder / "numbers.csv").write_text("n\n1\n2\n")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    root = f"http://me:{SECRET}@127.0.0.1:{server.server_port}"
    rows = []
    for name in ("a b.jpg", "c.jpg", "c.jpg", "broken.jpg", "gone.jpg"):
        for query in QUERIES:
            mask = f"{root}/{'gone' if query == SECRET else 'mask'}.png?{query}"
            row = {"id": str(len(rows)), "image": f"{root}/{name}?{query}", "mask": mask}
            rows.append(json.dumps(row))
    rows += [rows[0], '{"id": "7"']
    (folder / "rows.jsonl").write_text("\n".join(rows) + "\n")
    yield root
    server.shutdown()
    server.server_close()


def convert(root: str, output: Path, *flags: str) -> Ended:
    """Converts the signed table, with a secret in every flag that takes a URL or a credential."""
    command = ["--input", f"{root}/rows.jsonl?token={SECRET}", "--input_format=jsonl"]
    command += ["--output", str(output), "--name", "x"]
    command += ["--schema", str(output.parent / "schema.yaml")]
    command += ["--key_column", "id", f"--image_root={root}?{QUERIES[2]}", "--allow_outside_root"]
    command += ["--classes", f"{root}/classes.txt?{QUERIES[0]}", "--deduplicate", "content"]
    command += ["--allow_private_hosts", f"--s3_secret_access_key={SECRET}"]
    command += ["--s3_session_token", SECRET, "--azure_connection_string", f"AccountKey={SECRET}"]
    return recordmill("convert", *command, *flags)


def everything_in(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yields the bytes of all files, compressed ones also decompressed."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        data = path.read_bytes()
        yield path.name, data
        if path.suffix == ".parquet":
            yield path.name, repr(pq.read_table(path).to_pylist()).encode()
        if data[:2] == b"\x1f\x8b":
            yield path.name, gzip.decompress(data)


def leaks(folder: Path, ended: Ended) -> list[str]:
    """Returns the places that contain the secret."""
    places = [("stdout", ended.out.encode()), ("stderr", ended.err.encode())]
    return [name for name, data in (*places, *everything_in(folder)) if SECRET.encode() in data]


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (("--max_rejects=100%",), 0),
        (("--verbose",), 4),
        (("--max_rejects=100%", "--json", "--no_report", "--compression=gzip"), 0),
        (("--s3_secret_acess_key=" + SECRET,), 2),
        (("--columns", f"image=https://me:{SECRET}@h/x?token={SECRET}"), 2),
    ],
)
def test_no_secret_leaves_the_program(
    root: str, tmp_path: Path, flags: tuple[str, ...], code: int
) -> None:
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    output = tmp_path / "out"
    ended = convert(root, output, *flags)
    assert ended.code == code, ended.err
    assert leaks(tmp_path, ended) == []
    if flags == ("--max_rejects=100%",):
        (dataset,) = (output / "x").iterdir()
        reasons = json.loads((dataset / "manifest.json").read_bytes())["input"]["reasons"]
        assert {"missing_file", "duplicate_key", "malformed_row"} <= set(reasons)
        assert any((dataset / "dropped").iterdir())


def test_keys_of_a_signed_table_contain_no_signature(root: str, tmp_path: Path) -> None:
    address = f"{root}/numbers.csv?token="
    command = ["--input", address + SECRET, "--input", f"{address}{SECRET}/2"]
    command += ["--schema", "tabular", "--output", str(tmp_path), "--name", "x"]
    ended = recordmill("convert", *command, "--allow_private_hosts", "--input_format=csv")
    assert ended.code == 0, ended.err
    assert leaks(tmp_path, ended) == []
    tables = (tmp_path / "x/1.0.0/records").glob("*.parquet")
    keys = {key for path in tables for key in pq.read_table(path)["key"].to_pylist()}
    assert keys == {"numbers.csv:2", "numbers.csv:3", "numbers.csv;2:2", "numbers.csv;2:3"}
