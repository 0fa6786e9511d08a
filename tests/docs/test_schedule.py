"""The commands of docs/how-to/schedule.md are valid, and its tables complete."""

from __future__ import annotations

import json
import re
import subprocess
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from recordmill.pipelines.options import beam_options, config_of
from recordmill.pipelines.parser import Parser, add_convert_options
from recordmill.pipelines.run.run_record import RunRecord
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import RecordmillError

PAGE = (Path(__file__).parents[2] / "docs/how-to/schedule.md").read_text(encoding="utf-8")


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


def test_the_flags_for_growing_datasets_append_to_the_version_of_the_day_before() -> None:
    flags = re.search(r"^--base .*$", PAGE, re.MULTILINE)[0]
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
