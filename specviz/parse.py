"""JSON from anybody -> values of the types a frozen dataclass declares, or one TraceError sentence.

Knows nothing of what a trace means; that is checked in trace.py. Nothing here trusts a number, a length or a depth.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from typing import Any

MAX_TEXT = 500_000  # characters of one string


class TraceError(ValueError):
    """One sentence that says which line of an imported trace is wrong and how."""


def parse(text: str, number: int) -> Any:
    """One line of JSON, strictly: no NaN or Infinity, no field twice. `number` names the line in the TraceError."""

    def refuse(name: str) -> None:
        raise TraceError(f"Line {number} of this trace holds {name}, which is not a number.")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(value := dict(pairs)) != len(pairs):
            raise TraceError(f"Line {number} of this trace names one field twice.")
        return value

    try:
        return json.loads(text, parse_constant=refuse, object_pairs_hook=once)
    except TraceError:
        raise
    except (ValueError, RecursionError):  # ValueError: bad JSON, and whole numbers of thousands of digits
        raise TraceError(f"Line {number} of this trace is not JSON; the file is damaged or cut off.") from None


@functools.cache
def _shape(kind: type) -> list[tuple[str, Any, bool]]:
    """(name, type, required) of a record's fields."""
    hints = typing.get_type_hints(kind)
    none = dataclasses.MISSING
    return [(f.name, hints[f.name], f.default is none and f.default_factory is none) for f in dataclasses.fields(kind)]


def build(kind: Any, value: Any, where: str) -> Any:
    """A value of the annotated type, or TraceError. Covers what the records of a trace use, nothing more."""
    if kind is float:
        # a whole number too large for a float cannot even be asked whether it is finite
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not -1e300 < value < 1e300:
            raise TraceError(f"{where}: expected a finite number.")
        return float(value)
    if kind is int:
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > 2**53:
            raise TraceError(f"{where}: expected a whole number.")
        return value
    if kind is str:
        if not isinstance(value, str):
            raise TraceError(f"{where}: expected text.")
        if len(value) > MAX_TEXT:
            raise TraceError(f"{where}: a text is longer than {MAX_TEXT} characters.")
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:  # half of a surrogate pair: legal in JSON, impossible to write to a file or a page
            raise TraceError(f"{where}: a text holds half a character.") from None
        return value
    if kind is bool:
        if not isinstance(value, bool):
            raise TraceError(f"{where}: expected true or false.")
        return value
    if kind is Any:
        return _plain(value, where, 0)
    origin = typing.get_origin(kind)
    if origin is types.UnionType:
        return None if value is None else build(typing.get_args(kind)[0], value, where)
    if origin is list:
        if not isinstance(value, list):
            raise TraceError(f"{where}: expected a list.")
        (item,) = typing.get_args(kind)
        return [build(item, one, where) for one in value]
    if not isinstance(value, dict):
        raise TraceError(f"{where}: expected an object.")
    if origin is dict:
        _, item = typing.get_args(kind)
        return {build(str, key, where): build(item, one, where) for key, one in value.items()}
    for name, _, required in _shape(kind):
        if required and name not in value:
            raise TraceError(f"{where}: {name!r} is missing.")
    return kind(**{name: build(hint, value[name], f"{where}, {name}") for name, hint, _ in _shape(kind) if name in value})


def _plain(value: Any, where: str, depth: int) -> Any:
    """Free JSON (knobs, notes): finite numbers, whole text, shallow enough that nothing downstream can run out of stack."""
    if depth > 12:
        raise TraceError(f"{where}: nested too deeply.")
    if isinstance(value, list):
        return [_plain(one, where, depth + 1) for one in value]
    if isinstance(value, dict):
        return {build(str, key, where): _plain(one, where, depth + 1) for key, one in value.items()}
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if abs(value) >= 2**64:  # seeds may use 64 bits
            raise TraceError(f"{where}: a whole number is too large.")
        return value
    return build(float if isinstance(value, float) else str, value, where)
