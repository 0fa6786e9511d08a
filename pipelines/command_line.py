"""The command line: `recordmill convert | verify | inspect | diff | schema | completion`."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from glob import escape, glob
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

from recordmill.pipelines.console import terminal
from recordmill.pipelines.console.logs import only_events, use_log_flags
from recordmill.pipelines.parser import COMMANDS, Parser, command_parser, program
from recordmill.pipelines.run.startup import handle_signals, limit_allocator_caches
from recordmill.schemas.errors import RecordmillError, did_you_mean
from recordmill.schemas.layout import SUCCESS, check_utf8, is_url
from recordmill.transforms.storage.stores.options import StoreOptions, WebFlags, use_options
from recordmill.transforms.verification import verifier_process
from recordmill.transforms.workers.process import collect_garbage


def main(argv: Sequence[str] | None = None, owned: bool = False) -> int:
    """Runs a command, prints a message without a traceback if it fails, and returns the exit code.

    `owned`: whether the process serves only this command, so that it may be forked, and what it has
    loaded is never garbage.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    limit_allocator_caches()
    as_events = "--log_format=json" in arguments or ("--log_format", "json") in pairwise(arguments)
    with only_events() if as_events else nullcontext():
        terminal.use_events(as_events)  # the flags themselves may be wrong
        return _main(arguments, owned)


def _main(arguments: Sequence[str], owned: bool) -> int:
    try:
        for argument in arguments:
            check_utf8(argument)
        parser = program([word for word in arguments if word in COMMANDS][:1])
        if not arguments:
            parser.print_help()
            return 0
        flags, rest = parser.parse_known_args(arguments)
        own = command_parser(parser, flags.command)
        unknown = _misspelled(rest, own) if COMMANDS[flags.command].runs_pipeline else rest
        if unknown:
            raise own.unknown(unknown[0])
        flags.typed, flags.rest = arguments, rest  # convert and forget pass the rest to Beam
        use_log_flags(flags.verbose, flags.log_format == "json")
        with _verifier(flags):
            function = COMMANDS[flags.command].function or f"{flags.command}.run"
            module, _, name = function.partition(".")
            run = getattr(import_module(f"recordmill.pipelines.commands.{module}"), name)
            if owned:
                collect_garbage()
            with _writers(flags) if owned else nullcontext():
                return _run(run, flags)
    except (RecordmillError, OSError) as error:  # a store or disk may fail at any file
        if "--verbose" in arguments:
            terminal.print_error("".join(traceback.format_exception(error)).rstrip("\n"))
        known = error if isinstance(error, RecordmillError) else RecordmillError(str(error))
        terminal.warn(str(known))
        if "--json" in arguments:
            terminal.say_json(terminal.outcome(known))
        return known.exit_code


def _misspelled(rest: Sequence[str], parser: Parser) -> list[str]:
    # Beam's import takes seconds, its source not, which has no flag of the web. Others are found
    # after it.
    beam = find_spec("apache_beam") if rest else None
    folder = next(iter(beam.submodule_search_locations or ()), "") if beam else ""
    file = Path(folder, "options/pipeline_options.py")
    source = file.read_text("utf-8") if file.exists() else ""
    own = [f"--{option.name}" for option in fields(WebFlags)]
    names = [word.partition("=")[0] for word in rest if word.startswith("--")]
    unknown = (n for n in names if source and n not in own and f"'{n}'" not in source)
    return [name for name in unknown if did_you_mean(name, parser.flags())]


def _run(run: Callable[[argparse.Namespace], int], flags: argparse.Namespace) -> int:
    """Runs a command, and ends it when a signal arrives before its work is done."""
    if COMMANDS[flags.command].reads_stores:
        use_options(StoreOptions.of(vars(flags)))
    with handle_signals() as interrupt:
        flags.interrupt = interrupt
        try:
            code = run(flags)
            if lost := terminal.lost_output():
                if interrupt.code is None:
                    raise RecordmillError(lost)
                terminal.warn(f"warning: {lost}")
            interrupt.code = code
        except (KeyboardInterrupt, Exception):  # an engine may raise anything after a signal
            if (interrupted := interrupt.error()) is None:
                raise
            raise interrupted from None
    return code


def _verifier(flags: argparse.Namespace) -> AbstractContextManager[None]:
    """Starts the verifier process, if needed: it loads TensorFlow while this process loads Beam."""
    named = (getattr(flags, name, None) for name in ("output", "directory"))
    paths = [*filter(None, named), *getattr(flags, "paths", [])]
    is_verify = flags.command == "verify" and (flags.schema or any(map(_may_be_published, paths)))
    if (is_verify or _writes_here(flags)) and not any(map(is_url, paths)):
        return verifier_process.verifier_process_started()
    return nullcontext()


def _writers(flags: argparse.Namespace) -> AbstractContextManager[None]:
    """Forks the process that forks writer processes, if the command may need some."""
    if not _writes_here(flags):
        return nullcontext()
    from recordmill.transforms.shards.writer_processes import forked_ahead  # has been loaded

    return forked_ahead()


def _writes_here(flags: argparse.Namespace) -> bool:
    """Returns whether a command writes shards, in threads of this process."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("runner", "direct_running_mode", "environment_type"):
        parser.add_argument(f"--{name}", nargs="?")
    engine, _ = parser.parse_known_args(flags.rest)
    writes = COMMANDS[flags.command].runs_pipeline and "dry_run" not in flags
    return writes and verifier_process.workers_are_threads(**vars(engine))


def _may_be_published(path: str) -> bool:
    """Returns whether a local folder is that of a published dataset, or of its versions."""
    return any(glob(os.path.join(escape(path), *levels, SUCCESS)) for levels in ((), ("*",)))
