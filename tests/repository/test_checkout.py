"""Scripts, constraints, generated code, and text that no file may contain."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from recordmill.schemas import example_pb2

ROOT = Path(__file__).parents[2]
PACKAGES = ("schemas", "transforms", "pipelines", "benchmarks", "examples", "deploy")
MAX_FUNCTION_LINES = 50

# Written in two parts each, so that this file does not hold them.
REGISTRIES = (
    "pypi" + ".org",
    "python" + "hosted.org",
    "registry.npm" + "js.org",
    "crates" + ".io",
    "repo.maven" + ".apache.org",
    "repo1.maven" + ".org",
    "proxy.golang" + ".org",
    "deb.debian" + ".org",
)
MACHINE_PATHS = ("/wo" + "rk/", "/ro" + "ot/.", "/opt/whe" + "els")
FORBIDDEN = re.compile(
    "|".join(
        [
            *map(re.escape, REGISTRIES),
            *(rf"(?<![\w.}}]){re.escape(path)}" for path in MACHINE_PATHS),
        ]
    )
)

CONSTRAINT = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*==[0-9][0-9a-z.+!]*( ; [^;#@/\\]+)?")


def repository_files():
    """Returns the tracked and the new files of the repository."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no git checkout")
    paths = [ROOT / name for name in listing.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


@pytest.mark.parametrize("script", ["run_local.sh", ".ci/run", "deploy/local/engine.sh"])
def test_script_is_valid_bash(script):
    checked = subprocess.run(["bash", "-n", script], cwd=ROOT, capture_output=True, text=True)

    assert checked.stderr == ""
    assert checked.returncode == 0


@pytest.mark.parametrize("script", ["run_local.sh", ".ci/run", "deploy/local/engine.sh"])
def test_script_may_be_executed(script):
    assert (ROOT / script).stat().st_mode & 0o111


def test_constraints_are_names_and_versions_only():
    lines = (ROOT / "constraints.txt").read_text().splitlines()

    assert lines
    assert [line for line in lines if not CONSTRAINT.fullmatch(line)] == []


def test_no_file_names_a_private_registry_or_a_local_path():
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in repository_files()
        for match in FORBIDDEN.finditer(path.read_bytes().decode("utf-8", "replace"))
    ]

    assert found == []


@pytest.mark.parametrize("package", PACKAGES)
def test_functions_are_short(package):
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {lines} lines"
        for path in sorted((ROOT / package).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := node.end_lineno - node.lineno + 1) > MAX_FUNCTION_LINES
    ]

    assert long == []


def test_generated_code_matches_the_proto_file():
    source = (ROOT / "schemas" / "example.proto").read_text()
    declared = {
        name: sorted(declared_fields(body))
        for name, body in re.findall(r"^message (\w+) \{(.*?)^\}", source, re.DOTALL | re.MULTILINE)
    }
    generated = {
        name: sorted(map(field_of, message.fields))
        for name, message in example_pb2.DESCRIPTOR.message_types_by_name.items()
    }

    assert re.search(r"^package (\w+);", source, re.MULTILINE)[1] == example_pb2.DESCRIPTOR.package
    assert generated == declared


def declared_fields(body):
    """Yields (name, number, type, repeated, oneof) of each field in a message of the .proto."""
    oneofs = {
        field: name
        for name, inner in re.findall(r"oneof (\w+) \{(.*?)\}", body, re.DOTALL)
        for field in re.findall(r"(\w+) = \d+", inner)
    }
    declaration = r"^\s*(repeated )?(\w+(?:<\w+, \w+>)?) (\w+) = (\d+)"
    for repeated, type_, name, number in re.findall(declaration, body, re.MULTILINE):
        many = bool(repeated) or type_.startswith("map<")
        yield name, int(number), type_, many, oneofs.get(name, "")


def field_of(field):
    """Returns the same tuple for a field in the generated code."""
    many = field.is_repeated
    oneof = field.containing_oneof.name if field.containing_oneof else ""
    return field.name, field.number, type_name(field), many, oneof


def type_name(field):
    """Returns the type of a field in the notation of the .proto."""
    message: Descriptor | None = field.message_type
    if message is None:
        names = {v: k for k, v in vars(FieldDescriptor).items() if k.startswith("TYPE_")}
        return names[field.type].removeprefix("TYPE_").lower()
    if message.GetOptions().map_entry:
        key, value = (type_name(message.fields_by_name[part]) for part in ("key", "value"))
        return f"map<{key}, {value}>"
    return message.name


def test_sample_is_the_same_every_time(tmp_path):
    for folder in ("one", "two"):
        command = [sys.executable, ROOT / "examples" / "draw_sample.py", tmp_path / folder]
        subprocess.run(command, check=True, capture_output=True)
    one, two = (
        {p.relative_to(tmp_path / f): p.read_bytes() for p in (tmp_path / f).rglob("*.*")}
        for f in ("one", "two")
    )

    assert len(one) > 60
    assert one == two
