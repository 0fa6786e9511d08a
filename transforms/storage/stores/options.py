"""Options of object stores and the web: those of Beam, and `WebOptions`.

`WebOptions` are Beam options as well, because Beam sends its options to every worker.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import (
    AzureOptions,
    HadoopFileSystemOptions,
    PipelineOptions,
    S3Options,
)
from apache_beam.options.value_provider import RuntimeValueProvider

from recordmill.schemas.settings import is_integer


class WebOptions(PipelineOptions):
    """Limits for reading images, and tables at `http://` and `https://`."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--allow_private_hosts",
            action="store_true",
            default=False,
            help="also read from private, loopback and link-local addresses",
        )
        parser.add_argument(
            "--http_connections",
            type=_positive,
            default=16,
            help="connections per host and worker process; default: 16",
        )
        parser.add_argument(
            "--http_timeout",
            type=_positive,
            default=30,
            help="seconds without data before a request is retried; default: 30",
        )
        parser.add_argument(
            "--max_image_bytes",
            "--http_max_bytes",  # the former name, from when it applied to the web only
            type=_positive,
            default=256 * 2**20,
            help="size limit of an image in bytes, from any source; default: 268435456",
        )


# The options of Beam for commands that run no pipeline.
STORE_OPTIONS = (S3Options, AzureOptions, HadoopFileSystemOptions, WebOptions)


def _positive(text: str) -> int:
    if not is_integer(text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return int(text)


def add_store_flags(parser: Any) -> None:
    """Adds the flags of object stores and the web to a parser, or a group of one."""
    for options in STORE_OPTIONS:
        options._add_argparse_args(parser)


def use_store_flags(flags: Mapping[str, Any]) -> None:
    """Applies the flags of `add_store_flags` to this process."""
    parser = argparse.ArgumentParser(add_help=False)
    add_store_flags(parser)
    values = {name: flags[name] for name in vars(parser.parse_args([])) if flags.get(name)}
    use_options(PipelineOptions.from_dictionary(values))


def use_options(options: PipelineOptions) -> None:
    """Applies Beam options to this process."""
    FileSystems.set_options(options)


def current_options() -> PipelineOptions:
    """Returns the options of this process: the driver's, or the worker's from its runner.

    Workers without options, as in a bare worker pool, use defaults and their environment.
    """
    if FileSystems._pipeline_options is None and not RuntimeValueProvider.runtime_options:
        FileSystems.set_options(PipelineOptions([]))  # Beam's file systems raise without options
    options = FileSystems._pipeline_options or RuntimeValueProvider.runtime_options
    return options if isinstance(options, PipelineOptions) else PipelineOptions([])


class _ImageLimit:
    """Returns the maximum number of bytes of an image, from the options of this process.

    The result is cached per options object, because `view_as` parses all options in each call.
    """

    def __init__(self) -> None:
        self._known: tuple[PipelineOptions | None, int] = (None, 0)

    def __call__(self) -> int:
        options = current_options()
        known, limit = self._known  # one tuple, so that threads never see half of an update
        if known is not options:
            limit = options.view_as(WebOptions).max_image_bytes
            self._known = (options, limit)
        return limit


max_image_bytes = _ImageLimit()
