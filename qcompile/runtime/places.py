"""What this machine can do with a library: run it, emulate it, or neither, whatever backend made it."""

from __future__ import annotations

from ..backends import BACKENDS, executor_of
from ..backends.interface import Emulation, Place
from ..bundle.manifest import LibraryEntry
from ..errors import EmulationError

#: the values of `emulate=` and what they mean
_EMULATIONS = {False: Emulation.NEVER, True: Emulation.WHERE_MISSING, "always": Emulation.ALWAYS}


def parse_emulate(value: object) -> Emulation:
    """What `emulate=` of the public functions means.

    Raises:
        EmulationError: it is none of False, True and "always".
    """
    if isinstance(value, Emulation):
        return value
    if isinstance(value, (bool, str)) and value in _EMULATIONS:
        return _EMULATIONS[value]
    raise EmulationError("Invalid value for emulate=.", given=repr(value)[:80], accepted="False, True or 'always'")


def missing(library: LibraryEntry) -> list[str]:
    """What this machine lacks to run a library itself, in words; empty where it runs."""
    if library.kind not in BACKENDS:
        return [f"a version of qcompile that knows hardware of kind {library.kind}"]
    return executor_of(library.kind).missing(library.needs)


def places(library: LibraryEntry, emulation: Emulation) -> list[Place]:
    """Where a library runs, the preferred place first."""
    return executor_of(library.kind).places(library.needs, emulation) if library.kind in BACKENDS else []


def emulated_device(library: LibraryEntry) -> str:
    """The device on which a library can be emulated; "" where there is none."""
    return executor_of(library.kind).emulated_device(library.needs) if library.kind in BACKENDS else ""


def check_emulation(library: LibraryEntry) -> None:
    """Raises EmulationError, which says why, where a library cannot be emulated here."""
    name = f"target {library.target}"
    if library.kind not in BACKENDS:
        raise EmulationError(f"There is no emulator for {name}.", given=f"hardware of kind {library.kind}")
    executor_of(library.kind).check_emulation(library.needs, name)
