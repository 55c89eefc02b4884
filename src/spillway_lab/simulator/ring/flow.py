"""Rows on their way round a ring, hop by hop, in virtual time: PSP Figure 3, with PSP-I's limit.

A message is a row, or partial combinations of one row and step. It visits every slot of the ring once,
starting after its maker. A slot serves messages in order of arrival: it passes each on, then probes its
own slices. So

    begin = max(arrival, when the slot is free)       the next slot gets it T_s + T_n later
    free  = begin + T_s + T_j for each pair           what it finds is a message of the next step

An END message follows. When it returns to the head for the last time, the row is done and the ring takes
the next one. At most `interleave` rows are in the ring.

If slots pass on whole rows, a link carries one message at a time: a message arrives T_n after all rows
of its combinations, k + 1 rows each in step k. END has no bytes, but waits for everything before it.

Matches are random: "probabilistic join probing" (8.2). The last step uses expected values, so that the
response is certain even with few results.
"""

from __future__ import annotations

import heapq

import numpy as np

from spillway.kernels.compiler import kernel
from spillway_lab.simulator.ring.rows import BEGUN, DONE, MOMENT, RESULTS
from spillway_lab.simulator.ring.travel import Found, Paths, RingRun, Traffic, Traveller


@kernel
def ring_run(run: RingRun, paths: Paths, found: Found) -> None:
    """Sends all rows round the ring, and sums up what they find."""
    np.random.seed(run.limits.seed)
    places = found.busy_s.shape[0]
    heap = [(0.0, 0, Traveller(0, 0, 0, 0, 0, 0))]
    heap.pop()
    traffic = Traffic(heap, np.zeros(1, np.int64), np.zeros(places), np.zeros(places))
    following, inside, now_s = 0, 0, 0.0
    while True:
        while following < len(paths.ready_s) and inside < run.limits.interleave:
            at_s = max(paths.ready_s[following], now_s)
            if at_s > run.limits.until_s:
                return
            found.rows[following, BEGUN] = at_s
            head = paths.head[following]
            _send(traffic, at_s, Traveller(following, 0, head, head, paths.slots[following], 1))
            following += 1
            inside += 1
        if not heap:
            return
        came_s, _, traveller = heapq.heappop(heap)
        if traveller.slot >= places:
            _carry(run, paths, traffic, came_s, traveller)
            continue
        done_s = _serve(run, paths, found, traffic, came_s, traveller)
        if (
            traveller.combinations < 0
            and traveller.left == 1
            and traveller.step == run.ring.order.shape[1]
        ):
            found.rows[traveller.row, DONE] = done_s
            inside -= 1
            now_s = done_s


@kernel
def _send(traffic: Traffic, at_s: float, traveller: Traveller) -> None:
    heapq.heappush(traffic.heap, (at_s, traffic.serial[0], traveller))
    traffic.serial[0] += 1


@kernel
def _after(slot: int, ring: int) -> int:
    """The next slot of a ring."""
    return slot + 1 if slot + 1 < ring else 0


@kernel
def _carry(
    run: RingRun, paths: Paths, traffic: Traffic, came_s: float, traveller: Traveller
) -> None:
    """A link takes a message to the next slot, behind everything sent before."""
    row, step, made, waits, left, count = traveller
    slot, costs = waits - len(traffic.free_s), run.ring.costs
    link, carried_s = run.ring.links[slot], traffic.carried_s
    carried_s[link] = max(came_s, carried_s[link]) + max(0, count) * (step + 1) * costs.link_s
    to = _after(slot, paths.slots[row])
    _send(traffic, carried_s[link] + costs.hop_s, Traveller(row, step, made, to, left, count))


@kernel
def _serve(
    run: RingRun, paths: Paths, found: Found, traffic: Traffic, came_s: float, traveller: Traveller
) -> float:
    """A slot passes a message on and works on it; returns when it is done."""
    row, step, made, slot, left, count = traveller
    costs, ring = run.ring.costs, paths.slots[row]
    # If links take time, a message waits for one in a place beyond the slots.
    to = slot + len(traffic.free_s) if costs.link_s > 0 else _after(slot, ring)
    on_way_s = 0.0 if costs.link_s > 0 else costs.hop_s
    begin_s = max(came_s, traffic.free_s[slot])
    done_s = begin_s + costs.send_s * max(1, count)
    if left > 1:
        _send(traffic, done_s + on_way_s, Traveller(row, step, made, to, left - 1, count))
    if count >= 0:
        compared = _compared(run, paths.epoch[row], found, traveller)
        first = step == 0 and left == ring
        done_s += compared * costs.pair_s
        if first:
            done_s += costs.keep_s
        matched = _matched(run, found, traveller, compared, done_s)
        if matched > 0:
            _send(traffic, done_s + on_way_s, Traveller(row, step + 1, slot, to, ring, matched))
        if first:
            found.pairs[row, run.ring.order.shape[1]] = 1
            # The first END goes behind the row itself.
            _send(traffic, done_s + on_way_s, Traveller(row, 1, slot, to, ring, -1))
    elif left == 1 and step < run.ring.order.shape[1]:
        _send(traffic, done_s + on_way_s, Traveller(row, step + 1, slot, to, ring, -1))
    traffic.free_s[slot] = done_s
    if done_s <= run.limits.until_s:
        found.busy_s[slot] += done_s - begin_s
    return float(done_s)


@kernel
def _met(run: RingRun, epoch: int, row: int, step: int, slot: int) -> int:
    """Rows of the next stream that a slot holds in the window of a row."""
    rows, held = run.rows, run.ring.held
    stream = run.ring.order[rows.source[row], step]
    there = held[epoch, stream, rows.high[row, stream], slot]
    return int(there - held[epoch, stream, rows.low[row, stream], slot])


@kernel
def _compared(run: RingRun, epoch: int, found: Found, traveller: Traveller) -> int:
    """Pairs that a message compares in its slot, counted."""
    pairs = traveller.combinations * _met(run, epoch, traveller.row, traveller.step, traveller.slot)
    found.pairs[traveller.row, traveller.step] += pairs
    return pairs


@kernel
def _matched(run: RingRun, found: Found, traveller: Traveller, compared: int, done_s: float) -> int:
    """Combinations for the next step; after the last one there are results instead."""
    steps = run.ring.order.shape[1]
    if traveller.step == steps - 1:
        _add_results(run, found, traveller.row, compared * run.ring.part, done_s)
        return 0
    matched = np.random.binomial(compared, run.ring.part) if compared > 0 else 0
    found.pairs[traveller.row, steps + traveller.step + 1] += matched
    return matched


@kernel
def _add_results(run: RingRun, found: Found, row: int, results: float, done_s: float) -> None:
    if done_s > run.limits.until_s:
        return
    found.rows[row, RESULTS] += results
    found.rows[row, MOMENT] += results * done_s
    sample = int(done_s / run.limits.sample_s)
    found.by_sample[sample, 0] += results
    found.by_sample[sample, 1] += results * (done_s - run.rows.comes_s[row])


@kernel
def hops_run(run: RingRun, found: Found) -> None:
    """CTR: each step of a row goes to the slots of a cover and waits for them; one row at a time.

    The slots of `held` form a cover, which holds every row once. The driver sends a step's
    combinations to them one by one; when the last slot is done, it sends on what they found.
    """
    np.random.seed(run.limits.seed)
    now_s = 0.0
    for row in range(len(run.rows.comes_s)):
        now_s = max(now_s, run.rows.comes_s[row])
        if now_s > run.limits.until_s:
            return
        found.rows[row, BEGUN] = now_s
        now_s += run.ring.costs.keep_s
        count = 1
        for step in range(run.ring.order.shape[1]):
            found.pairs[row, run.ring.order.shape[1] + step] = count
            last_s, count = _hop(run, found, row, step, now_s, count)
            # All slots report that they are done before the next step.
            now_s = last_s + run.ring.costs.hop_s
            if count == 0:
                break
        found.rows[row, DONE] = now_s


@kernel
def _hop(
    run: RingRun, found: Found, row: int, step: int, now_s: float, count: int
) -> tuple[float, int]:
    """One step of a row in all slots of its cover: when the last is done, and what matched."""
    costs, part = run.ring.costs, run.ring.part
    last_s, matched = now_s, 0
    for slot in range(run.ring.held.shape[3]):
        compared = count * _met(run, 0, row, step, slot)
        found.pairs[row, step] += compared
        took_s = costs.send_s * count + compared * costs.pair_s
        done_s = now_s + costs.send_s * count * (slot + 1) + costs.hop_s + took_s
        last_s = max(last_s, done_s)
        if done_s <= run.limits.until_s:
            found.busy_s[slot] += took_s
        if step == run.ring.order.shape[1] - 1:
            _add_results(run, found, row, compared * part, done_s)
        else:
            matched += np.random.binomial(compared, part) if compared > 0 else 0
    return last_s, matched
