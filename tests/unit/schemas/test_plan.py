"""Resolved schemas: conversion between class names and ids."""

from __future__ import annotations

import pickle

import pytest

from recordmill.schemas.features import Feature, Schema
from recordmill.schemas.plan import Plan, ResolvedSchema
from recordmill.schemas.yaml_files import preset

SLIM = ResolvedSchema(preset("tf_slim"), {"image/class/label": ("cat", "dog")})
NUMBERED = ResolvedSchema(preset("tf_slim"), {"image/class/label": ()})


def test_ids_follow_the_order_of_the_names():
    assert SLIM.class_ids == {"image/class/label": {"cat": 0, "dog": 1}}
    assert NUMBERED.class_ids == {"image/class/label": {}}


@pytest.mark.parametrize(
    ("resolved", "label", "expected"),
    [(SLIM, 0, "cat"), (SLIM, 1, "dog"), (NUMBERED, 7, "7"), (NUMBERED, -1, "-1")],
    ids=["first", "last", "number", "negative"],
)
def test_class_name(resolved, label, expected):
    assert resolved.class_name("image/class/label", label) == expected


def test_class_name_of_a_feature_without_classes():
    assert SLIM.class_name("image/height", 480) == "480"


def test_the_class_feature_of_a_column():
    assert SLIM.class_feature_of("label") == "image/class/label"
    assert SLIM.class_feature_of("image") is None
    plain = Schema(features={"n": Feature(kind="int64", sources="column:label")})
    assert ResolvedSchema(plain).class_feature_of("label") is None


def test_a_plan_can_be_pickled():
    plan = Plan(SLIM, {"train": 3}, 100)
    assert plan.resolved.class_ids  # worked out before: must not stand in the way
    assert pickle.loads(pickle.dumps(plan)) == plan  # noqa: S301
