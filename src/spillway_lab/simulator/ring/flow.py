"""Rows on their way round a ring, hop by hop, in virtual time: PSP Figure 3, with PSP-I's limit.

A message is a row or some partial combinations of one row and step, made in one slot. It visits every
slot of the ring once, from the one after that it was made in; a slot takes what comes in the order in
which it comes, passes it on, and only then probes its own slices with it. So

    begin = max(when it comes, when the slot is free)      it is at the next slot T_s + T_n later
    free  = begin + T_s + T_j for each pair                what it finds is a message of the next step

The END message follows behind: when it has come back to the head for the last time, all slots are done
with the row, and the ring takes the next one. `interleave` rows are in the ring at most.

Where slots pass on whole rows, links carry one message after the other, in the order in which they are
sent: it is at the next slot T_n after all rows of all its combinations, k + 1 rows each in step k. END
has no bytes, and waits for what was sent before it.

Matches are drawn at random: "probabilistic join probing" (8.2). In the last step they are expected
ones, so that few results do not make a response uncertain.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from numba import njit

from spillway.metrics.groups import Floats, Ints

#: The columns of what a run gives, by row: when it was begun and done, its expected results, and the
#: sum of the times at which they were there, each times its results.
BEGUN, DONE, RESULTS, MOMENT = range(4)


@njit(cache=True, nogil=True)
def ring_run(
    comes_s: Floats,
    ready_s: Floats,
    source: Ints,
    head: Ints,
    slots: Ints,
    epoch: Ints,
    low: Ints,
    high: Ints,
    held: Any,
    order: Ints,
    part: float,
    costs: Floats,
    links: Ints,
    interleave: int,
    until_s: float,
    seed: int,
    by_sample: Floats,
    sample_s: float,
    busy_s: Floats,
) -> tuple[Floats, Ints]:
    """All rows of a run.

    Args:
        comes_s: When each row comes, ascending.
        ready_s: When the ring may take it at the earliest.
        source: Its stream.
        head: The slot that builds it.
        slots: The length of its ring.
        epoch: Which of `held` it sees.
        low: By row and stream, the first row of the window.
        high: The same, one after the last.
        held: By epoch, stream and number, how many of the first rows each slot has.
        order: The streams that each stream's rows probe.
        part: The part of pairs that match.
        costs: T_j, T_s, T_n, T_i with T_p, and how long a link has a row; 0: rows go as packets come.
        links: On which link each slot sends.
        interleave: Rows in the ring at a time.
        until_s: Results that come later do not count.
        seed: Of the matches.
        by_sample: Is added to, by sample: results, and the sum of their response times.
        sample_s: How long a sample is.
        busy_s: Is added to: seconds that each slot worked, up to `until_s`.

    Returns:
        What is known of every row; and by row and step, the pairs that were compared, and before them,
        how many combinations came.
    """
    np.random.seed(seed)
    pair_s, send_s, hop_s, keep_s, link_s = costs
    rows, steps, places = len(comes_s), order.shape[1], busy_s.shape[0]
    found = np.zeros((rows, 4))
    pairs = np.zeros((rows, 2 * steps), np.int64)
    free, carried = np.zeros(places), np.zeros(places)
    # When it comes, a number so that equal times have an order, row, step, where it was made, where it
    # is, slots still to visit, and how many combinations it has; -1 is END. Beyond the slots are the
    # places where what they sent waits for a link.
    on_way_s = 0.0 if link_s > 0 else hop_s
    heap = [(0.0, 0, 0, 0, 0, 0, 0, 0)]
    heap.pop()
    number = 0
    following, inside, now_s = 0, 0, 0.0
    while True:
        while following < rows and inside < interleave:
            at_s = max(ready_s[following], now_s)
            if at_s > until_s:
                return found, pairs
            found[following, BEGUN] = at_s
            begin = head[following]
            message = (at_s, number, following, 0, begin, begin, slots[following], 1)
            heapq.heappush(heap, message)
            number += 1
            following += 1
            inside += 1
        if not heap:
            return found, pairs
        came_s, _, row, step, made, slot, left, count = heapq.heappop(heap)
        ring = slots[row]
        after = slot % places + 1 if slot % places + 1 < ring else 0
        if slot >= places:
            link = links[slot - places]
            carried[link] = max(came_s, carried[link]) + max(0, count) * (step + 1) * link_s
            there_s = carried[link] + hop_s
            heapq.heappush(heap, (there_s, number, row, step, made, after, left, count))
            number += 1
            continue
        to = slot + places if link_s > 0 else after
        begin_s = max(came_s, free[slot])
        passed_s = begin_s + send_s * max(1, count)
        if left > 1:
            heapq.heappush(
                heap, (passed_s + on_way_s, number, row, step, made, to, left - 1, count)
            )
            number += 1
        done_s = passed_s
        if count >= 0:
            stream = order[source[row], step]
            there = held[epoch[row], stream, high[row, stream], slot]
            there -= held[epoch[row], stream, low[row, stream], slot]
            compared = count * there
            pairs[row, step] += compared
            done_s += compared * pair_s
            if step == 0 and left == ring:
                done_s += keep_s
            if step == steps - 1:
                results = compared * part
                if done_s <= until_s:
                    found[row, RESULTS] += results
                    found[row, MOMENT] += results * done_s
                    sample = int(done_s / sample_s)
                    by_sample[sample, 0] += results
                    by_sample[sample, 1] += results * (done_s - comes_s[row])
            else:
                matched = np.random.binomial(compared, part) if compared > 0 else 0
                if matched > 0:
                    pairs[row, steps + step + 1] += matched
                    heapq.heappush(
                        heap, (done_s + on_way_s, number, row, step + 1, slot, to, ring, matched)
                    )
                    number += 1
            if step == 0 and left == ring:
                pairs[row, steps] = 1
                # The first END goes behind the row itself.
                heapq.heappush(heap, (done_s + on_way_s, number, row, 1, slot, to, ring, -1))
                number += 1
        elif left == 1:
            if step < steps:
                heapq.heappush(heap, (done_s + on_way_s, number, row, step + 1, slot, to, ring, -1))
                number += 1
            else:
                found[row, DONE] = done_s
                inside -= 1
                now_s = done_s
        free[slot] = done_s
        if done_s <= until_s:
            busy_s[slot] += done_s - begin_s


@njit(cache=True, nogil=True)
def hops_run(
    comes_s: Floats,
    source: Ints,
    low: Ints,
    high: Ints,
    held: Any,
    order: Ints,
    part: float,
    costs: Floats,
    until_s: float,
    seed: int,
    by_sample: Floats,
    sample_s: float,
    busy_s: Floats,
) -> tuple[Floats, Ints]:
    """CTR: each step of a row goes to the slots of a cover, and is waited for; one row at a time.

    The slots of `held` are those of a cover, which has every row once. What comes to a step is sent to
    them one after the other; when the last one is done, what was found is sent on. Arguments and what
    is given are those of `ring_run`.
    """
    np.random.seed(seed)
    pair_s, send_s, hop_s, keep_s = costs[0], costs[1], costs[2], costs[3]
    rows, steps, slots = len(comes_s), order.shape[1], held.shape[3]
    found = np.zeros((rows, 4))
    pairs = np.zeros((rows, 2 * steps), np.int64)
    now_s = 0.0
    for row in range(rows):
        now_s = max(now_s, comes_s[row])
        if now_s > until_s:
            return found, pairs
        found[row, BEGUN] = now_s
        now_s += keep_s
        count = 1
        for step in range(steps):
            pairs[row, steps + step] = count
            stream = order[source[row], step]
            last_s, matched = now_s, 0
            for slot in range(slots):
                there = held[0, stream, high[row, stream], slot]
                there -= held[0, stream, low[row, stream], slot]
                compared = count * there
                pairs[row, step] += compared
                took_s = send_s * count + compared * pair_s
                done_s = now_s + send_s * count * (slot + 1) + hop_s + took_s
                last_s = max(last_s, done_s)
                if done_s <= until_s:
                    busy_s[slot] += took_s
                if step < steps - 1:
                    matched += np.random.binomial(compared, part) if compared > 0 else 0
                elif done_s <= until_s:
                    results = compared * part
                    found[row, RESULTS] += results
                    found[row, MOMENT] += results * done_s
                    sample = int(done_s / sample_s)
                    by_sample[sample, 0] += results
                    by_sample[sample, 1] += results * (done_s - comes_s[row])
            # All slots say that they are done before the next step.
            now_s = last_s + hop_s
            count = matched
            if count == 0:
                break
        found[row, DONE] = now_s
    return found, pairs
