"""The measurements of a figure in one line, in the terms of its claim. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from spillway_lab.reproduce.flux.page import SHOWN
from spillway_lab.reproduce.terms import ALL_MEMORY

Measured = Mapping[str, Any]


def ours(document: Mapping[str, Any]) -> str:
    """What a figure's document says about its claim."""
    name = document["figure"]
    told = SHOWN[name].words if name in SHOWN else _OURS[name]
    return told(document["measured"])


def mb(number: float) -> str:
    """Bytes as megabytes."""
    return f"{number / 1e6:.2f}"


def _shares(measured: Measured) -> str:
    shares = measured["vs_all_memory"].items()
    told = (f"{share:.0%} with {name}" for name, share in shares if name != ALL_MEMORY)
    return f"of All-Mem's output, {', '.join(told)}"


def _memory(measured: Measured) -> str:
    over = max(measured["overshoot_bytes"].values())
    pushes = ", ".join(str(n) for name, n in measured["spills"].items() if name != ALL_MEMORY)
    return (
        f"at most {mb(over)} MB over the limit, a batch of input being "
        f"{mb(measured['batch_bytes'])} MB; {pushes} pushes"
    )


def _ratios(measured: Measured) -> str:
    less, more = list(measured["cleanup_rows"].values())[1:]
    return (
        f"{measured['output_ratio']:.2f} x the output; {less:,} rows of cleanup against {more:,}, "
        f"{measured['cleanup_ratio']:.1f} x fewer"
    )


def _ratio(measured: Measured) -> str:
    return f"{measured['output_ratio']:.3f} x the output"


def _thresholds(measured: Measured) -> str:
    shares = [share for name, share in measured["vs_all_memory"].items() if name != ALL_MEMORY]
    times = [ratio for name, ratio in measured["processing_ratio"].items() if name != ALL_MEMORY]
    return (
        f"between {min(shares):.1%} and {max(shares):.1%} of All-Mem's output; relocations: "
        f"{_each(measured['relocations'])}; {min(times):.2f} to {max(times):.2f} x the processing "
        "time of All-Mem"
    )


def _intervals(measured: Measured) -> str:
    difference = measured["output_difference"]
    return f"relocations: {_each(measured['relocations'])}; outputs differ by {difference:.1%}"


def _balance(measured: Measured) -> str:
    least = measured["least_balance"]
    told = (
        f"{mean:.2f} on average and {least[name]:.2f} at worst ({name})"
        for name, mean in measured["balance"].items()
    )
    return f"M_least/M_max is {'; '.join(told)}"


def _spills(measured: Measured) -> str:
    spills, moves = measured["spills"], measured["relocations"]
    return f"{_ratio(measured)}; spills: {_each(spills)}; relocations: {_each(moves)}"


def _cleanup(measured: Measured) -> str:
    seconds = (f"{name} {value:.2f}" for name, value in measured["slot_cleanup_s"].items())
    return (
        f"{_ratio(measured)}; seconds of cleanup in the slot with most: {', '.join(seconds)}, "
        f"{measured['cleanup_s_ratio']:.1f} x shorter, with {measured['cleanup_ratio']:.1f} x "
        "fewer rows"
    )


def _dip(measured: Measured) -> str:
    least = measured["least_output_ratio"]
    told = "never below it" if least is None else f"{least:.3f} x at worst"
    return (
        f"active-disk has {_ratio(measured)} of lazy-disk at the end; after its first forced spill "
        f"{told}, less in {measured['batches_below']} of {measured['batches_after_forcing']} batches"
    )


def _more(measured: Measured) -> str:
    before = measured["output_ratio_before"]
    return f"active-disk has {_ratio(measured)} of lazy-disk; in dcape-13 it was {before:.3f} x"


def _cost(measured: Measured) -> str:
    return (
        f"outputs differ by {measured['output_difference']:.1%} at most; five slots need "
        f"{measured['processing_ratio']:.2f} x the processing time of one"
    )


def _full(measured: Measured) -> str:
    told = (
        f"{name} never" if at is None else f"{name} in minute {at}"
        for name, at in measured["full_after_minutes"].items()
    )
    rows = measured["output_rows"]
    return f"full: {', '.join(told)}; M4 makes {rows['M4']:,} rows, M5 {rows['M5']:,}"


def _each(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} ({name})" for name, count in counts.items() if name != ALL_MEMORY)


_OURS: dict[str, Callable[[Measured], str]] = {
    "dcape-5": _shares,
    "dcape-6": _memory,
    "dcape-7": _ratios,
    "dcape-9": _thresholds,
    "dcape-10": _balance,
    "dcape-11": _spills,
    "dcape-12": _cleanup,
    "dcape-13": _dip,
    "dcape-14": _more,
    "dcape-tr-6": _cost,
    "dcape-tr-7": _full,
    "dcape-tr-12": _ratio,
    "dcape-tr-15": _intervals,
}
