"""Which variants of a kernel run, in which order they are preferred, and where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..backends.interface import Emulation, Place
from ..bundle.manifest import LibraryEntry, VariantEntry
from ..errors import IncompatibleMachineError
from .places import check_emulation, missing, places

COMPILE_TOO = "compile it for this machine too: target='host' here, or a name that `qcompile targets` marks"
EMULATE_HERE = "or check it here in emulation: qc.load(path, emulate=True), `qcompile verify --emulate`"

Pairs = Sequence[tuple[VariantEntry, LibraryEntry]]


@dataclass(frozen=True)
class Selected:
    """A variant that runs, its library, and where it runs."""

    variant: VariantEntry
    library: LibraryEntry
    place: Place


def runnable(pairs: Pairs, emulation: Emulation) -> list[Selected]:
    """The variants that run, the preferred one first: native ones before emulated ones, then in the order of `pairs`.

    Args:
        pairs: variants with their libraries, the preferred target first.
        emulation: which of them may be emulated.
    """
    found = [
        Selected(variant, library, place) for variant, library in pairs for place in places(library, emulation)[:1]
    ]
    return sorted(found, key=lambda one: one.place.is_emulated)


def select(name: str, pairs: Pairs, emulation: Emulation, target: str | None) -> Selected:
    """The variant that calls of the kernel `name` take.

    Args:
        name: of the kernel.
        pairs: its variants with their libraries, the preferred target first.
        emulation: which of them may be emulated.
        target: of the only one of them, where it was asked for.

    Raises:
        IncompatibleMachineError: none runs on this machine.
        EmulationError: it would be emulated, and cannot be.
    """
    found = runnable(pairs, emulation)
    if found:
        return found[0]
    if emulation is not Emulation.NEVER:
        for _, library in pairs:
            check_emulation(library)
    raise IncompatibleMachineError(
        f"Kernel {name!r} was not compiled for this machine."
        if target is None
        else f"The variant of kernel {name!r} for {target} does not run on this machine.",
        given="; ".join(f"{library.target} needs {', '.join(missing(library))}" for _, library in pairs),
        remedy=f"{COMPILE_TOO}; {EMULATE_HERE}",
    )
