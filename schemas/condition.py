"""The language of `--where`, which selects rows by the values of their columns.

    label in ('cat', 'dog') and width >= 64 and not (split == 'test' or notes is None)

It has the grammar of Python, of which it allows comparisons, `in`, `and`, `or`, `not`, numbers and
texts. A name is a column, also `patient.age`; `column('a name')` is one with other characters.
"""

from __future__ import annotations

import ast
import keyword
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from recordmill.schemas.rejects import Reason, RecordError

# The values of a row by column, and whether they are untyped text.
_Cells: TypeAlias = Mapping[str, tuple[Any, bool]]
_Test: TypeAlias = Callable[[_Cells], bool]

_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_MIRRORED: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
}
_WORDS = {"and", "or", "not", "in", "is", "None"}
_MAX_CHARACTERS = 10_000
_SHOWN = 60  # characters of a value in messages


@dataclass(frozen=True)
class Condition:
    """A condition on the columns of a row."""

    text: str

    @cached_property
    def _parsed(self) -> tuple[_Test, dict[str, Any]]:
        if len(self.text) > _MAX_CHARACTERS:
            raise ValueError(f"expected at most {_MAX_CHARACTERS:,} characters")
        columns = dict[str, Any]()
        try:
            test = _test(ast.parse(self.text.strip(), mode="eval").body, columns)
        except (SyntaxError, RecursionError, MemoryError) as error:
            what = error.msg if isinstance(error, SyntaxError) else "it is nested too deeply"
            example = f"label in ('a', 'b') or {_column_named(self.text)} == 7"
            raise ValueError(f"expected a condition, as in {example}: {what}") from error
        return test, columns

    @property
    def columns(self) -> Mapping[str, Any]:
        """A compared value by column, in a list after `in`; raises ValueError if not valid."""
        return self._parsed[1]

    def holds(self, cells: _Cells) -> bool:
        """Returns whether a row is selected; comparisons of missing values do not hold.

        Raises RecordError if a value cannot be compared.

        >>> adult = Condition("age >= 18")
        >>> [adult.holds({"age": cell}) for cell in (("20", True), (7, False), (None, False))]
        [True, False, False]
        """
        return self._parsed[0](cells)

    def of_values(self, cells: _Cells) -> Iterator[str]:
        """Yields the condition that holds for the value of each column."""
        for name, compared in self.columns.items():
            value = cells[name][0] if isinstance(compared, list) else _cell(cells, name)[0]
            yield condition_of(name, value)[:_SHOWN]

    def __reduce__(self) -> Any:
        """Pickles the text: functions cannot be."""
        return Condition, (self.text,)


def condition_of(name: str, value: Any) -> str:
    """Returns a condition that holds for a value of a column, which may be a list.

    >>> condition_of("label", "cat"), condition_of("all labels", ["cat"])
    ("label == 'cat'", "'cat' in column('all labels')")
    """
    first = next(iter(value), None) if isinstance(value, list) else value
    shown = first.decode("utf-8", "replace") if isinstance(first, bytes) else first
    is_plain = all(map(str.isidentifier, name.split("."))) and not keyword.iskeyword(name)
    column = name if is_plain else f"column({name!r})"
    if not isinstance(shown, str | int | float):
        return f"{column} is {None if shown is None else 'not None'}"
    return f"{shown!r} in {column}" if isinstance(value, list) else f"{column} == {shown!r}"


def _column_named(text: str) -> str:
    """Returns the first name in a text that needs `column`, or an example of another.

    >>> _column_named("id == 3 and image/class/label == 3"), _column_named("age = 3")
    ("column('image/class/label')", 'age')
    """
    names = re.findall(r"[^\W\d]\w*(?:[/-]\w+)*", re.sub("'[^']*'|\"[^\"]*\"", "", text))
    odd = (n for n in names if not n.isidentifier() or n in {*keyword.kwlist} - _WORDS)
    return next((f"column({name!r})" for name in odd), "age")


def _test(node: ast.expr, columns: dict[str, Any]) -> _Test:
    if isinstance(node, ast.BoolOp):
        tests = [_test(value, columns) for value in node.values]
        combine = all if isinstance(node.op, ast.And) else any
        return lambda cells: combine(test(cells) for test in tests)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        negated = _test(node.operand, columns)
        return lambda cells: not negated(cells)
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        parts = zip(node.ops, sides, sides[1:], strict=False)
        tests = [_comparison(op, left, right, columns) for op, left, right in parts]
        return lambda cells: all(test(cells) for test in tests)
    raise ValueError(f"expected comparisons of columns, got {ast.unparse(node)}")


def _comparison(op: ast.cmpop, left: ast.expr, right: ast.expr, columns: dict[str, Any]) -> _Test:
    if (name := _column(left)) is None:
        if isinstance(op, ast.In | ast.NotIn):  # 'cat' in labels
            listed, value = _column(right), _value(left)
            if listed is None:
                raise ValueError(f"expected a column, got {ast.unparse(right)}")
            if not isinstance(value, str | int | float):
                got = ast.unparse(left)
                raise ValueError(f"expected a text or a number in {listed!r}, got {got}")
            columns[listed] = [value]
            return _member(listed, value, isinstance(op, ast.NotIn))
        op, left, right = _MIRRORED.get(type(op), type(op))(), right, left  # 18 <= age
        if (name := _column(left)) is None:
            odd = ast.unparse(left if isinstance(right, ast.Constant) else right)  # image/id == 3
            named = odd.replace(" ", "")
            raise ValueError(f"expected a column, got {odd}; column({named!r}) is one of that name")
    value = _value(right)
    columns[name] = value[0] if isinstance(value, tuple) and value else value
    if isinstance(op, ast.Is | ast.IsNot) and value is None:
        missing = isinstance(op, ast.Is)
        return lambda cells: (_cell(cells, name)[0] is None) is missing
    if isinstance(op, ast.In | ast.NotIn) and isinstance(value, tuple):
        is_in = isinstance(op, ast.In)
        return _compared(name, lambda found: (found in value) is is_in, value)
    if type(op) not in _COMPARISONS or value is None or isinstance(value, tuple):
        raise ValueError(f"{name!r} cannot be compared with {ast.unparse(right)} in this way")
    compare = _COMPARISONS[type(op)]
    return _compared(name, lambda found: compare(found, value), (value,))


def _compared(name: str, compare: Callable[[Any], bool], values: tuple[Any, ...]) -> _Test:
    """Returns a comparison with values of one type; that of a missing value does not hold."""
    if None in values:
        raise ValueError(f"expected texts or numbers, got None. Use: {name} is None or …")
    kinds = {str if isinstance(value, str) else float for value in values}
    if len(kinds) != 1:
        raise ValueError(f"{name!r} is compared with texts and numbers; expected one of them")
    (kind,) = kinds

    def test(cells: _Cells) -> bool:
        value, untyped = _cell(cells, name)
        return value is not None and compare(_of_kind(value, kind, untyped, name))

    return test


def _member(name: str, value: Any, negated: bool) -> _Test:
    kind = str if isinstance(value, str) else float

    def test(cells: _Cells) -> bool:
        listed, untyped = cells.get(name, (None, False))
        if listed is None:
            return False
        if not isinstance(listed, list):
            raise _mismatch(name, "a list", listed)
        return (value in [_of_kind(one, kind, untyped, name) for one in listed]) is not negated

    return test


def _cell(cells: _Cells, name: str) -> tuple[Any, bool]:
    """Returns a value, that of a list of one, or None if it is missing."""
    value, untyped = cells.get(name, (None, False))
    if isinstance(value, list) and len(value) < 2:
        value = value[0] if value else None
    return (None if untyped and value == "" else value), untyped


def _of_kind(value: Any, kind: type, untyped: bool, name: str) -> Any:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    if kind is float and untyped and isinstance(value, str):
        try:
            return int(value) if value.strip().lstrip("+-").isdecimal() else float(value)
        except ValueError:
            raise _mismatch(name, "a number", value) from None
    if isinstance(value, str if kind is str else (int, float)):
        return value
    raise _mismatch(name, "a text" if kind is str else "a number", value)


def _mismatch(name: str, expected: str, value: Any) -> RecordError:
    detail = f"column {name!r}: --where expects {expected}, got {str(value)[:_SHOWN]!r}; compare"
    return RecordError(Reason.WRONG_TYPE, f"{detail} as in {condition_of(name, value)[:_SHOWN]}.")


def _column(node: ast.expr) -> str | None:
    """Returns the column that an expression names; None for others."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (prefix := _column(node.value)) is not None:
        return f"{prefix}.{node.attr}"
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "column" and len(node.args) == 1:
        name = _value(node.args[0])
        return name if isinstance(name, str) and not node.keywords else None
    return None


def _value(node: ast.expr) -> Any:
    """Returns the text, number, None or tuple that an expression is; ValueError for others."""
    try:
        value = ast.literal_eval(node)
    except ValueError:
        raise ValueError(f"expected a text or a number, got {ast.unparse(node)}") from None
    value = tuple(value) if isinstance(value, list | tuple | set) else value
    for one in value if isinstance(value, tuple) else (value,):
        if not isinstance(one, str | int | float | None):
            raise ValueError(f"expected a text or a number, got {one!r}")
    return value
