"""Any text is planned or refused with a place; nothing else happens."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import settings as example_settings
from hypothesis import strategies as st

from spillway.errors import PlanError
from spillway.plan.sql.query.catalog import Catalog, Registered, relations_of
from spillway.plan.sql.query.clauses import read
from spillway.plan.sql.query.explaining import explained
from spillway.plan.sql.query.planning import plan
from spillway.plan.sql.query.text import Text
from tier import examples

COLUMNS = {"k": "bigint", "j": "string", "x": "double", "ts": "timestamp"}
CATALOG = {name: Registered(COLUMNS) for name in "abc"}
TEXTS = (
    """EXPLAIN WITH l AS (SELECT k, x + 1 AS y, ts FROM a WHERE x < 7)
       SELECT /*+ LATENESS('1 hour'), PLAN('auto') */ l.y, b.*, `c`.x AS z FROM l JOIN b ON l.k = b.k
         AND b.ts BETWEEN l.ts AND l.ts + INTERVAL 10 SECONDS LEFT JOIN c USING (k)
       WHERE NOT l.y <> c.x""",
    """SELECT j, window.start AS s, sum(x * 2) / count(*) mean, count(x) FILTER (WHERE k > 1),
         max_by(x, k)
       FROM (SELECT * FROM a UNION ALL SELECT * FROM b) u GROUP BY 1, window(ts, '5 minutes', '1 minute')
       HAVING count(*) > 3 OR min(x) < 2 AND j IN ('a', 'b')""",
    "SELECT DISTINCT a.j, CASE WHEN a.k % 2 = 1 THEN 'odd' END AS odd FROM a, b WHERE lower(a.j) = b.j",
)
WORDS = sorted({token.text for text in TEXTS for token in Text.of(text).tokens})


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A query with some tokens left out, doubled, exchanged or replaced."""
    whole = draw(st.sampled_from(TEXTS))
    parts = [whole[token.start : token.end + 1] for token in Text.of(whole).tokens]
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(parts) - 1)))
        what = draw(st.sampled_from(["leave out", "double", "replace", "insert", "cut"]))
        if what == "leave out":
            parts[at : at + 1] = []
        elif what == "double":
            parts[at:at] = parts[at : at + 3]
        elif what == "replace":
            parts[at : at + 1] = [draw(st.sampled_from(WORDS))]
        elif what == "insert":
            parts.insert(at, draw(st.sampled_from(["(", ")", ",", "'", "=", "*", *WORDS])))
        else:
            parts = parts[: at + 1]
    return " ".join(parts)


@example_settings(max_examples=examples(1000))
@given(texts())
def test_text_is_planned_or_refused(text: str) -> None:
    with contextlib.suppress(PlanError):
        statement = read(text)
        names = [name.lower() for name, _ in relations_of(statement)]
        known = {name: CATALOG.get(name, Registered(COLUMNS)) for name in names}
        assert explained(plan(statement, Catalog(known)))


@example_settings(max_examples=examples(200))
@given(st.text(alphabet="SELECTFROMabc.*,()'\"`/*+-= \n\t;$é", max_size=40))
def test_any_characters_are_planned_or_refused(text: str) -> None:
    with contextlib.suppress(PlanError):
        read(text)
