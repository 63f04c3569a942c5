"""Bundles as Python objects, and loading them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..backends.interface import Emulation
from ..bundle import container
from ..bundle.manifest import Manifest
from ..errors import IncompatibleMachineError, UnknownNameError
from ..system.files import write_atomically
from .content import Content
from .kernel import Kernel
from .places import missing, parse_emulate
from .selection import COMPILE_TOO, EMULATE_HERE


class Bundle:
    """Kernels of one or several targets: `bundle[name]`; iteration gives the kernels, in model order.

    Args:
        content: the bytes of the file.
        origin: what messages call it.
        emulate: True emulates the variants that this machine cannot run, "always" all.
    """

    def __init__(
        self,
        content: bytes | memoryview | Content,
        origin: str = "The bundle",
        emulate: bool | str | Emulation = False,
    ):
        self._content = content if isinstance(content, Content) else Content(content, origin)
        self._emulation = emulation = parse_emulate(emulate)
        self._kernels = {entry.name: Kernel(self._content, entry, None, emulation) for entry in self.manifest.kernels}
        self._aliases = {alias: entry.name for entry in self.manifest.kernels for alias in entry.aliases}

    @property
    def manifest(self) -> Manifest:
        """Everything about it but its bytes."""
        return self._content.manifest

    @property
    def names(self) -> list[str]:
        """Names of the kernels, in model order."""
        return list(self._kernels)

    @property
    def targets(self) -> list[str]:
        """Names of the targets that it was compiled for."""
        return [library.target for library in self.manifest.libraries]

    def __getitem__(self, name: str) -> Kernel:
        kernel = self._kernels.get(self._aliases.get(name, name))
        if kernel is None:
            known = ", ".join(self.names[:20]) + (", ..." if len(self.names) > 20 else "")
            raise UnknownNameError("The bundle has no kernel of that name.", given=repr(name), accepted=known)
        return kernel

    def __contains__(self, name: object) -> bool:
        return name in self._kernels or name in self._aliases

    def __iter__(self) -> Iterator[Kernel]:
        return iter(self._kernels.values())

    def __len__(self) -> int:
        return len(self._kernels)

    def emulated(self, *, always: bool = False) -> Bundle:
        """The bundle with emulation allowed, for the variants that this machine cannot run. See docs/emulation.md.

        Args:
            always: emulates also those that it can run.
        """
        return Bundle(self._content, emulate=Emulation.ALWAYS if always else Emulation.WHERE_MISSING)

    def to_bytes(self) -> bytes:
        """The bundle's file."""
        return bytes(self._content.bytes)

    def library_bytes(self, target: str) -> bytes:
        """The library of a target: for CPUs a self-contained shared library with the functions of `qcompile.h`.

        Raises:
            UnknownNameError: the bundle was not compiled for that target.
        """
        for library in self.manifest.libraries:
            if library.target == target:
                return bytes(self._content.blob(library.blob))
        raise UnknownNameError(
            "The bundle was not compiled for that target.", given=repr(target), accepted=", ".join(self.targets)
        )

    def __reduce__(self) -> Any:
        return Bundle, (self.to_bytes(), "The pickled bundle", self._emulation)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the bundle; an existing file is replaced only by a complete one.

        Raises:
            FileWriteError: the file cannot be written.
        """
        write_atomically(path, self.to_bytes(), "The bundle")

    def __repr__(self) -> str:
        return f"<Bundle of {len(self)} kernels for {', '.join(self.targets)}>"


def load(path: str | os.PathLike[str], *, emulate: bool | str = False) -> Kernel | Bundle:
    """Loads a bundle without any compiler code. What `Kernel.save` wrote gives the kernel, all else a Bundle.

    The manifest is parsed as untrusted data; the libraries are native code: load only bundles that you trust.

    Args:
        path: the bundle's file.
        emulate: True emulates, slowly, the variants that this machine cannot run; "always" all. See docs/emulation.md.

    Raises:
        BundleError: the file is missing, empty, truncated, damaged, foreign or of a newer format.
        IncompatibleMachineError: none of its targets runs on this machine.
    """
    bundle = load_bundle(path, emulate=emulate)
    lacking = {library.target: missing(library) for library in bundle.manifest.libraries}
    if all(lacking.values()) and not emulate:
        raise IncompatibleMachineError(
            f"The bundle {Path(path)} was not compiled for this machine.",
            given="; ".join(f"{target} needs {', '.join(needs)}" for target, needs in lacking.items()),
            remedy=f"{COMPILE_TOO}; {EMULATE_HERE}",
        )
    return next(iter(bundle)) if bundle.manifest.single else bundle


def load_bundle(path: str | os.PathLike[str], *, emulate: bool | str = False) -> Bundle:
    """Loads a bundle as a Bundle whatever it holds and wherever it runs: to look into it."""
    return Bundle(container.read_file(path), f"The bundle {Path(path)}", emulate)
