"""What a schedule rule is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from qcompile.facts import Facts
from qcompile.hardware import Hardware
from qcompile.spec import Operator

if TYPE_CHECKING:
    import tvm

    from qcompile.compute.computation import Computation


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
