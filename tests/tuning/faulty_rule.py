"""A rule whose knob `fault` breaks things, for the workers of the tests as well as for the tests themselves."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from qcompile.backends.interface import Hardware
from qcompile.constants.facts import Facts
from qcompile.errors import KernelError
from qcompile.runtime.kernel import Kernel
from qcompile.schedules import cpu_plain
from qcompile.spec import Operator

NAME = "cpu_faulty"
FINE, BUILD_ERROR, BUILD_CRASH, BUILD_HANG, RUN_ERROR, RUN_CRASH, RUN_HANG, WRONG_RESULT = range(8)

TARGET = """
name = "faulty"
description = "a target with a rule that breaks things"
kind = "cpu"
rules = ["cpu_faulty"]

[cpu]
architecture = "x86_64"
required_features = []
vector_bits = 128

[target]
kind = "llvm"
mtriple = "x86_64-unknown-linux-gnu"
mcpu = "x86-64"
"""


class FaultyRule(ModuleType):
    """A module of `qcompile.schedules` that is made here."""

    name = NAME
    version = 1
    knobs: Mapping[str, tuple[int, int, int]] = {"fault": (FINE, FINE, WRONG_RESULT), **cpu_plain.knobs}
    values: Mapping[str, tuple[int, ...]] = {"fault": tuple(range(8))}

    def check(self, operator: Operator, hardware: Hardware, facts: Facts) -> None:
        """Applies always."""

    def space(self, operator: Operator, hardware: Hardware) -> Mapping[str, tuple[int, ...]]:
        """What the test wants."""
        return self.values

    def form(self, operator: Operator, hardware: Hardware, knobs: Mapping[str, int], facts: Facts) -> Any:
        """As the plain rule."""
        return cpu_plain.form(operator, hardware, knobs, facts)

    def schedule(
        self, operator: Operator, hardware: Hardware, computation: Any, form: Any, knobs: Mapping[str, int]
    ) -> Any:
        """As the plain rule, if at all."""
        if knobs["fault"] == BUILD_ERROR:
            raise ValueError("there is no such loop")
        if knobs["fault"] == BUILD_CRASH:
            os.kill(os.getpid(), signal.SIGSEGV)
        if knobs["fault"] == BUILD_HANG:
            time.sleep(1000)
        if knobs["fault"] != FINE:  # other chunks are other code: equal code would not be measured
            knobs = {**knobs, "vectors_per_chunk": 1 + knobs["fault"], "serial_operations": 0}
        return cpu_plain.schedule(operator, hardware, computation, form, knobs)


def install() -> FaultyRule:
    """Makes the rule known."""
    rule = FaultyRule(f"qcompile.schedules.{NAME}")
    sys.modules[rule.__name__] = rule
    return rule


def break_kernels() -> None:
    """Lets kernels that were compiled with a fault show it when they run."""
    call = Kernel.__call__

    def faulty(kernel: Kernel, **arguments: Any) -> Any:
        fault = kernel.variant.knobs.get("fault", FINE)
        if fault == RUN_ERROR:
            raise KernelError("The kernel failed: out of memory.")
        if fault == RUN_CRASH:
            os.kill(os.getpid(), signal.SIGSEGV)
        if fault == RUN_HANG:
            time.sleep(1000)
        result = call(kernel, **arguments)
        if fault == WRONG_RESULT:
            arguments["out"][0].reshape(-1)[-1] ^= 1
        return result

    Kernel.__call__ = faulty  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    from qcompile.tuning import worker

    install()
    break_kernels()
    worker.main()
