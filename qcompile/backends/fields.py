"""Checks the fields of one table of a target file against a description of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import TargetFileError

_REQUIRED = object()
_TYPE_NAMES = {str: "a string", int: "an integer", float: "a number", dict: "a table", list: "a list of strings"}


@dataclass(frozen=True)
class Field:
    """A field of a table.

    Args:
        kind: `str`, `int`, `float`, `dict`, or `list` for a list of strings, which becomes a tuple.
        default: the value where the field is left out; without one the field is required.
        accepted: the values, or for lists the entries, that are allowed; all of the type where it is empty.
        low, high: the range of a number.
    """

    kind: type
    default: Any = _REQUIRED
    accepted: Sequence[Any] = ()
    low: float = float("-inf")
    high: float = float("inf")


def read(table: Mapping[str, Any], fields: Mapping[str, Field], origin: str) -> dict[str, Any]:
    """The values of all fields.

    Args:
        table: what the file says.
        fields: the fields by name.
        origin: what messages call the table.

    Raises:
        TargetFileError: a field is unknown, missing, of the wrong type or has a value that is not accepted.
    """
    for name in table:
        if name not in fields:
            raise TargetFileError(f"{origin}: unknown field.", given=name, accepted=", ".join(fields))
    return {name: _value(table, name, field, origin) for name, field in fields.items()}


def _value(table: Mapping[str, Any], name: str, field: Field, origin: str) -> Any:
    if name not in table:
        if field.default is _REQUIRED:
            raise TargetFileError(f"{origin}: the field {name!r} is missing.")
        return field.default
    value = table[name]
    if not _has_type(value, field.kind):
        raise TargetFileError(
            f"{origin}: {name} has the wrong type.", given=repr(value)[:120], accepted=_TYPE_NAMES[field.kind]
        )
    for entry in value if field.kind is list else [value] if field.accepted else []:
        if field.accepted and entry not in field.accepted:
            raise TargetFileError(
                f"{origin}: {name} has an unknown {'entry' if field.kind is list else 'value'}.",
                given=repr(entry)[:80],
                accepted=", ".join(map(str, field.accepted)),
            )
    if field.kind in (int, float) and not field.low <= value <= field.high:
        raise TargetFileError(
            f"{origin}: {name} is out of range.", given=value, accepted=f"{field.low} to {field.high}"
        )
    return tuple(value) if field.kind is list else value


def _has_type(value: Any, kind: type) -> bool:
    if kind is list:
        return isinstance(value, list) and all(isinstance(entry, str) for entry in value)
    if isinstance(value, bool):
        return False
    return isinstance(value, (int, float)) if kind is float else isinstance(value, kind)
