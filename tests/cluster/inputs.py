"""The input of the cluster tests: three streams as files, one file per batch, and their join by pandas.

The streams differ in schema, in the names and in the types of their keys; keys are skewed, some are
NULL, and rows are repeated. Event time advances a minute per file, with rows up to two minutes behind.
On request some rows have a NULL time, and some are far behind. Which of those are late follows from the
files of each batch (`Input.admitted`): one of each stream, or what Spark's checkpoint says
(`Input.read_by`).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from batches import batches_of_files
from pyspark.sql import DataFrame, SparkSession

import spillway as sw
from spillway.spark.api.join import Join

_START_US = 1_700_000_000_000_000
_MINUTE_US = 60_000_000
#: How far behind the slowest stream a row may be, in queries with a window; and how far rows that are
#: made to be late are.
LATENESS, FAR_BEHIND_MINUTES = "3 minutes", 12
SCHEMAS = {
    "orders": "item bigint, ts timestamp, amount int",
    "prices": "ts timestamp, price double, ref int",
    "stock": "key bigint, place string, ts timestamp",
}
KEYS = {"orders": "item", "prices": "ref", "stock": "key"}
#: The result has every column of every stream, the key once. It is flat, so that a row of Spark and one
#: of pandas compare as tuples.
SELECTED = {
    "orders": ("orders.item", "orders.amount", "orders.ts AS orders_ts"),
    "prices": ("prices.price", "prices.ts AS prices_ts"),
    "stock": ("stock.place", "stock.ts AS stock_ts"),
}


@dataclass(frozen=True)
class Admitted:
    """The rows that a query takes, with the number of their batch, and what it counts of each stream."""

    rows: dict[str, pd.DataFrame]
    #: Rows without NULL, with late ones; late rows; rows with a NULL key or time.
    rows_in: tuple[int, ...]
    rows_late: tuple[int, ...]
    rows_null: tuple[int, ...]
    #: The rows with a NULL key or time that are not late, and the last watermark.
    apart: dict[str, pd.DataFrame]
    watermark: pd.Timestamp


@dataclass(frozen=True)
class Input:
    """Files of three streams; `window_minutes` is the window of their join, None for no window."""

    root: str
    files: int
    rows: int
    keys: int
    seed: int
    window_minutes: int | None = None
    #: Fractions of the rows that may be far behind, and that have a NULL time.
    behind: float = 0.0
    null_times: float = 0.0
    #: Of each stream, the batch of every file; files that are not named have one of their own.
    batch_of: dict[str, list[int]] = field(default_factory=dict)

    def read_by(self, checkpoint: Path) -> Input:
        """The same input, in the batches in which the query on a checkpoint of Spark has read it."""
        known = batches_of_files(checkpoint)
        folders = {name: Path(self.root, name) for name in SCHEMAS}
        read = {name: at for name, at in folders.items() if any(p.parent == at for p in known)}
        return replace(
            self,
            batch_of={
                name: [known[at / f"{number:04d}.parquet"] for number in range(self.files)]
                for name, at in read.items()
            },
        )

    def write(self) -> None:
        """Writes the files, with times of modification in the order of their numbers."""
        rng = np.random.default_rng(self.seed)
        for stream in SCHEMAS:
            folder = Path(self.root, stream)
            folder.mkdir(parents=True)
            for number in range(self.files):
                path = folder / f"{number:04d}.parquet"
                # An executor that starts while others die may not find its library of snappy.
                pq.write_table(self._table(stream, number, rng), path, compression="none")
                os.utime(path, (_START_US / 1e6 + number,) * 2)

    def stream(self, spark: SparkSession, name: str) -> DataFrame:
        """One stream, a file per batch."""
        reader = spark.readStream.schema(SCHEMAS[name]).option("maxFilesPerTrigger", 1)
        return reader.parquet(f"{self.root}/{name}")

    def join(self, spark: SparkSession, streams: Sequence[str] = tuple(SCHEMAS)) -> Join:
        """The streaming join of some streams, with flat results."""
        join = sw.join(**{name: self.stream(spark, name) for name in streams})
        join = join.on(**{name: KEYS[name] for name in streams})
        if self.window_minutes is not None:
            join = join.within(self.window, time="ts", lateness=LATENESS)
        return join.select(*(column for name in streams for column in SELECTED[name]))

    @property
    def window(self) -> str:
        """The window as a setting."""
        return f"{self.window_minutes} minutes"

    def expected(
        self, files: int | None = None, streams: Sequence[str] = tuple(SCHEMAS)
    ) -> Counter[tuple[object, ...]]:
        """The join of the first files, by pandas."""
        return counted(self.joined(streams, files), columns_of(streams))

    def joined(
        self, streams: Sequence[str] = tuple(SCHEMAS), files: int | None = None
    ) -> pd.DataFrame:
        """The rows of the join of some streams."""
        whole = None
        taken = self.admitted(streams, timed=self.window_minutes is not None, files=files).rows
        for name, found in taken.items():
            rows = found.astype({KEYS[name]: "int64"}).drop(columns="batch")
            rows = rows.rename(columns={KEYS[name]: "item", "ts": f"{name}_ts"})
            whole = rows if whole is None else whole.merge(rows, on="item")
        assert whole is not None
        return whole if self.window_minutes is None else self.within(whole, streams)

    def within(self, whole: pd.DataFrame, streams: Sequence[str]) -> pd.DataFrame:
        """The combinations whose times are within the window."""
        times = whole[[f"{name}_ts" for name in streams]]
        span = times.max(axis=1) - times.min(axis=1)
        return whole[span < pd.Timedelta(minutes=self.window_minutes or 0)]

    def rows_with_key(self) -> tuple[int, ...]:
        """Of each stream, the rows that can match something."""
        return self.admitted(timed=False).rows_in

    def admitted(
        self,
        streams: Sequence[str] = tuple(SCHEMAS),
        *,
        timed: bool,
        null_keys: bool = False,
        files: int | None = None,
    ) -> Admitted:
        """What a query takes of the first files: with a time, late rows are dropped.

        A row is late if it is before the watermark of the batches before its own.
        """
        taken: dict[str, list[pd.DataFrame]] = {name: [] for name in streams}
        apart: dict[str, list[pd.DataFrame]] = {name: [] for name in streams}
        counts = {name: np.zeros(3, np.int64) for name in streams}
        newest = dict.fromkeys(streams, pd.NaT)
        watermark = pd.NaT
        batches = [self._batches(name, self.files if files is None else files) for name in streams]
        for batch in range(max(map(max, batches)) + 1):
            for name, of_file in zip(streams, batches, strict=True):
                some = [number for number, at in enumerate(of_file) if at == batch]
                if not some:
                    continue
                rows = pd.concat([self._read(name, number) for number in some]).assign(batch=batch)
                null = rows["ts"].isna() & timed
                null |= rows[KEYS[name]].isna() & (not null_keys)
                late = ~null & (rows["ts"] < watermark) & timed
                taken[name].append(rows[~null & ~late])
                apart[name].append(rows[null & ~(rows["ts"] < watermark)])
                counts[name] += ((~null).sum(), late.sum(), null.sum())
                newest[name] = pd.Series([newest[name], rows["ts"][~null].max()]).max()
            bound = pd.Series(newest).min(skipna=False) - pd.Timedelta(LATENESS)
            watermark = pd.Series([watermark, bound]).max()
        frames = {name: pd.concat(parts) for name, parts in taken.items()}
        rows_in, late, null = zip(*(map(int, counts[name]) for name in streams), strict=True)
        alone = {name: pd.concat(parts) for name, parts in apart.items()}
        return Admitted(frames, rows_in, late, null, alone, watermark)

    def _batches(self, stream: str, files: int) -> list[int]:
        """The batch of each of the first files of a stream."""
        return self.batch_of.get(stream, list(range(self.files)))[:files]

    def _read(self, stream: str, number: int) -> pd.DataFrame:
        path = Path(self.root, stream, f"{number:04d}.parquet")
        rows = pq.read_table(path).to_pandas()
        return rows.assign(ts=rows["ts"].dt.tz_convert(None))

    def _table(self, stream: str, number: int, rng: np.random.Generator) -> pa.Table:
        fresh = self.rows - self.rows // 20
        item = rng.integers(0, self.keys, fresh)
        item[rng.random(fresh) < 0.02] = 0
        behind = rng.integers(0, 2 * _MINUTE_US, fresh)
        far = rng.random(fresh) < self.behind
        behind[far] = rng.integers(0, FAR_BEHIND_MINUTES * _MINUTE_US, far.sum())
        untimed = rng.random(fresh) < self.null_times
        times = _START_US + number * _MINUTE_US - behind
        columns = {
            KEYS[stream]: pa.array(item, mask=rng.random(fresh) < 0.02),
            "ts": pa.array(times, pa.timestamp("us", "UTC"), mask=untimed),
            "amount": pa.array(rng.integers(0, 10, fresh), pa.int32()),
            "price": pa.array(rng.integers(0, 100, fresh) / 4),
            "place": pa.array([f"shelf {n}" for n in rng.integers(0, 30, fresh)]),
        }
        if stream == "prices":
            columns["ref"] = columns["ref"].cast(pa.int32())
        names = [column.split()[0] for column in SCHEMAS[stream].split(", ")]
        table = pa.table({name: columns[name] for name in names})
        return pa.concat_tables([table, table.slice(0, self.rows // 20)])


def written(out: Path, last_batch: int | None = None) -> Counter[tuple[object, ...]]:
    """The rows in the files of a parquet sink, up to a batch."""
    paths = sorted(out.glob("b*.parquet"))
    if last_batch is not None:
        paths = [path for path in paths if batch_of(path.name) <= last_batch]
    rows = pd.concat([pq.read_table(path).to_pandas() for path in paths])
    return counted(rows, columns_of(SCHEMAS))


def batch_of(name: str) -> int:
    """The batch of a published file, from its name."""
    return int(name[1:].split("-", 1)[0])


def assert_same_rows(
    got: Counter[tuple[object, ...]], wanted: Counter[tuple[object, ...]], times: int = 1
) -> None:
    """Equal as multisets; says what is missing and what is too much.

    A sink that may get a batch `times` times may have each row as often.
    """
    most = Counter({row: times * count for row, count in wanted.items()})
    missing, extra = wanted - got, got - most
    assert wanted, "an empty result proves nothing"
    assert not missing and not extra, (  # noqa: PT018 - one message for both
        f"{missing.total()} of {wanted.total()} rows are missing, {extra.total()} are too much: "
        f"{_few(missing)} / {_few(extra)}"
    )


def _few(rows: Counter[tuple[object, ...]]) -> Iterable[object]:
    return list(rows.items())[:3]


def columns_of(streams: Iterable[str]) -> list[str]:
    """The columns of the join of some streams."""
    return [column.split()[-1].split(".")[-1] for name in streams for column in SELECTED[name]]


def counted(rows: pd.DataFrame, columns: Sequence[str]) -> Counter[tuple[object, ...]]:
    """The rows as a multiset of tuples, whatever types pandas has given them."""
    return Counter(zip(*(plain(rows[column]) for column in columns), strict=True))


def plain(values: pd.Series) -> list[object]:
    """The values with None for NULL, and microseconds for times."""
    null = values.isna().tolist()
    if pd.api.types.is_datetime64_any_dtype(values):
        if values.dt.tz is not None:
            values = values.dt.tz_convert(None)
        values = values.astype("datetime64[us]").astype("int64")
    pairs = zip(values.tolist(), null, strict=True)
    return [None if missing else value for value, missing in pairs]
