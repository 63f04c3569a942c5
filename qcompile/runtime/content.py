"""The content of a bundle: manifest, blobs, and its libraries, loaded when they are first needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..c_interface import Argument, KernelLibrary
from ..errors import BundleError
from . import container
from .library import Library
from .manifest import ConstantEntry, KernelEntry, LibraryEntry, Manifest, parse


class Content:
    """What kernels share. They own it together, without a cycle: it goes, with its libraries, when the last does.

    Args:
        content: the bytes of the file.
        origin: what messages call it.

    Raises:
        BundleError: it is no bundle, of a newer format, truncated or damaged.
    """

    def __init__(self, content: bytes | memoryview, origin: str):
        values, self._blobs = container.unpack(content, origin)
        self.bytes = content
        self.manifest: Manifest = parse(values, [len(blob) for blob in self._blobs], origin)
        self._libraries: dict[tuple[int, bool], KernelLibrary] = {}

    def blob(self, number: int) -> memoryview:
        """The bytes of a blob."""
        return self._blobs[number]

    def library(self, number: int, is_emulated: bool = False) -> KernelLibrary:
        """A library of the manifest, in this process or in emulation.

        Raises:
            BundleError: it cannot be loaded, or lacks kernels.
            EmulationError: it cannot be emulated.
        """
        if (number, is_emulated) not in self._libraries:
            entry = self.manifest.libraries[number]
            library = self._open(entry, is_emulated)
            for kernel in self.manifest.kernels:
                for variant in kernel.variants:
                    if variant.library == number:
                        _check_table(library, variant.index, kernel, entry.target)
            self._libraries[number, is_emulated] = library
        return self._libraries[number, is_emulated]

    def _open(self, entry: LibraryEntry, is_emulated: bool) -> KernelLibrary:
        content, name = self._blobs[entry.blob], f"target {entry.target}"
        if not is_emulated:
            return Library(content, name)
        from ..emulation import open_library  # programs that do not emulate load nothing of it

        return open_library(content, entry.architecture, entry.emulated_cpu, name)

    def subset(self, entries: Sequence[KernelEntry], single: bool) -> bytes:
        """The file of a bundle with some of the kernels, and the whole libraries."""
        kept: dict[int, int] = {}

        def keep(blob: int) -> int:
            return kept.setdefault(blob, len(kept))

        libraries = tuple(replace(entry, blob=keep(entry.blob)) for entry in self.manifest.libraries)
        kernels = tuple(
            KernelEntry(
                entry.name,
                entry.aliases,
                entry.operator,
                {
                    name: ConstantEntry(keep(constant.blob), constant.dtype, constant.shape)
                    for name, constant in entry.constants.items()
                },
                entry.variants,
            )
            for entry in entries
        )
        manifest = Manifest(self.manifest.producer, self.manifest.requantize, single, libraries, kernels)
        return container.pack(manifest.to_dictionary(), [self._blobs[blob] for blob in kept])


def _check_table(library: KernelLibrary, index: int, kernel: KernelEntry, target: str) -> None:
    """Raises BundleError unless the library's kernel has the tensors that the manifest says."""
    inputs = [tensor for tensor in kernel.operator.tensors if tensor.name not in kernel.constants]
    expected = [
        Argument(tensor.name, tensor.dtype, tensor.shape, tensor.optional)
        for tensor in (*inputs, *kernel.operator.outputs)
    ]
    if index >= library.kernel_count or library.arguments(index) != expected:
        raise BundleError(
            f"The library of target {target} lacks kernel {kernel.name!r}, or has another one in its place.",
            remedy="compile the bundle again",
        )
