"""Target files: read, checked, found by name, and put in order."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import TargetFileError, UnknownNameError
from ..system import resources
from . import BACKENDS, executor_of, facts_module
from .fields import Field, read
from .interface import Hardware

_FIELDS = {
    "name": Field(str),
    "description": Field(str),
    "kind": Field(str),
    "preference": Field(int, 0, low=0, high=1_000_000),
    "rules": Field(list),
    "target": Field(dict),
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def load(name_or_path: str) -> Hardware:
    """The hardware of a target's name, or of a target file of the user's own.

    Raises:
        UnknownNameError: there is no target of that name.
        TargetFileError: the file cannot be read or a field is missing, unknown or of the wrong type.
    """
    if name_or_path in resources.target_names():
        return _parse(resources.read_target(name_or_path), name_or_path, is_packaged=True)
    path = Path(name_or_path)
    if path.suffix == ".toml":
        return _parse(resources.read_toml(path, "The target file"), name_or_path, is_packaged=False)
    raise UnknownNameError(
        "Unknown target.",
        given=repr(name_or_path),
        accepted=", ".join(["host", *resources.target_names()]) + ", or the path of a target file (.toml)",
    )


def load_all() -> list[Hardware]:
    """All targets that come with the package, by name."""
    return [load(name) for name in resources.target_names()]


def host() -> Hardware:
    """The preferred target of those that run on this machine.

    Raises:
        UnknownNameError: none does.
    """
    every = load_all()
    usable = [entry for entry in every if not missing(entry)]
    if not usable:
        raise UnknownNameError(
            "None of the packaged targets runs on this machine.",
            given="; ".join(f"{entry.name} needs {', '.join(missing(entry))}" for entry in every),
            remedy="name the target to compile for",
        )
    return max(usable, key=_order)


def missing(hardware: Hardware) -> list[str]:
    """What this machine lacks to run kernels of a target, in words; empty where they run."""
    return executor_of(hardware.kind).missing(hardware.facts.needs)


def resolve(target: str | Sequence[str]) -> list[Hardware]:
    """The targets of a name, or of several; "host" is this machine's. The preferred one comes first.

    Raises:
        UnknownNameError: a name is unknown, there is none, or two different targets have the same name.
        TargetFileError: a target file cannot be used.
    """
    names = [target] if isinstance(target, (str, os.PathLike)) else target
    if not isinstance(names, Sequence) or not all(isinstance(name, (str, os.PathLike)) for name in names):
        raise UnknownNameError("Not a target.", given=repr(target)[:200], accepted="a name, or a list of names")
    if not names:
        raise UnknownNameError("No target is given.", accepted="a name, or a list of names")
    chosen: dict[str, Hardware] = {}
    for name in names:
        hardware = host() if name == "host" else load(os.fspath(name))
        if chosen.setdefault(hardware.name, hardware) != hardware:
            raise UnknownNameError("Two different targets have the same name.", given=repr(hardware.name))
    return sorted(chosen.values(), key=_order, reverse=True)


def _order(hardware: Hardware) -> tuple[int, str]:
    return hardware.preference, hardware.name


def _parse(content: Mapping[str, Any], origin: str, is_packaged: bool) -> Hardware:
    what = f"Target file {origin}"
    kind = content.get("kind")
    if not isinstance(kind, str) or kind not in BACKENDS:
        problem = "the field 'kind' is missing." if kind is None else "unknown kind."
        raise TargetFileError(f"{what}: {problem}", given=repr(kind)[:80], accepted=", ".join(BACKENDS))
    facts = facts_module(kind)
    moved = [name for name in content if name in getattr(facts, "MOVED_FIELDS", ())]
    if moved:
        raise TargetFileError(
            f"{what}: unknown field.", given=", ".join(moved), accepted=", ".join([*_FIELDS, kind]),
            remedy=f"move {'it' if len(moved) == 1 else 'them'} to the table [{kind}]; docs/targets.md has the fields",
        )  # fmt: skip
    values = read(content, {**_FIELDS, kind: Field(dict)}, what)
    if _NAME.fullmatch(values["name"]) is None:
        raise TargetFileError(
            f"{what}: name is unusable.", given=repr(values["name"])[:80], accepted="letters, digits, - and ."
        )
    if not values["rules"]:
        raise TargetFileError(f"{what}: rules is empty.", accepted="at least one schedule rule")
    table = values.pop(kind)
    return Hardware(**values, facts=facts.parse(table, f"{what}, table [{kind}]"), is_packaged=is_packaged)
