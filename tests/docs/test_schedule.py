"""The commands of docs/how-to/schedule.md run for several days, and its tables are complete."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.pipelines.options import beam_options, config_of
from recordmill.pipelines.parser import Parser, add_convert_options
from recordmill.pipelines.run.run_record import RunRecord
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import RecordmillError
from tests.end_to_end.command import published, recordmill
from tests.images import jpeg

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/schedule.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def taken(arguments: list[str]) -> ConvertConfig:
    """Returns the settings of a command, all of whose flags must be known."""
    assert arguments[0] == "convert"
    parser = Parser(allow_abbrev=False)
    add_convert_options(parser)
    parser.add_argument("--json", action="store_true")
    flags, rest = parser.parse_known_args(arguments[1:])
    beam_options(rest)
    values: dict[str, Any] = vars(flags)
    del values["json"]
    return config_of(values)


def as_shell_passes_them(words: str) -> list[str]:
    """Returns the arguments that a shell passes to the command."""
    shown = subprocess.run(
        ["sh", "-c", f"printf '%s\\0' {words}"], capture_output=True, text=True, check=True
    )
    return shown.stdout.rstrip("\0").split("\0")


def is_of_yesterday(config: ConvertConfig) -> bool:
    day = datetime.now() - timedelta(days=1)
    return (config.version, config.inputs) == (
        f"{day.year}.{day.month}.{day.day}",
        (f"/data/labels/{day:%Y-%m-%d}/*.parquet",),
    )


def test_the_crontab_converts_yesterday() -> None:
    (line,) = blocks("cron")
    minute, hour, day, month, weekday, command = line.split(None, 5)
    assert (minute, hour, day, month, weekday) == ("0", "2", "*", "*", "*")
    assert not re.search(r"(?<!\\)%", command)  # cron ends a line there
    words = command.replace(r"\%", "%").partition(" recordmill ")[2].partition(" >>")[0]
    assert is_of_yesterday(taken(as_shell_passes_them(words)))


def append_flags() -> str:
    """Returns the flags for datasets that grow each day, as they are in a crontab."""
    return re.search(r"^--base .*$", PAGE, re.MULTILINE)[0]


def test_the_flags_for_growing_datasets_append_to_the_version_of_the_day_before() -> None:
    flags = append_flags()
    command = f"{blocks('cron')[0].partition(' recordmill ')[2].partition(' >>')[0]} {flags}"
    assert not re.search(r"(?<!\\)%", flags)
    config = taken(as_shell_passes_them(command.replace(r"\%", "%")))
    assert is_of_yesterday(config)
    day = datetime.now() - timedelta(days=2)
    assert config.append
    assert config.base == f"/data/datasets/photos/{day.year}.{day.month}.{day.day}"


def test_the_systemd_unit_converts_yesterday_and_retries_only_unexpected_errors() -> None:
    service, timer = blocks("ini")
    joined = service.replace("\\\n", " ")
    command = re.search(r"^ExecStart=/bin/sh -c '(.*)'$", joined, re.MULTILINE)[1]
    assert not re.search(r"(?<!%)%(?!%)|(?<!\$)\$(?!\$)", command)  # systemd's own signs
    words = command.replace("%%", "%").replace("$$", "$").partition("recordmill convert ")[2]
    assert is_of_yesterday(taken(as_shell_passes_them(f"convert {words}")))
    codes = re.search(r"^RestartPreventExitStatus=(.*)$", service, re.MULTILINE)[1]
    assert [int(code) for code in codes.split()] == sorted(
        {kind.exit_code for kind in RecordmillError.__subclasses__()} - {1}
    )
    assert "OnCalendar=*-*-* 02:00:00" in timer


def cron_command(flags: str) -> list[str]:
    """Returns the command that cron runs, with more flags."""
    command = blocks("cron")[0].split(None, 5)[5].strip().replace(" >>", f" {flags} >>")
    return ["sh", "-c", command.replace(r"\%", "%")]


def systemd_command(flags: str) -> list[str]:
    """Returns the command that systemd runs, with more flags, as the page says to write them."""
    (line,) = re.findall(r"^ExecStart=(.*)'$", blocks("ini")[0].replace("\\\n", " "), re.MULTILINE)
    escaped = flags.replace(r"\%", "%%").replace("$", "$$")
    return shlex.split(f"{line} {escaped}'".replace("%%", "%").replace("$$", "$"))


# Lists its arguments: this process, which has imported Beam, runs them as a command.
PROGRAM = """#!/bin/sh
printf '%s\\0' "$@" > "$ARGUMENTS"
"""

# GNU date, on the day that the test sets.
DATE = """#!/bin/sh
test "$1" = -d && exec {date} -d "$TODAY $2" "$3"
exit 1
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder with the programs and folders of a machine, and the tables of three days."""
    for name in ("bin", "labels", "run", "log"):
        (tmp_path / name).mkdir()
    for name, text in (("recordmill", PROGRAM), ("date", DATE)):
        program = tmp_path / "bin" / name
        program.write_text(text.format(date=shutil.which("date")))
        program.chmod(0o755)
    for day in range(3):
        names = [f"{day}-{i}.jpg" for i in range(4)]
        for folder in (tmp_path / "labels" / f"2026-11-{20 + day}", tmp_path / "labels" / "all"):
            folder.mkdir(exist_ok=True)
            for i, name in enumerate(names):
                (folder / name).write_bytes(jpeg(seed=4 * day + i))
            table = pa.table({"image": names, "label": ["a", "b"] * 2})
            pq.write_table(table, folder / f"{day}.parquet")
    return tmp_path


@pytest.mark.parametrize("command", [cron_command, systemd_command])
def test_the_commands_append_day_after_day(
    command: Callable[[str], list[str]], machine: Path
) -> None:
    places = {
        "/data/labels/": f"{machine}/labels/",
        "/data/datasets": f"{machine}/datasets",
        "/run/lock/": f"{machine}/run/",
        "/var/log/": f"{machine}/log/",
        "/opt/recordmill/bin/": f"{machine}/bin/",
    }
    for day in range(3):
        words = command(append_flags() if day else "")
        for place, other in places.items():
            words = [word.replace(place, other) for word in words]
        environment = {
            **os.environ,
            "PATH": f"{machine}/bin:{os.environ['PATH']}",
            "ARGUMENTS": f"{machine}/arguments",
            "TODAY": f"2026-11-{21 + day}",
        }
        for _ in range(2 - day // 2):  # a day that is published is left alone
            subprocess.run(words, check=True, env=environment, timeout=300)
            arguments = (machine / "arguments").read_text().rstrip("\0").split("\0")
            (machine / "arguments").unlink()
            ended = recordmill(*arguments, "--no_report")
            assert ended.code == 0, ended.err
    versions = machine / "datasets" / "photos"
    assert {path.name for path in versions.iterdir()} == {f"2026.11.{20 + day}" for day in range(3)}
    whole = published(machine / "labels" / "all" / "*.parquet", machine / "whole", name="photos")
    assert shards(versions / "2026.11.22") == shards(whole)


def shards(dataset: Path) -> dict[str, bytes]:
    """Returns the shards of a dataset: name to content."""
    return {path.name: path.read_bytes() for path in dataset.glob("*.tfrecord-*")}


def test_the_run_record_on_the_page_has_the_fields_of_run_json() -> None:
    (shown,) = blocks("json")
    record = json.loads(re.sub(r",\s*…", "", shown))
    assert record.keys() <= RunRecord.model_fields.keys()
    assert record["records"] + record["rejected"] == record["rows"]


def test_every_exit_code_is_reported() -> None:
    codes = [int(code) for code in re.findall(r"^\| (\d) \|", PAGE, re.MULTILINE)]
    assert codes == [
        0,
        1,
        *sorted({kind.exit_code for kind in RecordmillError.__subclasses__()} - {1}),
    ]
