"""Puts a bundle together: libraries, constants and the manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from .hardware import Hardware
from .runtime import container
from .runtime.loader import Bundle
from .runtime.manifest import ConstantEntry, KernelEntry, LibraryEntry, Manifest, VariantEntry
from .spec import Operator


@dataclass(frozen=True)
class BundledKernel:
    """A kernel on its way into a bundle: `variants` has one entry for each target, in the order of the targets."""

    name: str
    aliases: tuple[str, ...]
    operator: Operator
    constants: Mapping[str, npt.NDArray[Any]]
    variants: tuple[VariantEntry, ...]


def assemble(
    kernels: Sequence[BundledKernel],
    targets: Sequence[Hardware],
    libraries: Sequence[bytes],
    *,
    producer: Mapping[str, str],
    requantize: str,
    single: bool,
) -> Bundle:
    """The bundle of these kernels; `libraries` holds one library for each target."""
    blobs: list[bytes] = list(libraries)
    known = {content: number for number, content in enumerate(blobs)}

    def add(content: bytes) -> int:
        if content not in known:
            known[content] = len(blobs)
            blobs.append(content)
        return known[content]

    entries = [
        KernelEntry(
            kernel.name,
            kernel.aliases,
            kernel.operator,
            {
                name: ConstantEntry(add(value.tobytes()), str(value.dtype), value.shape)
                for name, value in kernel.constants.items()
            },
            kernel.variants,
        )
        for kernel in kernels
    ]
    library_entries = tuple(
        LibraryEntry(number, hardware.name, hardware.architecture, hardware.required_features, hardware.emulated_cpu)
        for number, hardware in enumerate(targets)
    )
    manifest = Manifest(producer, requantize, single, library_entries, tuple(entries))
    return Bundle(container.pack(manifest.to_dictionary(), blobs), "The new bundle")
