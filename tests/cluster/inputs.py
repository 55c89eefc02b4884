"""The input of the cluster tests: three streams as files, one file per batch, and their join by pandas.

The streams differ in schema, in the names and in the types of their keys; keys are skewed, some are
NULL, and rows are repeated. Event time advances a minute per file, with rows up to two minutes behind.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import spillway as sw
from spillway.spark.api.join import Join

_START_US = 1_700_000_000_000_000
_MINUTE_US = 60_000_000
SCHEMAS = {
    "orders": "item bigint, ts timestamp, amount int",
    "prices": "ts timestamp, price double, ref int",
    "stock": "key bigint, place string, ts timestamp",
}
KEYS = {"orders": "item", "prices": "ref", "stock": "key"}
#: The result is flat, so that a row of Spark and one of pandas compare as tuples.
COLUMNS = ("item", "amount", "price", "place")


@dataclass(frozen=True)
class Input:
    """Files of three streams; `window_minutes` is the window of their join, None for no window."""

    root: str
    files: int
    rows: int
    keys: int
    seed: int
    window_minutes: int | None = None

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

    def join(self, spark: SparkSession) -> Join:
        """The streaming join, a file of each stream per batch."""
        frames = {
            stream: spark.readStream.schema(schema)
            .option("maxFilesPerTrigger", 1)
            .parquet(f"{self.root}/{stream}")
            for stream, schema in SCHEMAS.items()
        }
        join = sw.join(**frames).on(**KEYS)
        if self.window_minutes is not None:
            window = f"{self.window_minutes} minutes"
            join = join.within(window, time="ts", lateness="3 minutes")
        return join.select("orders.item", "orders.amount", "prices.price", "stock.place")

    def expected(self, files: int | None = None) -> Counter[tuple[object, ...]]:
        """The join of the first files, by pandas."""
        whole = None
        for stream, key in KEYS.items():
            rows = self._read(stream, files).astype({key: "int64"})
            rows = rows.rename(columns={key: "item", "ts": f"{stream}_ts"})
            whole = rows if whole is None else whole.merge(rows, on="item")
        assert whole is not None
        if self.window_minutes is not None:
            times = whole[[f"{stream}_ts" for stream in SCHEMAS]]
            span = times.max(axis=1) - times.min(axis=1)
            whole = whole[span < pd.Timedelta(minutes=self.window_minutes)]
        return _counted(whole)

    def rows_with_key(self) -> tuple[int, ...]:
        """Of each stream, the rows that can match something."""
        return tuple(len(self._read(stream)) for stream in SCHEMAS)

    def _read(self, stream: str, files: int | None = None) -> pd.DataFrame:
        paths = sorted(Path(self.root, stream).glob("*.parquet"))[:files]
        rows = pd.concat([pq.read_table(path).to_pandas() for path in paths])
        return rows.dropna(subset=[KEYS[stream]])

    def _table(self, stream: str, number: int, rng: np.random.Generator) -> pa.Table:
        fresh = self.rows - self.rows // 20
        item = rng.integers(0, self.keys, fresh)
        item[rng.random(fresh) < 0.02] = 0
        behind = rng.integers(0, 2 * _MINUTE_US, fresh)
        columns = {
            KEYS[stream]: pa.array(item, mask=rng.random(fresh) < 0.02),
            "ts": pa.array(_START_US + number * _MINUTE_US - behind, pa.timestamp("us", "UTC")),
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
    return _counted(pd.concat([pq.read_table(path).to_pandas() for path in paths]))


def batch_of(name: str) -> int:
    """The batch of a published file, from its name."""
    return int(name[1:].split("-", 1)[0])


def assert_same_rows(got: Counter[tuple[object, ...]], wanted: Counter[tuple[object, ...]]) -> None:
    """Equal as multisets; says what is missing and what is too much."""
    missing, extra = wanted - got, got - wanted
    assert wanted, "an empty join proves nothing"
    assert got == wanted, (
        f"{missing.total()} of {wanted.total()} rows are missing, {extra.total()} are too much: "
        f"{_few(missing)} / {_few(extra)}"
    )


def _few(rows: Counter[tuple[object, ...]]) -> Iterable[object]:
    return list(rows.items())[:3]


def _counted(rows: pd.DataFrame) -> Counter[tuple[object, ...]]:
    return Counter(zip(*(rows[column].tolist() for column in COLUMNS), strict=True))
