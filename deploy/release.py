"""Builds the distributions of a release from a commit, with checksums and a statement of origin.

    python -m deploy.release dist            builds HEAD; uncommitted changes are an error

    dist/recordmill-1.0.0-py3-none-any.whl           and .tar.gz
    dist/recordmill_reader-1.0.0-py3-none-any.whl    and .tar.gz
    dist/SHA256SUMS                                  for sha256sum --check
    dist/provenance.json                            in-toto statement with SLSA provenance, to sign

The wheels of a commit are the same to the byte wherever they are built: anyone can compare.
deploy/release.md is the checklist around it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PROJECTS = (".", "reader")


def main() -> None:
    """Builds the distributions of HEAD."""
    parser = argparse.ArgumentParser(description="builds the distributions of HEAD")
    parser.add_argument("folder", metavar="DIR", type=Path, help="new or empty")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        sys.exit(f"{folder}: is not empty; expected a new folder. Remove it, or name another one.")
    if changes := _git("status", "--porcelain").strip():
        sys.exit(f"{ROOT}: has uncommitted changes:\n{changes}\nCommit or stash them.")
    build("HEAD", folder.resolve())


def build(revision: str, folder: Path) -> None:
    """Builds the distributions of a commit, and describes them."""
    commit = _git("rev-parse", f"{revision}^{{commit}}").strip()
    time = _git("show", "--no-patch", "--format=%ct", commit).strip()
    with tempfile.TemporaryDirectory() as source:
        archive = Path(source, "source.tar")
        _git("archive", "--format=tar", f"--output={archive}", commit)
        with tarfile.open(archive) as files:
            files.extractall(source)  # noqa: S202 - git has just written it
        for project in PROJECTS:
            subprocess.run(  # noqa: S603
                [
                    *(sys.executable, "-m", "uv", "build", "--quiet", "--out-dir", str(folder)),
                    *("--build-constraints", str(Path(source, "constraints.txt"))),
                    str(Path(source, project)),
                ],
                env={**os.environ, "SOURCE_DATE_EPOCH": time},
                check=True,
            )
    built = sorted((*folder.glob("*.whl"), *folder.glob("*.tar.gz")))
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in built}
    lines = [f"{digest}  {name}\n" for name, digest in sums.items()]
    (folder / "SHA256SUMS").write_text("".join(lines))
    document = json.dumps(statement(sums, commit, time), indent=2)
    (folder / "provenance.json").write_text(document + "\n")


def statement(sums: dict[str, str], commit: str, time: str) -> dict[str, Any]:
    """Returns an in-toto statement: which commit, and which tools, the files were made from."""
    tools = {"python": platform.python_version(), "uv": metadata.version("uv")}
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": sums[name]}} for name in sums],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "python -m deploy.release",
                "externalParameters": {"commit": commit},
                "internalParameters": {"SOURCE_DATE_EPOCH": time},
                "resolvedDependencies": [
                    {"name": "source", "digest": {"gitCommit": commit}},
                    {
                        "name": "constraints.txt",
                        "digest": {"sha256": _sha256_of_constraints(commit)},
                    },
                ],
            },
            "runDetails": {
                "builder": {"id": "local", "version": tools},
            },
        },
    }


def _sha256_of_constraints(commit: str) -> str:
    return hashlib.sha256(_git("show", f"{commit}:constraints.txt").encode()).hexdigest()


def _git(*arguments: str) -> str:
    command = ("git", *arguments)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603
    return done.stdout


if __name__ == "__main__":
    main()
