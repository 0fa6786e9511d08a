"""Has Beam look at the signature of a function once.

While it builds a graph, Beam 2.77 inspects every method of every DoFn a dozen times: 20,000
signatures of 1,000 functions, a sixth of the CPU time of a small run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from apache_beam.transforms import core
from apache_beam.typehints.decorators import get_signature

_inspected: Callable[..., inspect.Signature] = get_signature
_known: WeakKeyDictionary[Callable[..., Any], dict[bool, inspect.Signature]] = WeakKeyDictionary()


def known_signature(function: Callable[..., Any]) -> inspect.Signature:
    """Returns the signature of a function, or of a method without what it is bound to."""
    inner = getattr(function, "__func__", function)
    if not inspect.isfunction(inner):
        return _inspected(function)
    known = _known.setdefault(inner, {})
    is_bound = inner is not function
    if is_bound not in known:
        known[is_bound] = _inspected(function)
    return known[is_bound]


core.get_signature = known_signature
