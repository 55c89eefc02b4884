"""How rows are spread over the groups at a time: the shapes of a workload.

    uniform        all keys alike
    hot            `hot_rows` of the rows on `hot_keys` of the keys, evenly
    self-similar   the same again within the hot keys, and so on: the 80/20 rule under which few groups
                   receive most of the work (FLUX 5.4)
    halves         like hot, but the hot keys are neighbours, in neighbouring slots

Except for "halves", keys fall into groups at random, equally many in each. With `turn_s`, the next
`hot_keys` of the keys become hot at each turn.
"""

from __future__ import annotations

import math

import numpy as np

from spillway.metrics.groups import Floats, Ints
from spillway_lab.simulator.cluster.scenario import Disturbance, Scenario, Workload


def turn_of(workload: Workload, now_s: float) -> int:
    """How many times the hot keys have changed."""
    # A tick ends at an inexact multiple of its length; it must not fall short of the turn.
    return 0 if workload.turn_s is None else math.floor(now_s / workload.turn_s + 1e-9)


def group_shares(scenario: Scenario, turn: int) -> Floats:
    """The fraction of all rows that falls on each group.

    Example:
        >>> group_shares(Scenario(slots=2, groups=4), turn=0).tolist()
        [0.25, 0.25, 0.25, 0.25]
    """
    workload = scenario.workload
    shares = key_shares(workload)
    if workload.shape != "halves":
        shares = np.random.default_rng([scenario.seed, 1]).permutation(shares)
    shares = np.roll(shares, turn * max(1, round(workload.keys * workload.hot_keys)))
    group = np.arange(workload.keys) * scenario.groups // workload.keys
    return np.bincount(group, weights=shares, minlength=scenario.groups).astype(np.float64)


def key_shares(workload: Workload) -> Floats:
    """The fraction of all rows that falls on each key, the hottest first; the sum is 1."""
    keys = workload.keys
    if workload.shape == "uniform":
        return np.full(keys, 1 / keys)
    if workload.shape == "self-similar":
        # The first x of the keys have x ** skew of the rows: hot_rows where x is hot_keys.
        skew = math.log(workload.hot_rows) / math.log(workload.hot_keys)
        return np.diff((np.arange(keys + 1) / keys) ** skew)
    hot = max(1, round(keys * workload.hot_keys))
    shares = np.full(keys, (1 - workload.hot_rows) / max(1, keys - hot))
    shares[:hot] = workload.hot_rows / hot
    return np.asarray(shares / shares.sum(), np.float64)


def hottest_slot(scenario: Scenario) -> int:
    """The slot with the busiest group at the start."""
    group = int(np.argmax(group_shares(scenario, 0)))
    return group * scenario.slots // scenario.groups


def cpu_left(scenario: Scenario, now_s: float) -> Floats:
    """The fraction of its processor that each slot has for itself."""
    left = np.ones(scenario.slots)
    for one in scenario.disturbances:
        left[_disturbed(one, scenario.slots, now_s)] *= 1 - one.cpu
    return left


def memory_left(scenario: Scenario, now_s: float) -> Ints:
    """The memory that each slot has for its state, bytes."""
    left = np.full(scenario.slots, scenario.machine.memory_bytes, np.int64)
    for one in scenario.disturbances:
        left[_disturbed(one, scenario.slots, now_s)] -= one.memory_bytes
    return np.maximum(left, 0)


def _disturbed(one: Disturbance, slots: int, now_s: float) -> Ints:
    """The slots that a disturbance affects now."""
    on = np.array(one.slots or range(slots), np.int64)
    if now_s < one.since_s - 1e-9 or (one.until_s is not None and now_s >= one.until_s - 1e-9):
        return on[:0]
    if one.turn_s is None:
        return on
    turn = math.floor((now_s - one.since_s) / one.turn_s + 1e-9) % len(on)
    return on[turn : turn + 1]
