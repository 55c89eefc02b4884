"""Conditions as text that can be read in one way only."""

from __future__ import annotations

import pytest

from spillway.plan.sql.expression import parse
from spillway.plan.sql.written import written


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a.x + b.x * 2 < -a.y", "((`a`.`x` + (`b`.`x` * 2)) < (-(`a`.`y`)))"),
        ("not a.q and b.q or a.p", "(((NOT `a`.`q`) AND `b`.`q`) OR `a`.`p`)"),
        ("a.x not between 1 and b.x % 3", "(NOT (`a`.`x` BETWEEN 1 AND (`b`.`x` % 3)))"),
        ("a.x in (-1, null, 3L)", "(`a`.`x` IN (-1, NULL, 3L))"),
        ("a.x is not null != true", "((`a`.`x` IS NOT NULL) != TRUE)"),
        ("nvl(a.`o``d`, 0.50) > 1e3", "(coalesce(`a`.`o``d`, 0.50) > 1000.0D)"),
        (r"a.s = 'it\'s \\ x'", r"(`a`.`s` = 'it\'s \\ x')"),
        (
            "a.t - interval 3 hours > timestamp'2024-01-01'",
            "((`a`.`t` - INTERVAL '3' HOUR) > TIMESTAMP_LTZ'2024-01-01')",
        ),
    ],
)
def test_everything_that_binds_is_in_parentheses(text: str, wanted: str) -> None:
    assert written(parse(text)) == wanted
    assert written(parse(wanted.replace("TIMESTAMP_LTZ", "TIMESTAMP"))) == wanted
