"""The executor of CPUs: libraries run in this process, or emulated where the machine lacks what they need."""

from __future__ import annotations

from ..interface import Emulation, KernelLibrary, Needs, Place
from . import features
from .library import Library

_MAXIMUM_FEATURES = 256
_MAXIMUM_TEXT = 256


class CpuExecutor:
    """See `interface.Executor`."""

    format = "elf"
    has_meaningful_times = True

    def check_needs(self, needs: Needs) -> None:
        """Raises ValueError unless the needs are an architecture, its features and perhaps a CPU to emulate."""
        if set(needs) != {"architecture", "features", "emulated_cpu"}:
            raise ValueError("needs must have architecture, features and emulated_cpu")
        for name in ("architecture", "emulated_cpu"):
            if not _is_text(needs[name]):
                raise ValueError(f"needs.{name} must be a short string")
        names = needs["features"]
        if not isinstance(names, list) or len(names) > _MAXIMUM_FEATURES or not all(map(_is_text, names)):
            raise ValueError("needs.features must be a list of short strings")

    def requirements(self, needs: Needs) -> list[str]:
        """The architecture and the CPU features."""
        return [needs["architecture"], *needs["features"]]

    def missing(self, needs: Needs) -> list[str]:
        """The architecture, or the CPU features, that this machine lacks."""
        return features.missing(needs["architecture"], tuple(needs["features"]))

    def places(self, needs: Needs, emulation: Emulation) -> list[Place]:
        """The process itself; or the CPU that the needs name, emulated."""
        if emulation is not Emulation.ALWAYS and not self.missing(needs):
            return [Place()]
        device = "" if emulation is Emulation.NEVER else self.emulated_device(needs)
        return [Place(device, is_emulated=True)] if device else []

    def emulated_device(self, needs: Needs) -> str:
        """The CPU model that the needs name, where there is an emulator for its architecture."""
        from .emulation.interface import EMULATORS  # programs that do not emulate load nothing of it

        return str(needs["emulated_cpu"]) if needs["architecture"] in EMULATORS else ""

    def check_emulation(self, needs: Needs, name: str) -> None:
        """Raises EmulationError where there is no emulator, or not the CPU that the needs name."""
        from .emulation.interface import check

        check(needs["architecture"], needs["emulated_cpu"], name)

    def open(self, content: bytes | memoryview, needs: Needs, name: str, place: Place) -> KernelLibrary:
        """Opens a shared library."""
        if not place.is_emulated:
            return Library(content, name)
        from .emulation.interface import open_library

        return open_library(content, needs["architecture"], place.device, name)

    def identity(self) -> str:
        """The CPU's model."""
        return features.model()


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _MAXIMUM_TEXT


executor = CpuExecutor()
