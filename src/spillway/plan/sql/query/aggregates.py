"""Aggregate functions of a query: which function of the public API each one is, and its argument."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sqlglot import TokenType

from spillway.plan.sql.query.scope import Scope, calls
from spillway.plan.sql.query.text import Piece, refused
from spillway.plan.sql.query.values import Value

#: Spark's names, and the function of the API.
_FUNCTIONS = {
    "count": "count", "count_if": "count",
    "sum": "sum", "min": "min", "max": "max",
    "avg": "avg", "mean": "avg",
    "stddev": "stddev", "stddev_samp": "stddev", "std": "stddev",
    "variance": "variance", "var_samp": "variance",
    "first": "first", "first_value": "first", "any_value": "first",
    "last": "last", "last_value": "last",
    "approx_percentile": "approx_quantile", "percentile_approx": "approx_quantile",
    "approx_count_distinct": "approx_count_distinct",
    "bool_and": "bool_and", "every": "bool_and",
    "bool_or": "bool_or", "some": "bool_or", "any": "bool_or",
    "min_by": "min_by", "max_by": "max_by",
}  # fmt: skip
#: Aggregates of Spark that the API does not have, and what to write instead.
_OTHERS = {
    **dict.fromkeys(("stddev_pop", "var_pop"), "use stddev or variance, which are of a sample"),
    **dict.fromkeys(("percentile", "median"), "use approx_percentile(x, 0.5)"),
    **dict.fromkeys(
        ("collect_list", "collect_set", "array_agg", "listagg", "string_agg"),
        "write the rows themselves: a list of all rows of a key grows without end",
    ),
    **dict.fromkeys(
        ("corr", "covar_samp", "covar_pop", "skewness", "kurtosis", "mode", "regr_slope"),
        "compute it from sums: sum(x), sum(y), sum(x * y), count(*)",
    ),
}
#: Functions whose second argument orders rows.
_WITH_ORDER = ("min_by", "max_by")
#: Functions whose second argument is a fraction.
_WITH_FRACTION = ("approx_quantile", "approx_count_distinct")
AGGREGATES = (*_FUNCTIONS, *_OTHERS)


@dataclass(frozen=True)
class Aggregate:
    """One aggregate of a query."""

    function: str
    #: None: count rows.
    of: Value | None
    #: What FILTER (WHERE ...) asks for, or count_if.
    only: Value | None
    fraction: float | None
    place: Piece
    #: The value that orders rows, of min_by and max_by.
    by: Value | None = None

    def same(self, other: Aggregate) -> bool:
        """Whether both give the same value."""
        return (
            self.function == other.function
            and self.fraction == other.fraction
            and _signature(self.of) == _signature(other.of)
            and _signature(self.by) == _signature(other.by)
            and _signature(self.only) == _signature(other.only)
        )

    def argument(self, text: Callable[[Value], str]) -> str:
        """The argument as SQL; NULL where the filter does not hold."""
        assert self.of is not None
        return self._where_it_holds(self.of, text)

    def order(self, text: Callable[[Value], str]) -> str:
        """What orders rows, as SQL; NULL where the filter does not hold."""
        assert self.by is not None
        return self._where_it_holds(self.by, text)

    def _where_it_holds(self, value: Value, text: Callable[[Value], str]) -> str:
        if self.only is None:
            return text(value)
        return f"CASE WHEN {text(self.only)} THEN {text(value)} END"


def has_aggregate(piece: Piece) -> bool:
    """Whether an expression has an aggregate."""
    return any(True for _ in calls(piece, AGGREGATES))


def aggregates_in(piece: Piece, scope: Scope) -> Iterator[tuple[int, int, Aggregate]]:
    """The aggregates of an expression, each with its characters."""
    for at, closes in calls(piece, AGGREGATES):
        arguments, end = piece.part(at + 2, closes), closes
        only = None
        if piece.words(end + 1, "filter", "("):
            closing = piece.closing(end + 2)
            if not piece.words(end + 3, "where"):
                where = piece.part(end + 1, closing + 1)
                raise refused(where, "FILTER needs WHERE", "write FILTER (WHERE price > 1)")
            only, end = scope.value(piece.part(end + 4, closing)), closing
        whole = piece.part(at, end + 1)
        made = _aggregate(str(piece.tokens[at].text).lower(), arguments, only, scope, whole)
        yield whole.start_at - piece.start_at, whole.end_at - piece.start_at, made


def _aggregate(
    name: str, arguments: Piece, only: Value | None, scope: Scope, whole: Piece
) -> Aggregate:
    if name in _OTHERS:
        raise refused(whole, f"the aggregate {name} is not supported", _OTHERS[name])
    function = _FUNCTIONS[name]
    if arguments.words(0, "distinct"):
        arguments = arguments.part(1, len(arguments))
        function = _of_distinct(name, arguments, whole)
    given = arguments.split(",") if len(arguments) else []
    for one in given:
        for at, end in calls(one, AGGREGATES):
            raise refused(one.part(at, end + 1), "an aggregate is inside another", "use a subquery")
    fraction = None
    if function in _WITH_FRACTION and len(given) == 2:
        fraction = _fraction(given.pop(), whole)
    _check_arguments(name, function, given, fraction, whole)
    if name == "count" and given[0].tokens[0].token_type is TokenType.STAR:
        # Rows that a filter keeps are values of a constant.
        of = None if only is None else Value(("1",), whole)
        return Aggregate(function, of, only, None, whole)
    values = [scope.value(one) for one in given]
    if name == "count_if":
        both = values[0]
        if only is not None:
            both = Value((*both.inner, " AND ", *only.inner), whole)
        return Aggregate(function, Value(("1",), whole), both, None, whole)
    return Aggregate(function, values[0], only, fraction, whole, *values[1:])


def _check_arguments(
    name: str, function: str, given: list[Piece], fraction: float | None, whole: Piece
) -> None:
    """Rejects a wrong number of arguments."""
    takes, example, count = "one argument", "price", 1
    if function in _WITH_ORDER:
        takes, example, count = "two arguments", "price, ts", 2
    if function == "approx_quantile":
        takes, example = "a column and a fraction", "price, 0.5"
    if len(given) != count or (function == "approx_quantile" and fraction is None):
        raise refused(whole, f"{name} takes {takes}, not {len(given)}", f"write {name}({example})")


def _of_distinct(name: str, arguments: Piece, whole: Piece) -> str:
    """The function of different values."""
    if name in ("min", "max"):
        return name
    if name == "count" and len(arguments.split(",")) == 1:
        return "count_distinct"
    inner = arguments.text
    raise refused(
        whole,
        f"{name}(DISTINCT ...) is not supported",
        f"aggregate a subquery: {name}({inner}) FROM (SELECT DISTINCT <keys>, {inner} FROM ...)",
    )


def _fraction(given: Piece, whole: Piece) -> float:
    hint = f"write {whole.tokens[0].text}(price, 0.5)"
    try:
        found = float(given.text)
    except ValueError:
        raise refused(given, f"{given.text} is not a fraction", hint) from None
    if not 0 <= found <= 1:
        raise refused(given, f"{given.text} is not a fraction from 0 to 1", hint)
    return found


def _signature(value: Value | None) -> object:
    return None if value is None else value.signature
