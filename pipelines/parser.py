"""The parser of the command line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Collection, Sequence
from importlib import metadata
from typing import Any, NamedTuple, NoReturn, cast, get_args

from recordmill.schemas.config import GROUPS, ConvertConfig, InputFormat, SchemaOverrides
from recordmill.schemas.errors import UsageError, did_you_mean
from recordmill.schemas.option import DeclaredOption, options_of

# Shells for which `recordmill completion` prints a script.
SHELLS = ("bash", "zsh", "fish")

# Number of records that `inspect` shows by default: in tables, and on a contact sheet.
RECORDS, TILES = 5, 24

_INVALID_CHOICE = re.compile(r".*invalid choice: '([^']*)' \(choose from (.*)\)$")
_QUOTED = re.compile(r"[\w.+-]+")


class Parser(argparse.ArgumentParser):
    """A parser that raises `UsageError`, where argparse prints a message and exits."""

    def error(self, message: str) -> NoReturn:
        """Raises a usage error."""
        wrong = _INVALID_CHOICE.match(message)
        guess = did_you_mean(wrong[1], _QUOTED.findall(wrong[2])) if wrong else ""
        raise UsageError(f"{message}{guess}; see {self.prog} --help")

    def unknown(self, argument: str, flags: Sequence[str] = ()) -> UsageError:
        """Returns the error for an unknown argument.

        Args:
            argument: the argument.
            flags: known flags, one of which may be suggested; by default, those of the parser.
        """
        flag = argument.partition("=")[0]
        if not flag.startswith("-"):
            return UsageError(
                f"{argument}: is not the value of a flag. Quote values that contain blanks or "
                f"patterns, and repeat --input for each table; see {self.prog} --help"
            )
        guess = did_you_mean(flag.replace("-", "_").replace("__", "--", 1), flags or self.flags())
        return UsageError(f"unknown flag {flag}{guess}; see {self.prog} --help")

    def flags(self) -> list[str]:
        """Returns all flags of this parser."""
        return [flag for action in self._actions for flag in action.option_strings]


def add_convert_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `recordmill convert`."""
    parser.epilog = _OTHER_FLAGS
    add_convert_options(parser)
    parser.add_argument(
        "--dry_run",
        action="store_true",
        default=argparse.SUPPRESS,
        help="preview the conversion without writing anything",
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON at the end")


def add_convert_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a conversion. Options that are not given have no attribute."""
    groups = {name: parser.add_argument_group(name) for name in GROUPS}
    for declared in options_of(ConvertConfig, SchemaOverrides):
        _add_option(groups[declared.option.group], declared)


def _add_option(group: argparse._ActionsContainer, declared: DeclaredOption) -> None:
    flag, text = f"--{declared.name}", declared.help.replace("%", "%%")
    absent: dict[str, Any] = {"default": argparse.SUPPRESS}
    if declared.is_switch and declared.field.default:
        group.add_argument(flag, action="store_true", help=f"{text} (default)", **absent)
        group.add_argument(
            f"--no_{declared.name}",
            dest=declared.name,
            action="store_false",
            help=f"the opposite of {flag}",
            **absent,
        )
    elif declared.is_switch:
        group.add_argument(flag, action="store_true", help=text, **absent)
    else:
        group.add_argument(
            flag,
            metavar=declared.option.metavar or None,
            choices=declared.choices,
            required=declared.field.is_required(),
            action="append" if declared.is_repeated else "store",
            help=text,
            **absent,
        )


_OTHER_FLAGS = (
    "Web addresses: --allow_private_hosts --http_connections=16 --http_timeout=30 "
    "--max_image_bytes=268435456. "
    "All other flags are Beam's own: --runner=FlinkRunner --s3_endpoint_url=…"
)


def add_verify_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `recordmill verify`."""
    parser.add_argument("paths", nargs="+", metavar="DIR|FILE", help="dataset or TFRecord files")
    parser.add_argument("--decode", action="store_true", help="also decode every image")
    parser.add_argument(
        "--schema", metavar="PRESET|FILE", help="schema of files that are not in a dataset"
    )


def add_diff_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `recordmill diff`."""
    parser.add_argument("left", metavar="DIR", help="published dataset")
    parser.add_argument("right", metavar="DIR", help="dataset to compare it with")
    parser.add_argument(
        "-n",
        type=int,
        default=5,
        metavar="N",
        help="number of examples per kind of difference; default: 5",
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON")


def add_inspect_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `recordmill inspect`."""
    parser.add_argument("paths", nargs="+", metavar="DIR|FILE", help="dataset or TFRecord files")
    parser.add_argument(
        "-n",
        type=int,
        metavar="N",
        help=f"records to show; default: {RECORDS}, or {TILES} on a contact sheet",
    )
    parser.add_argument(
        "--record", type=int, metavar="N", help="show one record in full, by number from 0"
    )
    parser.add_argument("--key", metavar="K", help="show one record in full, by key")
    parser.add_argument("--sheet", metavar="FILE.png", help="draw a contact sheet")
    parser.add_argument("--schema", metavar="PRESET|FILE", help="report differences from a schema")


def add_schema_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `recordmill schema`."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("schema", nargs="?", metavar="NAME|FILE")
    which.add_argument("--infer", metavar="TABLE", help="print a schema for a table, as YAML")
    parser.add_argument("--image_root", metavar="DIR", help="for --infer: base of relative paths")
    parser.add_argument(
        "--input_format", default="auto", choices=get_args(InputFormat), help="for --infer"
    )


def add_completion_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `recordmill completion`."""
    parser.add_argument("shell", choices=SHELLS)


def add_log_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that every command has."""
    parser.add_argument("--verbose", action="store_true", help="log progress and tracebacks")
    text = "format of log lines; default: text"
    parser.add_argument("--log_format", choices=("text", "json"), default="text", help=text)


class Command(NamedTuple):
    """A command.

    Attributes:
        text: its description in the help.
        add_flags: adds its own flags to a parser.
        reads_stores: whether it has the flags of object stores.
    """

    text: str
    add_flags: Callable[[argparse.ArgumentParser], None]
    reads_stores: bool = True


# The commands by name; `recordmill.pipelines.commands` has a module of the same name for each.
COMMANDS = {
    "convert": Command(
        "convert tables and images to a verified dataset", add_convert_flags, reads_stores=False
    ),
    "verify": Command("verify a published dataset, or TFRecord files", add_verify_flags),
    "diff": Command("compare two datasets by key", add_diff_flags),
    "inspect": Command("show records", add_inspect_flags),
    "schema": Command("print a schema, or infer one from a table", add_schema_flags),
    "completion": Command(
        "print a script that completes commands and flags",
        add_completion_flags,
        reads_stores=False,
    ),
}


def program(with_flags: Collection[str] = tuple(COMMANDS)) -> Parser:
    """Returns the parser of the whole program.

    Args:
        with_flags: the commands that get their flags; adding the flags of stores loads Beam.
    """
    parser = Parser(
        prog="recordmill",
        description="Converts label tables and images to verified TFRecord datasets.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=metadata.version("recordmill"))
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        made = commands.add_parser(name, help=command.text, allow_abbrev=False)
        if name in with_flags:
            _add_flags(made, command)
    return parser


def command_parser(parser: argparse.ArgumentParser, command: str) -> Parser:
    """Returns the parser of a command.

    Args:
        parser: the parser of the whole program.
        command: the name of the command.
    """
    choices = [action.choices for action in parser._actions if action.dest == "command"]
    return cast("dict[str, Parser]", choices[0])[command]


def _add_flags(parser: argparse.ArgumentParser, command: Command) -> None:
    command.add_flags(parser)
    if command.reads_stores:
        from recordmill.transforms.storage.stores.options import add_store_flags  # loads Beam

        add_store_flags(parser)
    add_log_flags(parser)
