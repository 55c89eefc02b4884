"""Shapes of joins: text, names of states, and what is refused."""

from __future__ import annotations

import pytest

from spillway.errors import QueryError
from spillway.plan.shape import Shape, binary_shapes, flat, parse


def test_equal_plans_are_equal_values_whatever_order_they_are_written_in() -> None:
    assert parse("((D C) (B A))") == parse("((A B) (C D))")
    assert str(parse("(C (B A))")) == "((A B) C)"
    assert str(flat(["C", "A", "B"])) == "(A B C)"


def test_every_shape_reads_back_from_its_text() -> None:
    for shape in (*binary_shapes("ABCDE"), flat("ABCDE"), parse("((A B C) (D E))")):
        assert parse(str(shape)) == shape


@pytest.mark.parametrize(("streams", "count"), [(2, 1), (3, 3), (4, 15), (5, 105)])
def test_there_are_as_many_binary_trees_as_there_should_be(streams: int, count: int) -> None:
    found = [str(shape) for shape in binary_shapes("ABCDE"[:streams])]
    assert len(found) == len(set(found)) == count


def test_states_are_named_by_their_streams_and_smaller_ones_come_first() -> None:
    assert [node.name for node in parse("(((bank2 bank1) x) y)").inner()] == [
        "bank1+bank2",
        "bank1+bank2+x",
    ]
    assert list(flat("ABC").inner()) == []


def test_a_dissolved_state_leaves_its_children_to_the_node_above() -> None:
    shape = parse("(((A B) C) (D E))")
    assert str(shape.dissolved(["A+B"])) == "((A B C) (D E))"
    assert str(shape.dissolved(["A+B", "A+B+C", "D+E"])) == "(A B C D E)"
    assert shape.dissolved([]) == shape


@pytest.mark.parametrize("text", ["", "A", "(A B", "A B)", "(A B) C", ")", "(A B) (C D)"])
def test_text_that_is_no_shape_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(QueryError) as refused:
        parse(text)
    assert str(refused.value).startswith(f"{text!r} is not a valid join shape")
    assert '"((A B) (C D))"' in str(refused.value.hint)


def test_a_stream_that_is_joined_twice_or_alone_is_refused() -> None:
    with pytest.raises(QueryError, match="stream A is in a shape twice"):
        parse("((A B) A)")
    with pytest.raises(QueryError, match="two inputs or more, not 1"):
        Shape(("A",))
