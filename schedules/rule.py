"""What a schedule rule is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import tvm

from qcompile.compute.computation import Computation
from qcompile.hardware import Hardware
from qcompile.spec import Operator


@dataclass(frozen=True)
class Scheduled:
    """A scheduled operator.

    Args:
        module: an IRModule with the function "main".
        computation: the unscheduled function, its arguments and the form that packing follows.
        form: the arrangement (compute.form) that was chosen.
    """

    module: tvm.IRModule
    computation: Computation
    form: Any


class Rule(Protocol):
    """Schedules operators for a class of hardware.

    `version` is raised whenever equal knobs give another schedule: records of older versions are then refused.
    """

    name: str
    version: int
    #: knob -> (default, smallest, largest)
    knobs: Mapping[str, tuple[int, int, int]]

    def check(self, operator: Operator, hardware: Hardware) -> None:
        """Raises NotApplicable with the reason where the rule cannot schedule the operator."""

    def form(self, operator: Operator, hardware: Hardware, knobs: Mapping[str, int]) -> Any:
        """The arrangement of the tensors."""

    def schedule(self, operator: Operator, computation: Computation, form: Any, knobs: Mapping[str, int]) -> Any:
        """The scheduled IRModule of a computation in that form."""
