"""Keeps Beam from computing the same things thousands of times while it builds and runs a graph.

With Beam 2.77, a conversion of a dozen images spent half of its CPU time on these three. Each
returns what Beam itself would compute; https://github.com/apache/beam/issues/26034 (parse the
pipeline options only once) would make the second unnecessary.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms import core, userstate
from apache_beam.typehints.decorators import get_signature

View = TypeVar("View", bound=PipelineOptions)

_inspect: Callable[..., inspect.Signature] = get_signature
_make_view: Callable[[PipelineOptions, type[Any]], Any] = PipelineOptions.view_as
_find_specs: Callable[[beam.DoFn], Any] = userstate.get_dofn_specs

_signatures: WeakKeyDictionary[Callable[..., Any], dict[bool, inspect.Signature]]
_signatures = WeakKeyDictionary()
_views: WeakKeyDictionary[PipelineOptions, dict[type[Any], Any]] = WeakKeyDictionary()
_specs: WeakKeyDictionary[beam.DoFn, Any] = WeakKeyDictionary()


def apply() -> None:
    """Replaces the three functions in Beam; calling it again changes nothing."""
    core.get_signature = known_signature
    PipelineOptions.view_as = known_view
    userstate.get_dofn_specs = known_specs


def known_signature(function: Callable[..., Any]) -> inspect.Signature:
    """Returns the signature of a function, or of a method without what it is bound to.

    Beam inspects every method of every DoFn a dozen times: 20,000 signatures of 1,000 functions.
    """
    inner = getattr(function, "__func__", function)
    if not inspect.isfunction(inner):
        return _inspect(function)
    known = _signatures.setdefault(inner, {})
    is_bound = inner is not function
    if is_bound not in known:
        known[is_bound] = _inspect(function)
    return known[is_bound]


def known_view(options: PipelineOptions, kind: type[View]) -> View:
    """Returns options as a view of a kind; all views share the values.

    Beam builds an argparse parser for each view, and asks for 900 of them: one for each type that
    it compares, for example.
    """
    known = _views.setdefault(options, {})
    view: View | None = known.get(kind)
    if view is not None and view._all_options is options._all_options:
        return view
    made: View = _make_view(options, kind)
    known[kind] = made
    return made


def known_specs(dofn: beam.DoFn) -> Any:
    """Returns the state and timer specifications of a DoFn: two sets.

    Beam looks for them in all methods of each DoFn eight times.
    """
    try:
        known = _specs.get(dofn)
    except TypeError:  # a user's dataclass, which has no hash
        return _find_specs(dofn)
    if known is None:
        known = _specs[dofn] = _find_specs(dofn)
    return known
