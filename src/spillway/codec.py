"""Typed values to JSON and back: a record that gains a field needs no code here.

msgspec reads and writes frozen dataclasses directly. Declare what it cannot do once, next to the
type:

    store_as(Shape, str, str, parse)            a class with another form in files
    table: Annotated[Table, Stored(...)]        the same for one field
    store_within(Slice, ...)                    a form that refers to shared data of a document
    @tagged("event", by="kind")                 a base class whose subclasses carry a tag

A mapping whose keys are not valid in JSON becomes a list of pairs. The codec derives the type that
msgspec handles (`Form`) from the type hints of a record: the record itself, or a struct with the
same field names if something in it is declared. Fields that a file lacks get their defaults.

Floats keep every bit. Known limitation: msgspec writes infinities and NaN as null, so a record must
not hold them. A record cannot contain itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache, reduce
from operator import or_
from threading import RLock
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    NamedTuple,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
import numpy as np

_T = TypeVar("_T")
#: Writes or reads one value. The second argument holds what the values of a document share.
Change = Callable[[Any, Any], Any]


class Form(NamedTuple):
    """How values of a type are stored."""

    #: The type that msgspec reads and writes.
    kind: Any
    #: Converts the value to that type, and back; None means the two are the same.
    write: Change | None = None
    read: Change | None = None


@dataclass(frozen=True)
class Stored:
    """How to store one field: as a value of `kind`."""

    kind: Any
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]

    def form(self) -> Form:
        """Returns the same as a form."""
        return Form(
            self.kind, lambda value, _: self.write(value), lambda found, _: self.read(found)
        )


class _Family(NamedTuple):
    """A base class, and the tag that tells its subclasses apart."""

    base: type
    #: The name of the tag in JSON, and the class variable that holds its value.
    field: str
    by: str


_FORMS: dict[type, Form] = {}
_FAMILIES: dict[type, _Family] = {}


def store_as(
    cls: type[_T], kind: Any, write: Callable[[_T], Any], read: Callable[[Any], _T]
) -> None:
    """Declares how to store a class: as values of `kind`."""
    _FORMS[cls] = Stored(kind, write, read).form()


def store_within(cls: type[_T], kind: Any, write: Change, read: Change) -> None:
    """Declares a form that refers to data the whole document shares."""
    _FORMS[cls] = Form(kind, write, read)


def tagged(field: str, by: str) -> Callable[[type[_T]], type[_T]]:
    """Declares a base class whose subclasses carry a tag: the value of their `by`.

    Define all subclasses before you read the first value of the family.
    """

    def declare(cls: type[_T]) -> type[_T]:
        _FAMILIES[cls] = _Family(cls, field, by)
        return cls

    return declare


def encode(value: Any, shared: Any = None) -> bytes:
    """Encodes a value as JSON.

    Example:
        >>> encode({"rows": (1, 2)})
        b'{"rows":[1,2]}'
    """
    kind: Any = type(value)
    write = form_of(kind).write
    return _ENCODER.encode(value if write is None else write(value, shared))


def decode(kind: type[_T], data: bytes | msgspec.Raw, shared: Any = None) -> _T:
    """Decodes JSON: the inverse of `encode`.

    Raises:
        ValueError: The data is not JSON, or not of this kind.
    """
    known: Any = kind
    found, read = _decoder(known).decode(data), form_of(known).read
    return cast("_T", found if read is None else read(found, shared))


def plain(value: Any) -> Any:
    """Converts a value to plain data, as JSON would return it."""
    return msgspec.json.decode(encode(value))


def made(kind: type[_T], found: Any) -> _T:
    """Builds a value from plain data: the inverse of `plain`.

    Raises:
        ValueError: The data is not of this kind.
    """
    known: Any = kind
    form = form_of(known)
    value = msgspec.convert(found, form.kind)
    return cast("_T", value if form.read is None else form.read(value, None))


def form_of(kind: Any) -> Form:
    """Returns how values of a type are stored."""
    with _BUILDING:
        return _form_of(kind)


@cache
def _form_of(kind: Any) -> Form:
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        chosen = next((one for one in args[1:] if isinstance(one, Stored)), None)
        return form_of(args[0]) if chosen is None else chosen.form()
    if origin in (Union, UnionType):
        return _either(kind, args)
    if origin is tuple and args[1:] != (...,):
        return _fixed(kind, args)
    if origin is not None and isinstance(origin, type):
        return _container(kind, origin, args)
    if kind in _FORMS:
        return _FORMS[kind]
    if kind in _FAMILIES:
        return _any_of(_FAMILIES[kind])
    return _record(kind) if isinstance(kind, type) and is_dataclass(kind) else Form(kind)


def _either(kind: Any, args: tuple[Any, ...]) -> Form:
    forms = [form_of(arg) for arg in args if arg is not NoneType]
    if all(form.write is None for form in forms):
        return Form(kind)
    if len(forms) > 1:
        raise TypeError(f"{kind} cannot be stored: declare its members as a family with @tagged")
    inner, write, read = forms[0]
    assert write is not None
    assert read is not None
    return Form(
        inner | None,
        lambda value, shared: None if value is None else write(value, shared),
        lambda found, shared: None if found is None else read(found, shared),
    )


def _fixed(kind: Any, args: tuple[Any, ...]) -> Form:
    forms = [form_of(arg) for arg in args]
    if all(form.write is None for form in forms):
        return Form(kind)

    def write(value: Any, shared: Any) -> Any:
        return [_applied(f.write, one, shared) for f, one in zip(forms, value, strict=True)]

    def read(found: Any, shared: Any) -> Any:
        return tuple(_applied(f.read, one, shared) for f, one in zip(forms, found, strict=True))

    return Form(tuple[tuple(form.kind for form in forms)], write, read)  # type: ignore[misc]  # made at run time


def _container(kind: Any, origin: type, args: tuple[Any, ...]) -> Form:
    if issubclass(origin, Mapping):
        return _mapping(kind, *args)
    if not issubclass(origin, Sequence):
        return Form(kind)
    inner, write, read = form_of(args[0])
    if write is None or read is None:
        return Form(kind)
    whole: Callable[[list[Any]], Any] = list if origin is list else tuple
    return Form(
        list[inner],  # type: ignore[valid-type]  # made at run time
        lambda value, shared: [write(one, shared) for one in value],
        lambda found, shared: whole([read(one, shared) for one in found]),
    )


def _mapping(kind: Any, key: Any, value: Any) -> Form:
    if key in (str, int) and form_of(value).write is None:
        return Form(kind)
    pair, write, read = form_of(tuple[key, value])
    return Form(
        list[pair],  # type: ignore[valid-type]  # made at run time
        lambda found, shared: [_applied(write, one, shared) for one in found.items()],
        lambda found, shared: dict(_applied(read, one, shared) for one in found),
    )


def _record(kind: type) -> Form:
    family = next((_FAMILIES[base] for base in kind.__mro__ if base in _FAMILIES), None)
    forms = _field_forms(kind)
    if family is None and all(form.write is None for form in forms.values()):
        return Form(kind)
    return _as_struct(kind, forms, family)


def _field_forms(kind: type) -> dict[str, Form]:
    hints = get_type_hints(kind, include_extras=True)
    return {one.name: form_of(hints[one.name]) for one in fields(kind)}


def _as_struct(kind: type, forms: dict[str, Form], family: _Family | None) -> Form:
    tag = {} if family is None else {"tag": getattr(kind, family.by), "tag_field": family.field}
    struct = msgspec.defstruct(
        kind.__name__, [_member(one, forms[one.name]) for one in fields(kind)], kw_only=True, **tag
    )
    changes = [(name, form.write, form.read) for name, form in forms.items()]

    def write(value: Any, shared: Any) -> Any:
        return struct(**{n: _applied(w, getattr(value, n), shared) for n, w, _ in changes})

    def read(found: Any, shared: Any) -> Any:
        values = [(name, change, getattr(found, name)) for name, _, change in changes]
        there = {n: _applied(r, one, shared) for n, r, one in values if one is not msgspec.UNSET}
        return kind(**there)

    return Form(struct, write, read)


def _member(one: Field[Any], form: Form) -> Any:
    """Describes one field of a struct. The record fills in a missing field that has a default."""
    if one.default is MISSING and one.default_factory is MISSING:
        return one.name, form.kind
    return one.name, form.kind | msgspec.UnsetType, msgspec.UNSET


def _any_of(family: _Family) -> Form:
    forms = {kind: _record(kind) for kind in _members(family)}
    readers = {form.kind: form.read for form in forms.values()}
    return Form(
        reduce(or_, readers),
        lambda value, shared: _applied(forms[type(value)].write, value, shared),
        lambda found, shared: _applied(readers[type(found)], found, shared),
    )


def _members(family: _Family) -> list[type]:
    """Returns the subclasses with their own tag; the others are only bases."""
    found: list[type] = []
    rest: list[type] = family.base.__subclasses__()
    while rest:
        kind = rest.pop(0)
        rest += kind.__subclasses__()
        found += [kind] if family.by in vars(kind) else []
    return found


def _applied(change: Change | None, value: Any, shared: Any) -> Any:
    return value if change is None else change(value, shared)


def _builtin(value: Any) -> Any:
    """Converts what msgspec does not know: NumPy numbers and arrays."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be stored")


_ENCODER = msgspec.json.Encoder(enc_hook=_builtin)
#: Held while a form is made. Queries of one process start in threads of their own, and each form must be
#: made once: decoded values are of its class.
_BUILDING = RLock()


def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    with _BUILDING:
        return _known_decoder(kind)


@cache
def _known_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(form_of(kind).kind)
