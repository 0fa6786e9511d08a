"""The manifests match the schemas of Kubernetes and the Flink operator."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.runs.environments import CACHE, ROOT, run

CHECKER = Path(__file__).with_name("manifests")
Manifest = dict[str, Any]


@pytest.fixture(scope="module")
def checker() -> Path:
    """A cached folder with the packages of the schemas, and the checking program."""
    packages = (CHECKER / "package.json").read_bytes()
    folder = CACHE / "npm" / hashlib.sha256(packages).hexdigest()[:12]
    if not (folder / "node_modules" / ".package-lock.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "package.json").write_bytes(packages)
        run("npm", "install", "--no-audit", "--no-fund", cwd=folder)
    shutil.copy(CHECKER / "check.js", folder)
    return folder


def faults(checker: Path, manifest: Manifest) -> str:
    ended = subprocess.run(
        ["node", "check.js"],
        input=json.dumps(manifest),
        capture_output=True,
        text=True,
        check=True,
        cwd=checker,
        timeout=120,
    )
    return ended.stdout


def manifest(name: str) -> Manifest:
    return yaml.safe_load((ROOT / "deploy" / "kubernetes" / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["flink.yaml", "convert.yaml"])
def test_the_manifest_matches_its_schema(checker: Path, name: str) -> None:
    assert faults(checker, manifest(name)) == ""


def test_the_check_finds_unknown_names_and_values(checker: Path) -> None:
    wrong = copy.deepcopy(manifest("flink.yaml"))
    wrong["spec"]["flinkVersion"] = "v9_9"
    (workers,) = wrong["spec"]["taskManager"]["podTemplate"]["spec"]["containers"]
    workers["ports"][0]["containerPrt"] = 1
    found = faults(checker, wrong)
    assert "/spec/flinkVersion must be equal to one of the allowed values" in found
    assert "'\"containerPrt\"' does not exist in type" in found
