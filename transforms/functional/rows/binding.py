"""The column mapping of a table."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.features import Schema
from recordmill.schemas.masking import bare_url
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.tables import TableFile
from recordmill.transforms.functional.addresses import check_address
from recordmill.transforms.functional.rows.feature_values import ValueReader, value_readers


@dataclass(frozen=True)
class Binding:
    """The column mapping of a table, and the columns of keys, splits and groups."""

    resolved: ResolvedSchema
    columns: Mapping[str, str]  # the table column of each schema column whose name differs
    # The base of relative image paths, or None for the folder of the table.
    image_root: str | None = None
    key_column: str | None = None  # the table column of the key, or None for the image path
    split_column: str | None = None
    # The table column of the group, or None; rows of a group are in the same split.
    group_column: str | None = None
    splits: frozenset[str] | None = None  # the allowed splits, or None to allow any
    # The prefix of table paths that is omitted from keys of file and line; None for keys with the
    # file name only.
    key_root: str | None = None
    # The name of a table in keys, where its address without secrets is not unique.
    table_names: Mapping[str, str] = field(default_factory=dict)
    # What the keys of a table that are image paths begin with.
    key_prefixes: Mapping[str, str] = field(default_factory=dict)
    guard: str | None = None  # the image root that every image address must be inside, or None
    image_suffix: str = ""  # the suffix that is added to image paths without it, or ""
    # sha256 of each key that was removed from the base version.
    removed_keys: frozenset[str] = frozenset()

    @classmethod
    def of(cls, config: ConvertConfig, schema: Schema, files: Sequence[TableFile] = ()) -> Binding:
        """Returns the column mapping, without class names, which the analyze pass finds.

        `files` are the input files, whose common folder is left out of keys.
        """
        paths = [file.path for file in files]
        return cls(
            resolved=ResolvedSchema(schema),
            columns=config.columns,
            image_root=config.image_root,
            image_suffix=config.image_suffix or "",
            guard=config.guard,
            key_column=config.key_column,
            split_column=config.split_column,
            group_column=config.group_column,
            splits=frozenset(config.splits) if config.splits is not None else None,
            key_root=common_folder(paths),
            table_names=table_names(paths),
            key_prefixes={file.path: file.key_prefix for file in files if file.key_prefix},
        )

    def table_column(self, schema_column: str) -> str:
        """Returns the table column of a schema column."""
        return self.columns.get(schema_column, schema_column)

    def check_image(self, uri: str) -> None:
        """Checks that an image or mask is inside the image root, if the binding has a guard.

        Raises RecordError if it is elsewhere.
        """
        if self.guard is not None and uri:
            check_address(uri, self.guard)

    @cached_property
    def readers(self) -> tuple[ValueReader, ...]:
        """The reader of each feature's values, in the order of the schema."""
        return value_readers(self.resolved, self.columns, self.image_suffix)

    @cached_property
    def has_annotations(self) -> bool:
        """Whether rows describe boxes or masks."""
        schema = self.resolved.schema
        return schema.has_boxes or schema.mask_feature is not None


def common_folder(files: Sequence[str]) -> str:
    """Returns the deepest folder that contains all files, with a trailing slash, or "".

    >>> common_folder(["data/a/part.csv", "data/b/part.csv"])
    'data/'
    """
    prefix = posixpath.commonprefix(list(map(bare_url, files)))
    return prefix[: prefix.rfind("/") + 1]


def table_names(files: Sequence[str]) -> dict[str, str]:
    """Returns unique names for tables whose addresses differ only in parts that may be secret.

    Keys are published with the dataset, so they must not contain a signature or its digest.

    >>> table_names(["https://host/a.csv?token=b", "https://host/a.csv?token=c", "a.csv"])
    {'https://host/a.csv?token=c': 'https://host/a.csv;2'}
    """
    seen = Counter[str]()
    names = {}
    for file in files:
        bare = bare_url(file)
        seen[bare] += 1
        if seen[bare] > 1:
            names[file] = f"{bare};{seen[bare]}"
    return names
