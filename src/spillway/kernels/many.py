"""Lookups in many sorted runs at once, and values of their rows.

A slot has tens of runs for each stream, often small ones. One call for all of them costs what a call
for each would cost in Python alone. Runs come as tables of addresses (kernels/memory.py): one row for
each run, with the columns that `Run columns` names.

`match_many` first finds the rows that may match, in a loop without branches, then looks these up. Half
of the time of a lookup is a branch that the processor cannot predict; here only what is nearly certain
to match has one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spillway.kernels.compiler import kernel
from spillway.kernels.memory import array_at

# The columns of the table of runs: the addresses of hashes and index (kernels/order.py), the base, the
# shift and the buckets of the index, the rows [begin, end) to look into, and the rows of the run.
HASHES, FIRST, PRESENT, BASE, SHIFT, BUCKETS, BEGIN, END, ROWS = range(9)

Table = NDArray[np.int64]
Positions = NDArray[np.int32]

_U8 = np.empty(0, np.uint8)
_U16 = np.empty(0, np.uint16)
_U32 = np.empty(0, np.uint32)
_U64 = np.empty(0, np.uint64)
_I32 = np.empty(0, np.int32)


@kernel
def mark_hashes(bits: NDArray[np.uint64], shift: int, h: NDArray[np.uint32]) -> None:
    """Marks hashes in a bitmap of the hash domain, one bit for each `1 << shift` hashes."""
    for i in range(h.shape[0]):
        at = np.int64(h[i]) >> shift
        bits[at >> 6] |= np.uint64(1) << np.uint64(at & 63)


@kernel
def marked(bits: NDArray[np.uint64], shift: int, probe: NDArray[np.uint32]) -> Any:
    """Which of the hashes may be among the marked ones (positions, ascending)."""
    n = probe.shape[0]
    found = np.empty(n, np.int32)
    count = 0
    for i in range(n):
        at = np.int64(probe[i]) >> shift
        found[count] = i
        count += int((bits[at >> 6] >> np.uint64(at & 63)) & np.uint64(1))
    return found[:count].copy()


@kernel
def match_many(probe: NDArray[np.uint32], runs: Table, at: int, found: NDArray[np.int32]) -> Any:
    """Ranges of rows with the hash of a probing row, run by run from run `at` on.

    `probe` ascends. Fills the columns of `found`: probing row, run, first row, rows; returns how many,
    and the run to go on with. It stops before a run whose ranges might not fit.
    """
    n = probe.shape[0]
    likely = np.empty(n, np.int32)
    count = 0
    while at < runs.shape[0] and count + n <= found.shape[1]:
        begin, end = runs[at, BEGIN], runs[at, END]
        if begin < end:
            h = array_at(runs[at, HASHES], runs[at, ROWS], _U32)
            base, shift, buckets = runs[at, BASE], runs[at, SHIFT], runs[at, BUCKETS]
            first = array_at(runs[at, FIRST], buckets + 1, _I32)
            present = array_at(runs[at, PRESENT], buckets, _U64)
            fine = max(shift - 6, 0)
            some = 0
            low = np.searchsorted(probe, h[begin])
            high = np.searchsorted(probe, h[end - 1], side="right")
            for i in range(low, high):
                distance = np.int64(probe[i]) - base
                bit = np.uint64((distance >> fine) & 63)
                likely[some] = i
                some += int((present[distance >> shift] >> bit) & np.uint64(1))
            for c in range(some):
                x = probe[likely[c]]
                row = max(np.int64(first[(np.int64(x) - base) >> shift]), begin)
                while row < end and h[row] < x:
                    row += 1
                if row < end and h[row] == x:
                    begun = row
                    row += 1
                    while row < end and h[row] == x:
                        row += 1
                    found[0, count] = likely[c]
                    found[1, count] = at
                    found[2, count] = begun
                    found[3, count] = row - begun
                    count += 1
        at += 1
    return count, at


@kernel
def gather_words(addresses: Table, width: int, run: Positions, row: Positions) -> Any:
    """The values of rows of several runs, each of 1, 2, 4, 8 or 16 bytes, as bytes."""
    n = run.shape[0]
    found = np.empty(n * width, np.uint8)
    if width == 8:
        wide = found.view(np.uint64)
        for i in range(n):
            wide[i] = array_at(addresses[run[i]] + np.int64(row[i]) * 8, 1, _U64)[0]
    elif width == 4:
        half = found.view(np.uint32)
        for i in range(n):
            half[i] = array_at(addresses[run[i]] + np.int64(row[i]) * 4, 1, _U32)[0]
    elif width == 16:
        twice = found.view(np.uint64)
        for i in range(n):
            pair = array_at(addresses[run[i]] + np.int64(row[i]) * 16, 2, _U64)
            twice[2 * i] = pair[0]
            twice[2 * i + 1] = pair[1]
    elif width == 2:
        quarter = found.view(np.uint16)
        for i in range(n):
            quarter[i] = array_at(addresses[run[i]] + np.int64(row[i]) * 2, 1, _U16)[0]
    else:
        for i in range(n):
            found[i] = array_at(addresses[run[i]] + np.int64(row[i]), 1, _U8)[0]
    return found


@kernel
def gather_bits(addresses: Table, offsets: Table, run: Positions, row: Positions) -> Any:
    """The bits of rows of several runs, one byte each; a run without an address has ones."""
    n = run.shape[0]
    found = np.ones(n, np.uint8)
    for i in range(n):
        address = addresses[run[i]]
        if address:
            at = offsets[run[i]] + np.int64(row[i])
            byte = array_at(address + (at >> 3), 1, _U8)[0]
            found[i] = (byte >> np.uint8(at & 7)) & np.uint8(1)
    return found


@kernel
def gather_bytes(offsets: Table, data: Table, run: Positions, row: Positions) -> Any:
    """The byte strings of rows of several runs: 32-bit offsets, and the bytes."""
    n = run.shape[0]
    at = np.empty(n + 1, np.int32)
    at[0] = 0
    total = np.int64(0)
    for i in range(n):
        ends = array_at(offsets[run[i]] + np.int64(row[i]) * 4, 2, _I32)
        total += ends[1] - ends[0]
        at[i + 1] = total
    found = np.empty(total, np.uint8)
    for i in range(n):
        begin = np.int64(array_at(offsets[run[i]] + np.int64(row[i]) * 4, 1, _I32)[0])
        size = np.int64(at[i + 1]) - at[i]
        found[at[i] : at[i + 1]] = array_at(data[run[i]] + begin, size, _U8)
    return at, found


@kernel
def equal_bytes(mine: Any, offsets: Table, data: Table, run: Positions, row: Positions) -> Any:
    """Whether byte strings, as (offsets, bytes, rows), equal those of rows of several runs."""
    at, content, rows = mine
    n = run.shape[0]
    same = np.empty(n, np.bool_)
    for i in range(n):
        begin = np.int64(at[rows[i]])
        size = np.int64(at[rows[i] + 1]) - begin
        ends = array_at(offsets[run[i]] + np.int64(row[i]) * 4, 2, _I32)
        equal = size == np.int64(ends[1]) - np.int64(ends[0])
        if equal:
            theirs = array_at(data[run[i]] + np.int64(ends[0]), size, _U8)
            byte = np.int64(0)
            while equal and byte < size:
                equal = content[begin + byte] == theirs[byte]
                byte += 1
        same[i] = equal
    return same
