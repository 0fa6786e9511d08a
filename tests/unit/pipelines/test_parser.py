"""recordmill/pipelines/parser.py: the flags of `convert` are the declared options."""

from __future__ import annotations

import argparse
import re

import pytest

from recordmill.pipelines.parser import (
    COMMANDS,
    Parser,
    _add_convert_flags,
    add_convert_options,
    command_parser,
    program,
)
from recordmill.schemas.config import ConvertConfig, SchemaOverrides
from recordmill.schemas.option import options_of

DECLARED = {declared.name: declared for declared in options_of(ConvertConfig, SchemaOverrides)}
REQUIRED = ["--input", "a.csv", "--output", "out", "--name", "birds"]


def actions() -> dict[str, argparse.Action]:
    parser = Parser(add_help=False)
    add_convert_options(parser)
    flags = {a.option_strings[0].removeprefix("--"): a for a in parser._actions}
    del flags["no_report"]
    return flags


def parsed(*arguments: str) -> dict[str, object]:
    parser = Parser(allow_abbrev=False)
    _add_convert_flags(parser)
    return vars(parser.parse_args([*REQUIRED, *arguments]))


def test_every_field_has_a_flag_with_help_and_every_flag_is_a_field() -> None:
    fields = {*ConvertConfig.model_fields, *SchemaOverrides.model_fields}
    named = {"inputs": "input", "dataset_schema": "schema"}
    assert {named.get(name, name) for name in fields} == actions().keys() == DECLARED.keys()
    for name, action in actions().items():
        help_text = action.help.partition("; one of ")[0]  # lists the choices behind a metavar
        assert help_text == DECLARED[name].help.replace("%", "%%") + (
            " (default)" if name == "report" else ""
        )
        assert action.choices == DECLARED[name].choices
        assert action.required is DECLARED[name].field.is_required()
        assert bool(action.metavar or action.choices or action.nargs == 0), name


def test_an_option_that_is_not_given_has_no_attribute() -> None:
    assert parsed() == {"input": ["a.csv"], "output": "out", "name": "birds"}


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        (["--input", "b.csv"], {"input": ["a.csv", "b.csv"]}),
        (["--report"], {"report": True}),
        (["--no_report"], {"report": False}),
        (["--index", "--allow_outside_root"], {"index": True, "allow_outside_root": True}),
        (["--splits", "train=1"], {"splits": "train=1"}),
        (["--dry_run"], {"dry_run": True}),
        (["--columns", "a=b", "--columns", "c=d"], {"columns": "a=b,c=d"}),
        (["--image", "max_side=8", "--image=format=png"], {"image": "max_side=8,format=png"}),
    ],
)
def test_parsed_flags_have_the_names_of_options(
    arguments: list[str], given: dict[str, object]
) -> None:
    assert parsed(*arguments).items() >= given.items()


@pytest.mark.parametrize("command", [name for name, it in COMMANDS.items() if it.reads_stores])
def test_the_help_names_the_flags_of_stores_in_a_line_and_completion_has_them_all(
    command: str,
) -> None:
    parser = command_parser(program([command]), command)
    text = parser.format_help()
    assert "--s3_access_key_id" not in text
    assert "--s3_endpoint_url=…" in text
    hidden = {a.option_strings[0]: a.help for a in parser._actions if a.option_strings}
    assert hidden["--s3_access_key_id"] != argparse.SUPPRESS


def test_the_short_help_of_convert_has_the_common_flags_and_examples() -> None:
    parser = command_parser(program(["convert"]), "convert")
    short, complete = parser.format_help(), parser.format_help(complete=True)
    flags = [
        set(re.findall(r"^  (?:-h .*)?(--[a-z_]+)", text, re.MULTILINE))
        for text in (short, complete)
    ]
    assert {flag[2:] for flag in flags[0]} == COMMANDS["convert"].common
    assert len(flags[0]) <= 25
    assert flags[1] == {flag for flag in parser.flags() if flag.startswith("--")}
    assert short.count("  recordmill convert --input") == 3
    assert "recordmill convert --help=all" in short


@pytest.mark.parametrize(("words", "shown"), [(["-h"], False), (["--help=all"], True)])
def test_help_prints_the_flags_and_exits(
    words: list[str], shown: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        program(["convert"]).parse_args(["convert", *words])
    assert ended.value.code == 0
    assert ("--delimiter CHARACTER" in capsys.readouterr().out) is shown
