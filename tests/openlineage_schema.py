"""JSON schemas of OpenLineage's events, from the classes that its client generates from its spec.

The classes state names, types, and which values are required; they check only some of them. The
schemas are stricter than the spec's: they know all properties, while the spec allows others.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import attr
import jsonschema
from openlineage.client import facet_v2  # noqa: F401 - its facets are the subclasses
from openlineage.client.event_v2 import RunEvent
from openlineage.client.generated.base import BaseFacet

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}
_URI = re.compile(r"(https?://[^/\s]+/|pkg:[a-z]+/)[^\s]+")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_FORMATS = {
    "eventTime": {"pattern": f"^{_TIME.pattern}$"},
    "runId": {"format": "uuid"},
    "producer": {"pattern": f"^{_URI.pattern}$"},
    "schemaURL": {"pattern": f"^{_URI.pattern}$"},
    "_producer": {"pattern": f"^{_URI.pattern}$"},
}


def validate(events: Iterable[Any]) -> None:
    """Checks the documents of run events.

    Raises:
        jsonschema.ValidationError: if one is invalid.
    """
    validator = _validator()
    for event in events:
        validator.validate(event)


@cache
def _validator() -> Any:
    known = dict[str, Any]()
    schema = {**_schema_of(RunEvent, known), "$defs": known}
    jsonschema.Draft202012Validator.check_schema(schema)
    checker = jsonschema.FormatChecker(["uuid"])
    return jsonschema.Draft202012Validator(schema, format_checker=checker)


def _schema_of(kind: Any, known: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of a type in the client's generated modules.

    Args:
        kind: the type.
        known: the schemas of classes by name, to which new ones are added.
    """
    if kind in (Any, object):
        return {}
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if get_origin(kind) in (Union, UnionType):
        kinds = [one for one in get_args(kind) if one is not NoneType]  # nulls are left out
        return {"anyOf": [_schema_of(one, known) for one in kinds]}
    if get_origin(kind) is Literal:
        return {"enum": list(get_args(kind))}
    if get_origin(kind) is list:
        return {"type": "array", "items": _schema_of(get_args(kind)[0], known)}
    if get_origin(kind) is dict:
        values = get_args(kind)[1]
        kinds = list(_subclasses(values)) if _is_facet(values) else [values]
        schemas = [_schema_of(one, known) for one in kinds]
        return {"type": "object", "additionalProperties": {"anyOf": schemas}}
    if issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    name = f"{kind.__module__}.{kind.__name__}"
    if name not in known:
        known[name] = {}  # classes refer to themselves
        known[name] |= _schema_of_class(kind, known)
    return {"$ref": f"#/$defs/{name}"}


def _schema_of_class(kind: Any, known: dict[str, Any]) -> dict[str, Any]:
    types = get_type_hints(kind)
    fields = [one for one in attr.fields(kind) if one.name != "_deleted"]
    properties = {
        one.name: {**_schema_of(types[one.name], known), **_FORMATS.get(one.name, {})}
        for one in fields
    }
    required = [one.name for one in fields if one.default is attr.NOTHING]
    if issubclass(kind, BaseFacet):
        properties["_schemaURL"] = {"const": kind._get_schema()}
        required += ["_producer", "_schemaURL"]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _is_facet(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseFacet)


def _subclasses(base: type[BaseFacet]) -> Iterator[type[BaseFacet]]:
    """Yields the facets of a kind, such as those of a run, that the spec declares."""
    for kind in base.__subclasses__():
        # attrs replaces a class by one with slots; the first one stays until it is collected.
        if getattr(sys.modules[kind.__module__], kind.__name__) is kind:
            yield kind
            yield from _subclasses(kind)
