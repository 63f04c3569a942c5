"""Puts the file of a bundle together: libraries, constants and the manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from ..backends import executor_of
from ..backends.interface import Hardware
from ..spec import Operator
from . import container
from .manifest import ConstantEntry, KernelEntry, LibraryEntry, Manifest, VariantEntry


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
) -> bytes:
    """The file of a bundle.

    Args:
        kernels: in the order of the libraries' tables.
        targets: the preferred one first.
        libraries: one for each target.
        producer: package -> version, of what made the bundle.
        requantize: the arithmetic of the last stage.
        single: whether the bundle stands for its only kernel.
    """
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
        LibraryEntry(number, hardware.name, hardware.kind, hardware.facts.needs, executor_of(hardware.kind).format)
        for number, hardware in enumerate(targets)
    )
    manifest = Manifest(producer, requantize, single, library_entries, tuple(entries))
    return container.pack(manifest.to_dictionary(), blobs)
