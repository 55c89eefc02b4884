"""The streams of DCAPE, section 3.1: join values that repeat at a given rate.

    k bigint, v bigint, payload string

Every `tuple_range` tuples of a stream repeat each join value `join_rate` times, so an n-way join
produces ever more rows. Several join rates divide the partition groups into *classes* with equally
many rows. A skew also halves the groups: one half gets `skew` rows for each row of the other, and
they swap every `skew_batches` batches (DCAPE, section 4). A class within a half is a *cell*.

A row's number gives its cell and its number j in the cell, in closed form. A cell visits its join
values in a fixed order per stream: row j has the value at place j * odd modulo their count. A table
lists the keys of each cell by hash. Spark computes all of it, the same at every replay.

Known limitation: the table stays in Spark's cache until the session ends. A rate that does not divide
a cell's rows is approximate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from string import ascii_lowercase

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from spillway.errors import SettingsError
from spillway_lab.workloads.rate import Rate

SPREADS = ("interleaved", "contiguous")
_MOST_STREAMS = len(ascii_lowercase)
#: Its multiples modulo 1 are spread evenly; they give each stream its stride through the values.
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class Dcape:
    """Streams a, b, c, ... of `rows` rows a batch: one number for all, or one for each stream.

    Example:
        >>> Dcape(tuple_range=30_000, join_rates=(4, 2, 1)).values
        (2500, 5000, 10000)
    """

    streams: int = 3
    rows: int | tuple[int, ...] = 2000
    tuple_range: int = 30_000
    join_rates: tuple[float, ...] = (3,)
    #: Partition groups; must equal those of the query.
    groups: int = 120
    #: "interleaved": group g has class g modulo the classes; "contiguous": classes are ranges of groups.
    spread: str = "interleaved"
    #: Rows of the busy half of the groups per row of the other half; 1: no halves.
    skew: int = 1
    skew_batches: int = 10
    #: Characters of the payload.
    payload: int = 40

    def __post_init__(self) -> None:
        _whole("streams", self.streams, 2, _MOST_STREAMS)
        for rows in self.rows if isinstance(self.rows, tuple) else (self.rows,):
            _whole("rows", rows, 1)
        for name, least in (("tuple_range", 1), ("groups", 1), ("skew", 1), ("skew_batches", 1)):
            _whole(name, getattr(self, name), least)
        _whole("payload", self.payload, 0)
        self._check_rows()
        self._check_rates()

    def _check_rows(self) -> None:
        if isinstance(self.rows, tuple) and len(self.rows) != self.streams:
            raise SettingsError(
                f"rows has {len(self.rows)} numbers, but there are {self.streams} streams",
                hint="give one number for all streams, or one for each",
            )

    def _check_rates(self) -> None:
        if self.spread not in SPREADS:
            raise SettingsError(
                f"spread={self.spread!r} is not one of {', '.join(map(repr, SPREADS))}",
                hint=f"for example spread={SPREADS[0]!r}",
            )
        if not self.join_rates or min(self.join_rates) <= 0:
            raise SettingsError(
                f"join_rates={self.join_rates!r} must be positive rates",
                hint="for example join_rates=(4, 2, 1)",
            )
        if not all(self._cell_groups()):
            raise SettingsError(
                f"{self.groups} groups are too few for {len(self.join_rates)} join rates"
                + (" in two halves" if self.halves > 1 else ""),
                hint="raise groups",
            )
        if min(self.values) < 1:
            raise SettingsError(
                f"a join rate of {max(self.join_rates):g} needs a tuple range of more than "
                f"{self.tuple_range} rows",
                hint="raise tuple_range, or lower the rate",
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the streams."""
        return tuple(ascii_lowercase[: self.streams])

    @property
    def halves(self) -> int:
        """2 if there is a skew, else 1."""
        return 1 if self.skew == 1 else 2

    @property
    def values(self) -> tuple[int, ...]:
        """The number of join values of each cell; the classes of the first half come first."""
        rows = self.tuple_range / len(self.join_rates) / self.halves
        return tuple(round(rows / rate) for rate in self.join_rates) * self.halves

    def cell_of(self, group: int) -> int:
        """The cell of a group.

        Example:
            >>> [Dcape(join_rates=(4, 2, 1), groups=6).cell_of(group) for group in range(6)]
            [0, 1, 2, 0, 1, 2]
        """
        classes = len(self.join_rates)
        half = group * self.halves // self.groups
        first = -(-half * self.groups // self.halves)
        end = -(-(half + 1) * self.groups // self.halves)
        within = group - first
        if self.spread == "contiguous":
            return half * classes + within * classes // (end - first)
        return half * classes + within % classes

    def stream(self, spark: SparkSession) -> dict[str, DataFrame]:
        """All streams, by name."""
        return self._all(spark, lambda rate: rate.stream(spark))

    def batch(self, spark: SparkSession, first: int, last: int) -> dict[str, DataFrame]:
        """The rows of batches `first` to `last`, inclusive."""
        return self._all(spark, lambda rate: rate.batch(spark, first, last))

    def keys(self, spark: SparkSession) -> DataFrame:
        """The table of join values: `cell`, `place`, `k`."""
        cells = F.array(*(F.lit(self.cell_of(group)) for group in range(self.groups)))
        group = F.shiftright(F.shiftrightunsigned(F.xxhash64("k"), 32) * self.groups, 32)
        numbered = (
            spark.range(self._candidates()).select(F.col("id").alias("k"))
            .withColumn("cell", F.element_at(cells, (group + 1).cast("int")))
            .withColumn("place", F.row_number().over(Window.partitionBy("cell").orderBy("k")) - 1)
        )  # fmt: skip
        return numbered.where(F.col("place") < _by_cell(self.values))

    def _candidates(self) -> int:
        """How many candidate keys to hash, so that every cell finds enough.

        A cell's share of them varies like a Poisson count. The margin is at least five standard
        deviations at every size.
        """
        shares = [count / self.groups for count in self._cell_groups()]
        return math.ceil(
            max(
                (need + 6 * math.sqrt(need) + 20) / share
                for need, share in zip(self.values, shares, strict=True)
            )
        )

    def _cell_groups(self) -> list[int]:
        cells = [self.cell_of(group) for group in range(self.groups)]
        return [cells.count(cell) for cell in range(len(self.values))]

    def _all(
        self, spark: SparkSession, source: Callable[[Rate], DataFrame]
    ) -> dict[str, DataFrame]:
        keys = F.broadcast(self.keys(spark).cache())
        rows = self.rows if isinstance(self.rows, tuple) else (self.rows,) * self.streams
        return {
            name: self._keyed(source(Rate(rows[number])), rows[number], number, keys)
            for number, name in enumerate(self.names)
        }

    def _keyed(self, source: DataFrame, rows: int, number: int, keys: DataFrame) -> DataFrame:
        value = F.col("value")
        cell, at = self._in_cell(value, rows)
        strides = [_stride(count, number) for count in self.values]
        count = _by_cell(self.values)
        place = F.pmod(F.pmod(F.col("at"), count) * _by_cell(strides), count).cast("int")
        text = F.rpad(value.cast("string"), self.payload, "the quick brown fox jumps over ")
        return (
            source.select(value, cell.cast("int").alias("cell"), at.alias("at"))
            .withColumn("place", place)
            .join(keys, ["cell", "place"])
            .select("k", value.alias("v"), text.alias("payload"))
        )

    def _in_cell(self, value: Column, rows: int) -> tuple[Column, Column]:
        """The cell of a row, and its number among the rows of that cell."""
        classes = len(self.join_rates)
        if self.halves == 1:
            return F.pmod(value, F.lit(classes)), _div(value, classes)
        # A pattern of rows repeats: `skew` rows of each class for the busy half, then one for the other.
        phase_rows, pattern = rows * self.skew_batches, (self.skew + 1) * classes
        phase, within = _div(value, phase_rows), F.pmod(value, F.lit(phase_rows))
        place, turn = F.pmod(within, F.lit(pattern)), _div(within, pattern)
        busy = place < self.skew * classes
        kind = F.pmod(place, F.lit(classes))
        half = F.when(busy, F.pmod(phase, F.lit(2))).otherwise(F.pmod(phase + 1, F.lit(2)))
        # The first half is busy in the phases 0, 2, 4, ...; the second half in the others.
        was_busy = _div(phase + 1 - half, 2)
        of_phase = [self._rows_of_phase(phase_rows, one) for one in range(classes)]
        before = was_busy * _one_of([n for n, _ in of_phase], kind)
        before += (phase - was_busy) * _one_of([n for _, n in of_phase], kind)
        now = F.when(busy, turn * self.skew + _div(place, classes)).otherwise(turn)
        return half * classes + kind, before + now

    def _rows_of_phase(self, phase_rows: int, kind: int) -> tuple[int, int]:
        """The rows of a class in one phase: those of the busy half, and of the other."""
        classes = len(self.join_rates)
        turns, rest = divmod(phase_rows, (self.skew + 1) * classes)
        more = max(0, -(-(rest - kind) // classes))
        return turns * self.skew + min(more, self.skew), turns + max(0, more - self.skew)


def _stride(count: int, number: int) -> int:
    """The stride of a stream: coprime to `count`, so that it visits all places."""
    step = max(1, int(count * ((number + 1) * _GOLDEN % 1)))
    while math.gcd(step, count) != 1:
        step += 1
    return step


def _by_cell(numbers: Sequence[int]) -> Column:
    return _one_of(numbers, F.col("cell"))


def _one_of(numbers: Sequence[int], choice: Column) -> Column:
    if len(set(numbers)) == 1:
        return F.lit(numbers[0])
    return F.element_at(F.array(*map(F.lit, numbers)), (choice + 1).cast("int"))


def _div(value: Column, by: int) -> Column:
    return F.floor(value / F.lit(by)).cast("bigint")


def _whole(name: str, value: int, least: int, most: int | None = None) -> None:
    if isinstance(value, int) and least <= value and (most is None or value <= most):
        return
    upto = f" and at most {most}" if most is not None else ""
    raise SettingsError(
        f"{name}={value!r} must be a whole number of at least {least}{upto}",
        hint=f"for example {name}={getattr(Dcape, name)}",
    )
