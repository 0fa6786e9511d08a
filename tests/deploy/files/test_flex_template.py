"""The files of the Flex Template match the flags, the settings and the versions."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import pytest

from deploy.dataflow import metadata
from deploy.dataflow.main import command
from recordmill.pipelines.options import config_of
from recordmill.schemas.errors import UsageError

ROOT = Path(__file__).parents[3]
DOCKERFILE = (ROOT / "deploy" / "dataflow" / "Dockerfile").read_text(encoding="utf-8")
PARAMETERS = {p["name"]: p for p in json.loads(metadata.PATH.read_text("utf-8"))["parameters"]}
REQUIRED = {"input": ["gs://b/labels.csv"], "output": "gs://b/out", "name": "birds"}


def test_metadata_matches_the_flags() -> None:
    written = metadata.PATH.read_text(encoding="utf-8")
    assert written == metadata.to_json(metadata.document()), (
        f"a flag of `recordmill convert` changed; regenerate the file: {metadata.COMMAND}"
    )


def test_the_check_names_the_command_that_regenerates_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metadata, "PATH", tmp_path / "metadata.json")
    metadata.PATH.write_text("{}\n")
    assert metadata.main(["--check"]) == 1
    assert "python -m deploy.dataflow.metadata" in capsys.readouterr().err
    assert metadata.main([]) == 0
    assert metadata.main(["--check"]) == 0


def test_every_parameter_has_what_dataflow_requires() -> None:
    for name, parameter in PARAMETERS.items():
        assert re.fullmatch(r"[a-z_]+", name)
        assert parameter["label"], name
        assert parameter["helpText"], name
        for pattern in parameter.get("regexes", ()):
            re.compile(pattern)
    assert {n for n, p in PARAMETERS.items() if not p["isOptional"]} == {"input", "output", "name"}


@pytest.mark.parametrize(
    ("name", "value"),
    [("name", "1birds"), ("name", "a-b"), ("version", "1.0"), ("version", "v1.0.0"), ("seed", "x")],
)
def test_values_that_a_pattern_rejects_are_rejected_by_the_settings(name: str, value: str) -> None:
    assert not any(re.search(p, value) for p in PARAMETERS[name]["regexes"])
    with pytest.raises(UsageError):
        config_of({**REQUIRED, name: value})


@pytest.mark.parametrize(
    ("name", "value"), [("name", "Birds_2"), ("version", "2026.11.20"), ("seed", "-7")]
)
def test_values_that_a_pattern_accepts_are_accepted_by_the_settings(name: str, value: str) -> None:
    assert all(re.search(p, value) for p in PARAMETERS[name]["regexes"])
    assert str(getattr(config_of({**REQUIRED, name: value}), name)) == value


def test_only_paths_that_workers_can_read_are_accepted() -> None:
    (pattern,) = PARAMETERS["input"]["regexes"]
    assert re.search(pattern, "gs://bucket/labels-*.csv")
    assert re.search(pattern, "s3://bucket/labels.parquet")
    assert not re.search(pattern, "labels.csv")
    assert not re.search(pattern, "/data/labels.csv")


def flag(*names: str, **options: Any) -> argparse.Action:
    return argparse.ArgumentParser(add_help=False).add_argument(*names, **options)


def test_switches_become_booleans_and_choices_become_enums() -> None:
    switch = flag("--dry", action="store_true", help="do nothing")
    choice = flag("--decode", choices=("full", "header"), help="5%% faster", required=True)
    assert metadata.parameter_of("dry", switch)["paramType"] == "BOOLEAN"
    assert metadata.parameter_of("decode", choice) == {
        "name": "decode",
        "label": "Decode",
        "helpText": "5% faster",
        "isOptional": False,
        "paramType": "ENUM",
        "enumOptions": [
            {"value": "full", "label": "full"},
            {"value": "header", "label": "header"},
        ],
    }


def test_a_switch_and_its_opposite_are_one_parameter() -> None:
    switches = {
        name: flag(f"--{name}", action="store_true") for name in ("report", "no_report", "index")
    }
    names = [parameter["name"] for parameter in metadata.parameters_of(switches)]
    assert names == ["report", "index"]
    listed = json.loads(metadata.PATH.read_text("utf-8"))["parameters"]
    assert len(PARAMETERS) == len(listed)


def test_the_entry_point_accepts_the_arguments_of_the_launcher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    switches = {
        name: flag(f"--{name}", action="store_true") for name in ("quick", "report", "no_report")
    }
    monkeypatch.setattr("deploy.dataflow.main.flags", lambda: switches)
    launched = ["--input=gs://b/t.csv", "--quick=true", "--runner=DataflowRunner"]
    assert command(launched, {}) == [
        *("convert", "--input=gs://b/t.csv", "--quick", "--runner=DataflowRunner")
    ]
    assert command(["--quick=false"], {"RECORDMILL_IMAGE": "image:1"}) == [
        *("convert", "--sdk_container_image=image:1")
    ]
    assert command(["--sdk_container_image=other"], {"RECORDMILL_IMAGE": "image:1"}) == [
        *("convert", "--sdk_container_image=other")
    ]
    assert command(["--report=false"], {}) == ["convert", "--no_report"]
    with pytest.raises(ValueError, match="--quick=perhaps: expected true or false"):
        command(["--quick=perhaps"], {})


def test_the_container_has_the_versions_that_are_tested() -> None:
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    beam = re.search(r"^apache-beam==(\S+)$", constraints, re.MULTILINE)[1]
    assert f"ARG BEAM_VERSION={beam}\n" in DOCKERFILE
    sdk, launcher = (
        re.search(pattern, DOCKERFILE)[1]
        for pattern in (r"FROM apache/beam_python3\.(\d+)_sdk", r"/python3(\d+)-template-launcher")
    )
    assert sdk == launcher


def test_the_container_keeps_the_entry_point_of_workers() -> None:
    assert DOCKERFILE.rstrip().endswith('ENTRYPOINT ["/opt/apache/beam/boot"]')


def test_files_that_the_container_copies_and_starts_exist() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    paths = [path for line in copied for path in line.split() if not path.startswith("dist/")]
    assert {"constraints.txt", "deploy/__init__.py", "deploy/dataflow"} <= set(paths)
    assert [path for path in paths if not (ROOT / path).exists()] == []
    entry = re.search(r"FLEX_TEMPLATE_PYTHON_PY_FILE=/template/(\S+)", DOCKERFILE)[1]
    assert (ROOT / entry).is_file()
