"""The streams of DCAPE, section 3.1: join values that come back at a given rate.

    k bigint, v bigint, payload string

After every `tuple_range` tuples of a stream each join value has been seen `join_rate` times more, so
that an n-way join gives ever more rows. With several join rates the partition groups are divided into
as many *classes*, with a rate each, and every class gets the same number of rows. With a skew the
groups are also divided into two halves, of which one gets `skew` rows for each of the other; they
change places every `skew_batches` batches (DCAPE, section 4). A class in a half is a *cell*.

A row's number decides its cell and its number among the rows of the cell, both in closed form. A cell
goes round its join values in a fixed order, a different one in each stream: row j has the value at
place j * odd modulo their number. The keys themselves come from a table, made once, in which a key is
listed under the cell that its hash falls into. All of it is native in Spark, and the same at every
replay.

Known limitation: the table is kept in Spark's cache until the session ends. A cell's number of join
values is rounded to a whole number, so a rate that does not divide a cell's rows is met nearly.
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
#: Multiples of it, modulo 1, are spread evenly: a stride through the values for every stream.
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class Dcape:
    """Streams a, b, c, ... of `rows` rows a batch each, or of a number for each stream.

    Example:
        >>> Dcape(tuple_range=30_000, join_rates=(4, 2, 1)).values
        (2500, 5000, 10000)
    """

    streams: int = 3
    rows: int | tuple[int, ...] = 2000
    tuple_range: int = 30_000
    join_rates: tuple[float, ...] = (3,)
    #: Partition groups, as many as the query has.
    groups: int = 120
    #: Group g is of class g modulo the classes, or each class is a range of neighbours.
    spread: str = "interleaved"
    #: Rows of the busy half of the groups for each row of the other; 1: no halves.
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
                f"{len(self.rows)} numbers of rows for {self.streams} streams",
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
                f"join_rates={self.join_rates!r} are not rates above 0",
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
                f"a join rate of {max(self.join_rates):g} is more than a tuple range of "
                f"{self.tuple_range} has rows for",
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
        """The number of join values of each cell, the classes of the first half first."""
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
        """The rows that the streams give in the batches `first` to `last`, both included."""
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
        """Numbers among which every cell finds its keys.

        A cell gets its share of them with the spread of a Poisson count. The margin over what it
        needs is five or more standard deviations at every size.
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
        # Rows come in patterns: `skew` rows of each class for the busy half, then one for the other.
        phase_rows, pattern = rows * self.skew_batches, (self.skew + 1) * classes
        phase, within = _div(value, phase_rows), F.pmod(value, F.lit(phase_rows))
        place, turn = F.pmod(within, F.lit(pattern)), _div(within, pattern)
        busy = place < self.skew * classes
        kind = F.pmod(place, F.lit(classes))
        half = F.when(busy, F.pmod(phase, F.lit(2))).otherwise(F.pmod(phase + 1, F.lit(2)))
        # The first half is the busy one in the phases 0, 2, 4, ...; the second in the others.
        was_busy = _div(phase + 1 - half, 2)
        of_phase = [self._rows_of_phase(phase_rows, one) for one in range(classes)]
        before = was_busy * _one_of([n for n, _ in of_phase], kind)
        before += (phase - was_busy) * _one_of([n for _, n in of_phase], kind)
        now = F.when(busy, turn * self.skew + _div(place, classes)).otherwise(turn)
        return half * classes + kind, before + now

    def _rows_of_phase(self, phase_rows: int, kind: int) -> tuple[int, int]:
        """How many rows of a class a phase has for the busy half, and for the other."""
        classes = len(self.join_rates)
        turns, rest = divmod(phase_rows, (self.skew + 1) * classes)
        more = max(0, -(-(rest - kind) // classes))
        return turns * self.skew + min(more, self.skew), turns + max(0, more - self.skew)


def _stride(count: int, number: int) -> int:
    """A step that visits all of `count` places, for one of the streams."""
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
        f"{name}={value!r} is not a whole number of at least {least}{upto}",
        hint=f"for example {name}={getattr(Dcape, name)}",
    )
