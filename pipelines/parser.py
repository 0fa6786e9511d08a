"""The parser of the command line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Collection, Sequence
from importlib import metadata
from typing import NamedTuple, NoReturn, cast

from recordmill.pipelines import flags
from recordmill.schemas.errors import UsageError, did_you_mean

_INVALID_CHOICE = re.compile(r".*invalid choice: '([^']*)' \(choose from (.*)\)$")
_QUOTED = re.compile(r"[\w.+-]+")


class Parser(argparse.ArgumentParser):
    """Raises what argparse would print and exit with."""

    def error(self, message: str) -> NoReturn:
        """Raises bad usage."""
        wrong = _INVALID_CHOICE.match(message)
        guess = did_you_mean(wrong[1], _QUOTED.findall(wrong[2])) if wrong else ""
        raise UsageError(f"{message}{guess}; see {self.prog} --help")

    def unknown(self, argument: str, flags: Sequence[str] = ()) -> UsageError:
        """Returns what to say of an argument that is none of this parser's, nor of other flags."""
        flag = argument.partition("=")[0]
        if not flag.startswith("-"):
            return UsageError(
                f"{argument}: belongs to no flag; quote values with blanks and patterns, and "
                f"say each table by an --input of its own; see {self.prog} --help"
            )
        guess = did_you_mean(flag.replace("-", "_").replace("__", "--", 1), flags or self.flags())
        return UsageError(f"unknown flag {flag}{guess}; see {self.prog} --help")

    def flags(self) -> list[str]:
        """Returns all flags of this parser."""
        return [flag for action in self._actions for flag in action.option_strings]


class Command(NamedTuple):
    """A command.

    Attributes:
        text: what it does.
        add_flags: adds its own flags.
        reads_stores: whether it needs those that tell how stores are reached.
    """

    text: str
    add_flags: Callable[[argparse.ArgumentParser], None]
    reads_stores: bool = True


COMMANDS = {
    "convert": Command("make a dataset", flags.add_convert_flags, reads_stores=False),
    "verify": Command("prove a dataset again", flags.add_verify_flags),
    "diff": Command("compare two datasets by key", flags.add_diff_flags),
    "inspect": Command("show records", flags.add_inspect_flags),
    "schema": Command("print a schema, or guess one", flags.add_schema_flags),
    "completion": Command(
        "print a script that completes commands and flags",
        flags.add_completion_flags,
        reads_stores=False,
    ),
}
"""By name; each is carried out by the module of that name in `recordmill.pipelines.commands`."""


def program(filled: Collection[str] = tuple(COMMANDS)) -> Parser:
    """Returns the parser of the whole program.

    Args:
        filled: the commands whose flags are wanted; to add those of stores loads Beam.
    """
    parser = Parser(
        prog="recordmill",
        description="Label tables and images in, proven TFRecord datasets out.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=metadata.version("recordmill"))
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        made = commands.add_parser(name, help=command.text, allow_abbrev=False)
        if name in filled:
            _fill(made, command)
    return parser


def command_parser(parser: argparse.ArgumentParser, command: str) -> Parser:
    """Returns the parser of one command."""
    choices = [action.choices for action in parser._actions if action.dest == "command"]
    return cast("dict[str, Parser]", choices[0])[command]


def _fill(parser: argparse.ArgumentParser, command: Command) -> None:
    command.add_flags(parser)
    if command.reads_stores:
        from recordmill.transforms.storage.stores.options import add_store_flags  # loads Beam

        add_store_flags(parser)
    flags.add_log_flags(parser)
