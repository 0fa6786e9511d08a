"""Rows of every library that holds them in memory become the records of the equal Parquet file."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests.deploy.runs.environments import ROOT, packages, run

PACKAGES = (
    *("polars==2.1.0", "polars-runtime-32==2.1.0"),
    *("datasets==5.2.0", "dill==0.4.1", "multiprocess==0.70.19", "xxhash==4.1.0"),
)


def test_all_have_one_digest(tmp_path: Path) -> None:
    path = os.pathsep.join((str(packages("rows", PACKAGES)), str(ROOT)))
    variables = {**os.environ, "PYTHONPATH": path, "HF_HOME": str(tmp_path / "home")}
    script = Path(__file__).with_name("rows_in_memory.py")
    digests = json.loads(run(sys.executable, script, tmp_path, env=variables).splitlines()[-1])
    digest, records = digests["Parquet"]
    assert records == 600
    assert digests == {name: [digest, records] for name in digests}
    assert len(digests) == 8
