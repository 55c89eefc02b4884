"""Values come back from JSON as they were, whatever their types declare."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway import codec
from spillway.codec import Stored, decode, encode, made, plain, tagged
from spillway.metrics.events import STEPS, TRACK_STEPS, Event, Scaled, Spilled
from spillway.plan.shape import Shape, parse
from spillway.policies.shape.costs import JoinRates, StreamRates
from spillway.policies.shape.proposal import Proposal
from spillway.policies.shape.shaping import SlotShape
from spillway.protocols.engine import PROTOCOLS
from spillway.protocols.move import GroupMove
from spillway.protocols.parallel_track import ParallelTrack
from spillway.routing.routing import Routing


@tagged("animal", by="sound")
@dataclass(frozen=True)
class Animal:
    sound: ClassVar[str] = ""
    name: str


@dataclass(frozen=True)
class Cat(Animal):
    sound: ClassVar[str] = "meow"


@dataclass(frozen=True)
class Dog(Animal):
    sound: ClassVar[str] = "woof"
    friends: tuple[Cat, ...] = ()


@dataclass(frozen=True)
class House:
    animals: tuple[Animal, ...]
    best: Animal | None = None
    shape: Shape | None = None
    secret: Annotated[str, Stored(list[str], list, "".join)] = "default"
    distances: Mapping[tuple[str, str], float] = field(default_factory=dict)
    homes: Mapping[int, Shape] = field(default_factory=dict)
    pairs: tuple[tuple[int, Animal], ...] = ()


HOUSE = House(
    (Cat("tom"), Dog("rex", (Cat("kit"),))),
    Dog("max"),
    parse("((a b) c)"),
    "key",
    {("a", "b"): 0.1, ("b", "c"): 1 / 3},
    {3: parse("(a b)")},
    ((7, Cat("tom")),),
)


def test_record_with_every_declared_form_comes_back_as_it_was() -> None:
    assert decode(House, encode(HOUSE)) == HOUSE
    assert made(House, plain(HOUSE)) == HOUSE


def test_stored_forms_can_be_read_by_people() -> None:
    found = json.loads(encode(HOUSE))
    assert found["animals"][0] == {"animal": "meow", "name": "tom"}
    assert found["best"] == {"animal": "woof", "name": "max", "friends": []}
    assert found["shape"] == "((a b) c)"
    assert found["secret"] == ["k", "e", "y"]
    assert found["distances"][0] == [["a", "b"], 0.1]
    assert found["homes"] == [[3, "(a b)"]]


def test_fields_that_a_file_lacks_get_their_defaults_and_unknown_ones_are_ignored() -> None:
    assert decode(House, b'{"animals":[],"later":1}') == House(())


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{}", "missing required field `animals`"),
        (b'{"animals":[{"animal":"moo","name":"x"}]}', "Invalid value 'moo'"),
        (b'{"animals":[{"animal":"meow","name":3}]}', "Expected `str`, got `int`"),
        (b'{"animals":', "Input data was truncated"),
    ],
)
def test_what_is_not_of_the_kind_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        decode(House, data)


def test_union_of_records_without_a_tag_is_refused() -> None:
    @dataclass(frozen=True)
    class Odd:
        value: Shape | Animal

    with pytest.raises(TypeError, match="declare its members as a family"):
        encode(Odd(parse("(a b)")))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_keep_every_bit(value: float) -> None:
    rates = JoinRates((StreamRates("a", value, value, value),), {("a", "b"): value}, value)
    known = SlotShape(parse("(a b)"), Proposal(parse("(a b)"), 2), rates, chosen=True)
    assert decode(SlotShape, encode(known)) == known


def test_numbers_and_arrays_of_numpy_are_plain_data() -> None:
    assert encode([np.float64(0.5), np.int64(3), np.arange(2)]) == b"[0.5,3,[0,1]]"
    with pytest.raises(TypeError, match="object cannot be stored"):
        encode(object())


def all_subclasses(base: type) -> set[type]:
    found = set(base.__subclasses__())
    return found.union(*(all_subclasses(one) for one in found))


def test_every_event_and_every_move_has_a_tag_of_its_own() -> None:
    kinds = [one for one in all_subclasses(Event) if "kind" in vars(one)]
    assert len({one.kind for one in kinds}) == len(kinds)
    assert {*STEPS, *TRACK_STEPS, Spilled, Scaled} <= set(kinds)
    assert set(PROTOCOLS) == {one.protocol for one in all_subclasses(GroupMove)}


def test_event_and_move_say_their_kind_first() -> None:
    event = Spilled(1, 2, (3, 4), 5, 0.25, "why")
    assert list(plain(event).items())[:2] == [("event", "spilled"), ("batch", 1)]
    assert decode(Event, encode(event)) == event
    move = ParallelTrack(1, 0, 1, 10, 0, False, "why")
    assert list(plain(move).items())[:2] == [("protocol", "ptlb"), ("move", 1)]
    assert decode(GroupMove, encode(move)) == move


def test_routing_is_stored_by_neighbouring_groups_and_checked_when_it_is_read() -> None:
    routing = Routing.even(1000, 3)
    assert plain(routing)["table"] == [[0, 334], [1, 333], [2, 333]]
    assert decode(Routing, encode(routing)) == routing


def test_threads_that_begin_together_make_one_form(monkeypatch: pytest.MonkeyPatch) -> None:
    made_at_once = []
    make = codec._as_struct

    def slowly(*given: Any) -> Any:
        made_at_once.append(given[0])
        time.sleep(0.01)
        return make(*given)

    monkeypatch.setattr(codec, "_as_struct", slowly)
    codec._form_of.cache_clear()
    codec._known_decoder.cache_clear()
    event = Spilled(3, 1, (4, 5), 100, 0.5, "full")
    data = encode(event)
    made_at_once.clear()
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: decode(Event, data), range(8)))
    codec._form_of.cache_clear()
    codec._known_decoder.cache_clear()
    assert found == [event] * 8
    assert len(made_at_once) == len(set(made_at_once))
