"""Options of object stores and the web, each a flag of the command line.

    --s3_endpoint_url=http://minio:9000    StoreOptions(s3_endpoint_url="http://minio:9000")

A pipeline has them among Beam's options, which Beam sends to every worker. Commands without a
pipeline, and readers without Beam, use them as they are.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from recordmill.schemas.settings import is_integer


def _flag(default: Any, text: str, *aliases: str) -> Any:
    return field(default=default, metadata={"help": text, "aliases": aliases})


@dataclass(frozen=True)
class WebFlags:
    """The options that Beam does not have."""

    allow_private_hosts: bool = _flag(
        False, "also read from private, loopback and link-local addresses"
    )
    http_connections: int = _flag(16, "connections per host and worker process; default: 16")
    http_timeout: int = _flag(30, "seconds without data before a request is retried; default: 30")
    max_image_bytes: int = _flag(
        256 * 2**20,
        "size limit of an image in bytes, from any source; default: 268435456",
        "--http_max_bytes",  # the former name, from when it applied to the web only
    )


@dataclass(frozen=True)
class StoreOptions(WebFlags):
    """All options of stores, under the names that they have in Beam."""

    s3_access_key_id: str | None = _flag(None, "access key of S3")
    s3_secret_access_key: str | None = _flag(None, "secret key of S3")
    s3_session_token: str | None = _flag(None, "session token of S3")
    s3_endpoint_url: str | None = _flag(None, "URL of a server with the API of S3")
    s3_region_name: str | None = _flag(None, "region of S3")
    s3_api_version: str | None = _flag(None, "version of the API of S3")
    s3_verify: str | None = _flag(None, "file of certificates to trust, besides the system's")
    s3_disable_ssl: bool = _flag(False, "access S3 by http://")
    azure_connection_string: str | None = _flag(None, "connection string of a storage account")
    blob_service_endpoint: str | None = _flag(None, "URL of a storage account")
    azure_managed_identity_client_id: str | None = _flag(None, "client id of a managed identity")
    no_auth: bool = _flag(False, "access Google Cloud Storage without credentials")
    impersonate_service_account: str | None = _flag(
        None, "service account of Google Cloud to act as; before it, those to delegate through"
    )
    hdfs_host: str | None = _flag(None, "host of the name node of HDFS")
    hdfs_port: str | None = _flag(None, "port of the name node of HDFS")
    hdfs_user: str | None = _flag(None, "user of HDFS")
    hdfs_full_urls: bool = _flag(False, "addresses are hdfs://SERVER/PATH, not hdfs://PATH")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> StoreOptions:
        """Returns the options among others."""
        return cls(**{f.name: values[f.name] for f in fields(cls) if f.name in values})


def add_store_flags(parser: Any, kind: type[WebFlags] = StoreOptions) -> None:
    """Adds the options as flags to a parser, or to a group of one."""
    for each in fields(kind):
        if each.default is False:
            how: dict[str, Any] = {"action": "store_true"}
        else:
            how = {"type": str if each.default is None else positive}
        names = (f"--{each.name}", *each.metadata["aliases"])
        parser.add_argument(*names, default=each.default, help=each.metadata["help"], **how)


def positive(text: str) -> int:
    """Returns the number above 0 that a text is, for argparse."""
    if not is_integer(text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return int(text)


class _Process:
    """The options of this process."""

    lock = threading.Lock()
    given: StoreOptions | None = None
    received: tuple[object, StoreOptions] = (None, StoreOptions())  # Beam's, and ours among them


def use_options(options: StoreOptions | None) -> None:
    """Applies options to this process; None for those of Beam."""
    _Process.given = options


def current_options() -> StoreOptions:
    """Returns the options of this process: those given to it, or sent to it by Beam's runner.

    Workers without options, as in a bare worker pool, use defaults and their environment.
    """
    if _Process.given is not None:
        return _Process.given
    beam = pipeline_options()
    if _Process.received[0] is not beam:
        with _Process.lock:  # all threads get the same ones, by which clients are kept
            if _Process.received[0] is not beam:
                options = StoreOptions() if beam is None else _options_in(beam)
                _Process.received = beam, options
    return _Process.received[1]


def pipeline_options() -> Any:
    """Returns Beam's options of this process, a driver or a worker; None if it is neither."""
    if "apache_beam.io.filesystems" not in sys.modules:
        return None
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.options.value_provider import RuntimeValueProvider

    options = FileSystems._pipeline_options or RuntimeValueProvider.runtime_options
    return options if isinstance(options, PipelineOptions) else None


def _options_in(beam: Any) -> StoreOptions:
    """Returns the store options among Beam's, which are flags, or values set in Python."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add_store_flags(parser)
    flags, _ = parser.parse_known_args(beam._flags)
    return StoreOptions.of({**vars(flags), **beam._all_options})
