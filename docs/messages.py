"""Lists the messages of the product: `python docs/messages.py [WORD…]`, all that contain a word.

A message is a text of an exception, a reject, a problem, a warning or a log record. Names stand for
the values that are put into it, as in an f-string.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.structure import product_files

ROOT = Path(__file__).parents[1]
CALLS = ("Error", "Exists", "Exceeded", "Failed", "Interrupted", "Problem", "warn", "warning")
REJECTS = ("Reject", "of", "of_lost_rows", "of_malformed_row")
MIN_WORDS = 2


def messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yields the line and the text of each message of a module."""
    for call in ast.walk(tree):
        if isinstance(call, ast.Call):
            name = ast.unparse(call.func).rpartition(".")[2]
            if name.endswith(CALLS) or name in REJECTS:
                for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
                    if len((text := template(argument)).split()) >= MIN_WORDS:
                        yield call.lineno, text


def template(node: ast.expr) -> str:
    """Returns a text with the expressions in it in braces; "" of what is not a text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.replace("\n", "\\n")
    if isinstance(node, ast.JoinedStr):
        return "".join(map(template, node.values))
    if isinstance(node, ast.FormattedValue):
        return f"{{{ast.unparse(node.value)}}}"
    if isinstance(node, ast.IfExp):
        return " | ".join(filter(None, (template(node.body), template(node.orelse))))
    return ""


def main() -> None:
    """Prints the messages in the order of the files."""
    for path in product_files(ROOT):
        for line, text in messages(ast.parse(path.read_text("utf-8"))):
            if all(word in text for word in sys.argv[1:]):
                print(f"{path.relative_to(ROOT)}:{line}: {text}")


if __name__ == "__main__":
    main()
