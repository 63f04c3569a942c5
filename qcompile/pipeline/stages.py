"""The texts of a kernel on its way to code, to look at."""

from __future__ import annotations

from collections.abc import Sequence

from ..backends import BACKENDS
from ..errors import UnknownNameError
from ..planning import Plan
from .codes import computed, generate


def stages(plan: Plan, wanted: Sequence[str]) -> dict[str, str]:
    """Stage -> its text, of a kernel.

    Args:
        plan: of the kernel.
        wanted: names among the stages of the backend's compiler.

    Raises:
        UnknownNameError: the backend has no such stage.
        LoweringError: the kernel cannot be lowered.
    """
    known = BACKENDS[plan.hardware.kind].stages
    for stage in wanted:
        if stage not in known:
            raise UnknownNameError(
                f"Kernels for {plan.hardware.name} do not pass this stage.", given=repr(stage),
                accepted=", ".join(known),
            )  # fmt: skip
    texts: dict[str, str] = {}
    if "computed" in wanted:
        texts["computed"] = computed(plan).function.script()
    others = [stage for stage in wanted if stage != "computed"]
    if others:
        texts |= generate(plan, "kernel", others).texts
    return {stage: texts[stage] for stage in wanted}
