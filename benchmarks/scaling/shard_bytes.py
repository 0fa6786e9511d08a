"""The bytes of shards whose images differ in size, simulated without an engine."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

SHARDS = 1_000
SIZE_RATIO = 100


@dataclass(frozen=True)
class Unevenness:
    """How much the bytes of shards differ, relative to their mean.

    Attributes:
        deviation: the standard deviation.
        largest: the excess of the largest of `SHARDS` shards.
    """

    deviation: float
    largest: float


def unevenness(records: int, exact: bool, repeats: int = 5, seed: int = 0) -> Unevenness:
    """Returns the means over repeats; sizes are even on a logarithmic scale.

    Args:
        records: the mean number of records per shard.
        exact: whether all shards have that number; otherwise, shards are equal ranges of hashes.
        repeats: the number of simulated datasets.
        seed: of all random draws.
    """
    chance, found = np.random.default_rng(seed), []
    for _ in range(repeats):
        counts = np.full(SHARDS, records) if exact else chance.poisson(records, SHARDS)
        sizes = np.exp(chance.uniform(0, math.log(SIZE_RATIO), counts.sum()))
        total = np.diff(np.concatenate([[0.0], np.cumsum(sizes)])[np.cumsum([0, *counts])])
        found.append((total.std() / total.mean(), total.max() / total.mean() - 1))
    deviation, largest = np.mean(found, axis=0)
    return Unevenness(float(deviation), float(largest))
