"""YAML from files that anybody may have written: of bounded size, and never a traceback."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError

from recordmill.schemas.errors import UsageError
from recordmill.schemas.yaml_places import check_size, problem_of, repeated_key

MAX_LENGTH = 2**20
"""Characters or bytes of a file; a schema of a thousand features has a tenth."""

MAX_DEPTH = 64
_MAX_SCALAR = 100
"""Characters of a number or date: those in base 60 take time by the square of their length."""


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, whose errors all say where they are."""

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
            problem = f"a value of type {kind} with {len(node.value):,} characters; quote a text"
            raise ConstructorError(None, None, problem, node.start_mark)
        try:
            found: Hashable = super().construct_object(node, deep)
            if isinstance(found, str):
                found.encode()  # no sidecar and no record can hold a lone surrogate
        except (ValueError, LookupError, AttributeError, TypeError, ArithmeticError) as error:
            # What the constructors raise for tags like !!bool cat, and for a 13th month.
            problem = f"{str(node.value)[:_MAX_SCALAR]!r} is not a valid {kind}: {error}"
            raise ConstructorError(None, None, problem, node.start_mark) from error
        return found


def load_yaml(text: str | bytes, where: str) -> tuple[yaml.Node | None, Any]:
    """Returns what a YAML text holds: as nodes, which know their lines, and as values.

    Args:
        text: one document.
        where: what to call it in messages, such as the file's name.

    Raises:
        UsageError: if it is not YAML, too large, or names a key twice.
    """
    if len(text) > MAX_LENGTH:
        raise UsageError(f"{where}: has {len(text):,} characters; expected at most {MAX_LENGTH:,}")
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        check_size(node)
        repeated = repeated_key(node)  # before keys are merged
        document = None if node is None else loader.construct_document(node)
    except yaml.YAMLError as error:
        place, problem = problem_of(error)
        raise UsageError(f"{where}{place}: not a YAML file: {problem}") from error
    except ValueError as error:
        raise UsageError(f"{where}: not a YAML file that can be read: {error}") from error
    if repeated is not None:
        place, key = repeated
        raise UsageError(f"{where}{place}: the key {key!r} stands twice; only one can be meant")
    return node, document
