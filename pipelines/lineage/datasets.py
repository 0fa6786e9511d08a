"""The names of input and output datasets, as other OpenLineage producers write them."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Sequence
from typing import NamedTuple

from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.manifest import Base
from recordmill.schemas.masking import bare_url
from recordmill.schemas.plan import TableSnapshot

_WILDCARDS = "*?["


class DatasetName(NamedTuple):
    """The identity of a dataset in OpenLineage."""

    namespace: str  # the store: `file`, or a scheme with its authority, such as `s3://bucket`
    name: str


class Input(NamedTuple):
    """A dataset that a run reads."""

    name: DatasetName
    version: str = ""  # its version, or "" if it has none


def _name_of(path: str) -> DatasetName:
    """Returns the name of a file or folder by OpenLineage's naming conventions.

    >>> name_of("s3://birds/labels/day.csv")
    DatasetName(namespace='s3://birds', name='labels/day.csv')
    >>> name_of("azfs://account/container/labels.csv")
    DatasetName(namespace='abfss://container@account.dfs.core.windows.net', name='labels.csv')
    >>> name_of("/data/../labels.csv")
    DatasetName(namespace='file', name='/labels.csv')
    """
    if not layout.is_url(path):
        return DatasetName("file", os.path.abspath(path))
    scheme, _, rest = bare_url(path).partition("://")
    if scheme == "hdfs":  # the first part is a folder: the host is an option, not in the path
        return DatasetName("hdfs", f"/{rest.strip('/')}")
    authority, _, below = rest.partition("/")
    if scheme == "azfs":
        container, _, below = below.partition("/")
        scheme, authority = "abfss", f"{container}@{authority}.dfs.core.windows.net"
    return DatasetName(f"{scheme}://{authority}", below.strip("/") or "/")


def tables_of(config: ConvertConfig, snapshots: Sequence[TableSnapshot] = ()) -> tuple[Input, ...]:
    """Returns the tables that a run reads, with those of labels, but without a base version.

    The files of a pattern are one dataset: the folder before the first wildcard.
    """
    known = {snapshot.input: snapshot for snapshot in snapshots}
    labels = () if config.labels is None else (config.labels,)
    # The only input of `forget` is its base version.
    paths = [path for path in (*config.inputs, *labels) if path != config.base]
    found = (
        _lakehouse_table(known[path])
        if path in known
        else Input(_name_of(_folder_of_pattern(path)))
        for path in paths
    )
    return tuple(dict.fromkeys(found))


def _lakehouse_table(snapshot: TableSnapshot) -> Input:
    """Returns a table with its snapshot: a Delta table by its path, an Iceberg one by its name."""
    kind, _, address = snapshot.pinned.rpartition("@")[0].partition(":")
    name = _name_of(address) if kind == "delta" else DatasetName(kind, address)
    return Input(name, str(snapshot.id))


def base_dataset(base: Base) -> Input:
    """Returns the dataset of a base version, with the name of all versions."""
    namespace, name = _name_of(base.directory)
    return Input(DatasetName(namespace, posixpath.dirname(name)), base.manifest.version)


def output_of(config: ConvertConfig) -> DatasetName:
    """Returns the name of the dataset that a run writes, which all of its versions have."""
    return _name_of(layout.join(config.output, config.name))


def _folder_of_pattern(path: str) -> str:
    wildcard = min((at for at in map(path.find, _WILDCARDS) if at >= 0), default=len(path))
    return path if wildcard == len(path) else path[: path.rfind("/", 0, wildcard) + 1] or "."
