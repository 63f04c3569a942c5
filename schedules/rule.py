"""What a schedule rule is, and finding one by name."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from ..backends.interface import Hardware
from ..constants.facts import Facts
from ..errors import TargetFileError, UnknownNameError
from ..spec import Operator
from ..system import resources

if TYPE_CHECKING:
    import tvm

    from ..compute.computation import Computation


class Rule(Protocol):
    """A module of this package that schedules operators for a class of hardware.

    `version` is raised whenever equal knobs give another schedule: records of older versions are then refused.
    """

    name: str
    version: int
    #: knob -> (default, smallest, largest)
    knobs: Mapping[str, tuple[int, int, int]]

    def check(self, operator: Operator, hardware: Hardware, facts: Facts) -> None:
        """Raises NotApplicable with the reason where the rule cannot schedule the operator.

        Facts are what the values of the constants prove; with `facts.NOTHING` the answer holds for all values.
        """

    def space(self, operator: Operator, hardware: Hardware) -> Mapping[str, tuple[int, ...]]:
        """Knob -> the values that are worth trying for an operator; a knob that is left out keeps its default."""

    def form(self, operator: Operator, hardware: Hardware, knobs: Mapping[str, int], facts: Facts) -> Any:
        """The arrangement of the tensors (compute.form): a dataclass whose text says everything about it."""

    def schedule(
        self, operator: Operator, hardware: Hardware, computation: Computation, form: Any, knobs: Mapping[str, int]
    ) -> tvm.IRModule:
        """The scheduled IRModule, with the function "main", of a computation in that form."""


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
        raise UnknownNameError(
            "Unknown schedule rule.", given=repr(name), accepted=", ".join(resources.rule_names())
        ) from error
    return cast("Rule", module)


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
