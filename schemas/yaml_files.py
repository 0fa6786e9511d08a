"""Reads YAML files: presets, schemas and YOLO's data.yaml; reports problems with their line.

The files may come from anywhere, so their size, depth and aliases are limited.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from importlib import resources
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError

from recordmill.schemas.errors import SchemaError, UsageError, did_you_mean, problem_of_value
from recordmill.schemas.features import Schema

_PRESETS = resources.files("recordmill.schemas").joinpath("presets")

# Maximum characters or bytes of a file; a schema of a thousand features has 100,000.
MAX_LENGTH = 2**20

MAX_DEPTH = 64

# Maximum characters of a number or date, because numbers in base 60 take quadratic time.
_MAX_SCALAR = 100


def preset_names() -> list[str]:
    """Returns the names of all presets, sorted."""
    files = _PRESETS.iterdir()
    return sorted(f.name[: -len(".yaml")] for f in files if f.name.endswith(".yaml"))


def preset(name: str) -> Schema:
    """Returns a preset by its name; raises UsageError if there is none."""
    if name not in preset_names():
        names = preset_names()
        raise UsageError(
            f"--schema {name}: no such preset or file"
            f"{did_you_mean(name, names)}; expected a YAML file or one of: {', '.join(names)}"
        )
    text = _PRESETS.joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    return parse_schema(text, f"preset {name}")


def parse_schema(text: str | bytes, where: str) -> Schema:
    """Parses a schema in YAML; raises UsageError if the text is not one."""
    node, document = load_yaml(text, where)
    if node is None or not isinstance(document, dict):
        raise UsageError(
            f"{where}: expected a mapping with the key 'features', got {shortened(document)}. "
            "recordmill schema --infer TABLE prints one for a table."
        )
    try:
        return Schema.model_validate(document)
    except ValidationError as error:
        place, problem = _first_problem(error, Schema, node)
        raise UsageError(f"{where}{place}: {problem}") from error


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, whose errors all have a position."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise ComposerError(None, None, f"nested too deeply: over {MAX_DEPTH} levels", mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Hashable:
        kind = node.tag.rpartition(":")[2]
        if isinstance(node, yaml.ScalarNode) and kind != "str" and len(node.value) > _MAX_SCALAR:
            problem = f"a value of type {kind} with {len(node.value):,} characters. Quote a text."
            raise ConstructorError(None, None, problem, node.start_mark)
        try:
            found: Hashable = super().construct_object(node, deep)
            if isinstance(found, str):
                found.encode()  # no sidecar and no record can hold a lone surrogate
        except (ValueError, LookupError, AttributeError, TypeError, ArithmeticError) as error:
            # Constructors raise these for tags such as !!bool cat, and for a 13th month.
            problem = f"{str(node.value)[:_MAX_SCALAR]!r} is not a valid {kind}: {error}"
            raise ConstructorError(None, None, problem, node.start_mark) from error
        return found


def load_yaml(
    text: str | bytes, where: str, names: Sequence[str] = ()
) -> tuple[yaml.Node | None, Any]:
    """Loads a YAML document as nodes, which have positions, and as values.

    Numbers below the keys `names` are texts: 007, 1.10. Raises UsageError if it is not YAML, is too
    large, or has a duplicate key.
    """
    if len(text) > MAX_LENGTH:
        raise UsageError(f"{where}: has {len(text):,} characters; expected at most {MAX_LENGTH:,}")
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        _check_size(node)
        repeated = _duplicate_key(node)  # the constructor would keep only the last value
        entries = _entries(node) if node and names else {}
        for name in entries.keys() & {*names}:
            _keep_spelling(entries[name][1])
        document = None if node is None else loader.construct_document(node)
    except yaml.YAMLError as error:
        place, problem = _problem_of(error)
        raise UsageError(f"{where}{place}: not a YAML file: {problem}") from error
    except ValueError as error:
        raise UsageError(f"{where}: not a YAML file that can be read: {error}") from error
    if repeated is not None:
        place, key = repeated
        raise UsageError(f"{where}{place}: the key {key!r} occurs twice. Remove one.")
    return node, document


_SHOWN = 200
_KEY = "[key]"  # pydantic's location of an invalid key

_Location = Sequence[int | str]

# Maximum nodes of a document with all aliases expanded.
MAX_NODES = 100_000


def _problem_of(error: yaml.YAMLError) -> tuple[str, str]:
    """Returns the position of a syntax error, as ":3:7", and its message."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return ("", problem) if mark is None else (_written(mark), problem)


def _check_size(node: yaml.Node | None) -> None:
    """Rejects a document whose aliases expand to too many nodes, without expanding them.

    Raises ValueError if there are more than `MAX_NODES`, or an alias refers to its own parent.
    """
    if node is not None and _nodes(node, {}) > MAX_NODES:
        raise ValueError(f"its aliases expand to more than {MAX_NODES:,} values")


def _nodes(node: yaml.Node, known: dict[int, int]) -> int:
    """Returns the number of nodes with all aliases expanded; each node is visited once."""
    if known.get(id(node)) == 0:
        raise ValueError("an alias is part of the value that it refers to")
    if id(node) not in known:
        known[id(node)] = 0  # until its children are counted
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        items = node.value if isinstance(node, yaml.SequenceNode) else ()
        below = [*(part for pair in pairs for part in pair), *items]
        known[id(node)] = 1 + sum(_nodes(part, known) for part in below)
    return known[id(node)]


def _keep_spelling(node: yaml.Node) -> None:
    if isinstance(node, yaml.ScalarNode) and node.tag.endswith((":int", ":float", ":timestamp")):
        node.tag = "tag:yaml.org,2002:str"
    for _, value in _entries(node).values():
        _keep_spelling(value)


def _duplicate_key(node: yaml.Node | None) -> tuple[str, str] | None:
    """Returns the position of the first duplicate key in a mapping, and the key, if any."""
    children: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    return _written(key.start_mark), key.value
                seen.add(key.value)
            children.append(value)
    elif isinstance(node, yaml.SequenceNode):
        children = node.value
    return next((found for child in children if (found := _duplicate_key(child))), None)


def _first_problem(
    error: ValidationError, model: type[BaseModel], node: yaml.Node
) -> tuple[str, str]:
    """Returns the first problem of a document: its position, as ":3:7", and a message."""
    marked = [(_mark(node, details), details) for details in error.errors()]
    mark, details = min(marked, key=lambda item: (item[0].line, item[0].column))
    path = " > ".join(str(part) for part in _location(details) if part != _KEY) or "the schema"
    return _written(mark), f"at {path}: {_message(details, model)}"


def _mark(node: yaml.Node, details: ErrorDetails) -> yaml.Mark:
    """Returns the position of a problem: an invalid key, or else the value."""
    key = node
    for part in _location(details):
        entries = _entries(node)
        if str(part) not in entries:
            break
        key, node = entries[str(part)]
    is_key = details["type"] == "extra_forbidden" or _KEY in details["loc"]
    return (key if is_key else node).start_mark


def _location(details: ErrorDetails) -> _Location:
    error = details.get("ctx", {}).get("error")
    return (*details["loc"], *(error.location if isinstance(error, SchemaError) else ()))


def _entries(node: yaml.Node) -> dict[str, tuple[yaml.Node, yaml.Node]]:
    if isinstance(node, yaml.MappingNode):
        return {str(key.value): (key, value) for key, value in node.value}
    if isinstance(node, yaml.SequenceNode):
        return {str(number): (item, item) for number, item in enumerate(node.value)}
    return {}


def _message(details: ErrorDetails, model: type[BaseModel]) -> str:
    value = details["input"]
    name = str(details["loc"][-1]) if details["loc"] else ""
    if details["type"] == "extra_forbidden":
        known = _keys_at(model, details["loc"][:-1])
        return f"unknown key {name!r}{did_you_mean(name, known)}; available: {', '.join(known)}"
    if details["type"] == "missing":
        misspelt = [key for key in map(str, value) if did_you_mean(key, [name])]
        if misspelt:
            return f"unknown key {misspelt[0]!r}{did_you_mean(misspelt[0], [name])}"
        return f"the key {name!r} is missing"
    message = problem_of_value(details, shortened(value))
    is_whole = ", got " in message or message.endswith(".")
    if is_whole or isinstance(details.get("ctx", {}).get("error"), SchemaError):
        return message
    return f"{message}, got {shortened(value)}"


def shortened(value: Any, most: int = _SHOWN) -> str:
    """Returns the representation of a value, truncated for messages."""
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}…"


def _keys_at(model: type[BaseModel], location: _Location) -> list[str]:
    for part in location:
        fields = {field.alias or name: field for name, field in model.model_fields.items()}
        if part in fields:
            model = _model_in(fields[str(part)].annotation) or model
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for a in get_args(annotation) if (found := _model_in(a))), None)


def _written(mark: yaml.Mark) -> str:
    return f":{mark.line + 1}:{mark.column + 1}"
