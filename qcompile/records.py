"""Which rule and knobs schedule an operator: tuned records, then reviewed defaults, then the rule's own numbers."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from . import resources
from .errors import NotApplicable, TargetFileError, UnknownNameError
from .hardware import Hardware
from .spec import Operator

if TYPE_CHECKING:
    from .schedules.rule import Rule


@dataclass(frozen=True)
class Choice:
    """How an operator is scheduled, and why.

    Args:
        rule: name of the rule.
        version: its version.
        knobs: knob -> value.
        source: where the knobs come from: "defaults" (schedules/<target>/defaults.toml) or "rule".
        refused: (rule, reason) of the rules that were preferred and do not apply.
    """

    rule: str
    version: int
    knobs: Mapping[str, int]
    source: str
    refused: tuple[tuple[str, str], ...] = ()


def load_rule(name: str) -> Rule:
    """The module of a rule.

    Raises:
        UnknownNameError: there is none of that name.
    """
    try:
        if not name.isidentifier():
            raise ModuleNotFoundError(name)
        module = importlib.import_module(f"qcompile.schedules.{name}")
        if getattr(module, "name", None) != name or not hasattr(module, "knobs"):
            raise ModuleNotFoundError(name)
    except ModuleNotFoundError as error:
        raise UnknownNameError("Unknown schedule rule.", given=repr(name)) from error
    return cast("Rule", module)


def find(operator: Operator, hardware: Hardware) -> Choice:
    """The choice for an operator on a target: the first of the target's rules that applies.

    Raises:
        NotApplicable: no rule of the target applies; the reason lists those of all rules.
    """
    refused: list[tuple[str, str]] = []
    for name in hardware.rules:
        rule = load_rule(name)
        try:
            rule.check(operator, hardware)
        except NotApplicable as error:
            refused.append((name, error.reason))
            continue
        defaults = resources.read_defaults(hardware.name).get(name)
        knobs = check_knobs(rule, defaults or {}, f"schedules/{hardware.name}/defaults.toml")
        return Choice(name, rule.version, knobs, "rule" if defaults is None else "defaults", tuple(refused))
    reasons = "; ".join(f"{name}: {reason}" for name, reason in refused)
    raise NotApplicable(f"no schedule rule of {hardware.name} applies to {operator.name} ({reasons})")


def check_knobs(rule: Rule, given: Mapping[str, Any], origin: str) -> dict[str, int]:
    """All knobs of a rule: the given ones, checked, and the rule's own numbers for the others.

    Raises:
        TargetFileError: an unknown knob or a value outside its range.
    """
    for knob, value in given.items():
        if knob not in rule.knobs:
            accepted = ", ".join(rule.knobs)
            raise TargetFileError(f"{origin}: {rule.name} has no such knob.", given=knob, accepted=accepted)
        _, low, high = rule.knobs[knob]
        if type(value) is not int or not low <= value <= high:
            raise TargetFileError(f"{origin}: {rule.name}.{knob} is out of range.", given=repr(value),
                                  accepted=f"{low} to {high}")  # fmt: skip
    return {knob: given.get(knob, default) for knob, (default, _, _) in rule.knobs.items()}
