"""`recordmill completion`: prints the script, for bash, zsh or fish, that shtab makes of the flags.

The scripts hold all that they offer. A script that asked the program would wait for Beam's imports,
seconds for each press of the key.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import shtab

from recordmill.pipelines.console.printing import say
from recordmill.pipelines.parser import program
from recordmill.schemas.yaml_files import preset_names

_PRESETS = " ".join(preset_names())
_SCHEMA = {
    "bash": "_recordmill_schemas",
    "zsh": "_recordmill_schemas",
    "fish": "(_recordmill_schemas)",
    "preamble": {
        "bash": f"_recordmill_schemas() {{ compgen -W '{_PRESETS}' -- $1; compgen -f -- $1; }}",
        "zsh": f"_recordmill_schemas() {{ compadd -- {_PRESETS}; _files; }}",
        "fish": "function _recordmill_schemas\n"
        f"  printf '%s\\n' {_PRESETS}\n"
        "  __fish_complete_path (commandline -ct)\nend",
    },
}
_BY_METAVAR = {
    "DIR": shtab.DIRECTORY,
    "DIR|FILE": shtab.FILE,
    "FILE": shtab.FILE,
    "FILE.png": shtab.FILE,
    "NAME|FILE": _SCHEMA,
    "PATTERN": shtab.FILE,
    "PRESET|FILE": _SCHEMA,
    "TABLE": shtab.FILE,
}
"""What a value may be, by the word that the help has for it."""


def run(flags: argparse.Namespace, rest: Sequence[str]) -> int:
    """Prints the script that completes commands and flags in a shell."""
    say(completion_script(program(), flags.shell))
    return 0


def completion_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Returns the script that completes a program's commands, flags, choices, files and presets.

    Args:
        parser: of the whole program; its flags are given what shtab asks them for.
        shell: one of `parser.SHELLS`.
    """
    for action in _actions(parser):
        if isinstance(action.metavar, str) and action.metavar in _BY_METAVAR:
            action.complete = _BY_METAVAR[action.metavar]  # type: ignore[attr-defined]
    return shtab.complete(parser, shell)


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yields the flags of a parser and of its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
