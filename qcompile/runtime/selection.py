"""Which variants of a kernel run, in which order they are preferred, and whether natively or in emulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..errors import EmulationError, IncompatibleMachineError
from . import cpu_features
from .manifest import LibraryEntry, VariantEntry

#: whether variants may be emulated: never, those that do not run natively, or all
Emulate = bool | Literal["always"]

COMPILE_TOO = "compile it for this machine too: target='host' here, or a name that `qcompile targets` marks"
EMULATE_HERE = "or check it here in emulation: qc.load(path, emulate=True), `qcompile verify --emulate`"


@dataclass(frozen=True)
class Choice:
    """A variant that runs, its library, and whether it is emulated."""

    variant: VariantEntry
    library: LibraryEntry
    is_emulated: bool


def checked_emulate(value: object) -> Emulate:
    """Raises EmulationError unless this is a way to treat emulation."""
    if value is True or value is False or value == "always":
        return value
    raise EmulationError("emulate= is wrong.", given=repr(value)[:80], accepted="False, True or 'always'")


def check_emulator() -> None:
    """Raises EmulationError where kernels cannot be emulated at all."""
    from ..emulation.client import check_installed

    check_installed()


def runnable(pairs: Sequence[tuple[VariantEntry, LibraryEntry]], emulate: Emulate) -> list[Choice]:
    """The variants that run, the preferred one first: what runs natively, then the more demanding.

    Args:
        pairs: variants with their libraries, the most demanding first.
        emulate: whether they may be emulated.
    """
    native, emulated = [], []
    for variant, library in pairs:
        if emulate != "always" and not cpu_features.missing(library.architecture, library.required_features):
            native.append(Choice(variant, library, False))
        elif emulate:
            emulated.append(Choice(variant, library, True))
    return native + emulated


def choose(
    name: str, pairs: Sequence[tuple[VariantEntry, LibraryEntry]], emulate: Emulate, target: str | None
) -> Choice:
    """The variant that calls of the kernel `name` take.

    Args:
        name: of the kernel.
        pairs: its variants with their libraries, the most demanding first.
        emulate: whether they may be emulated.
        target: of the only one of them, where it was asked for.

    Raises:
        IncompatibleMachineError: none runs on this machine.
        EmulationError: it would be emulated, and the bundle does not say on which CPU.
    """
    choices = runnable(pairs, emulate)
    if not choices:
        reasons = [
            f"{library.target} needs {', '.join(cpu_features.missing(library.architecture, library.required_features))}"
            for _, library in pairs
        ]
        raise IncompatibleMachineError(
            f"Kernel {name!r} was not compiled for this machine."
            if target is None
            else f"The variant of kernel {name!r} for {target} does not run on this machine.",
            given="; ".join(reasons),
            remedy=f"{COMPILE_TOO}; {EMULATE_HERE}",
        )
    first = choices[0]
    if first.is_emulated and not first.library.emulated_cpu:
        raise EmulationError(
            f"The bundle does not say which CPU to emulate for target {first.library.target}.",
            remedy="compile it again with this version; a target file of your own needs the field emulated_cpu",
        )
    return first
