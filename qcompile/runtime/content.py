"""The content of a bundle: manifest, blobs, and its libraries, loaded when they are first needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..backends import executor_of
from ..backends.interface import KernelLibrary, LibraryArgument, Place
from ..bundle import container
from ..bundle.manifest import KernelEntry, Manifest, parse
from ..errors import BundleError

OWN_PLACE = Place()


class Content:
    """What kernels share. They own it together, without a cycle: it goes, with its libraries, when the last does.

    Args:
        content: the bytes of the file.
        origin: what messages call it.

    Raises:
        BundleError: it is not a bundle, of a newer format, truncated or damaged.
    """

    def __init__(self, content: bytes | memoryview, origin: str):
        values, self._blobs, version = container.unpack(content, origin)
        self.bytes = content
        self.manifest: Manifest = parse(values, [len(blob) for blob in self._blobs], origin, version)
        self._libraries: dict[tuple[int, Place], KernelLibrary] = {}

    def blob(self, number: int) -> memoryview:
        """The bytes of a blob."""
        return self._blobs[number]

    def library(self, number: int, place: Place = OWN_PLACE) -> KernelLibrary:
        """A library of the manifest, opened in a place.

        Raises:
            BundleError: it cannot be loaded, or lacks kernels.
            EmulationError: it cannot be emulated.
        """
        if (number, place) not in self._libraries:
            entry = self.manifest.libraries[number]
            name = f"target {entry.target}"
            library = executor_of(entry.kind).open(self._blobs[entry.blob], entry.needs, name, place)
            for kernel in self.manifest.kernels:
                for variant in kernel.variants:
                    if variant.library == number:
                        _check_table(library, variant.index, kernel, entry.target)
            self._libraries[number, place] = library
        return self._libraries[number, place]

    def subset(self, entries: Sequence[KernelEntry], single: bool) -> bytes:
        """The file of a bundle with some of the kernels, and the whole libraries."""
        kept: dict[int, int] = {}

        def keep(blob: int) -> int:
            return kept.setdefault(blob, len(kept))

        libraries = tuple(replace(entry, blob=keep(entry.blob)) for entry in self.manifest.libraries)
        kernels = tuple(entry.with_blobs(keep) for entry in entries)
        manifest = Manifest(self.manifest.producer, self.manifest.requantize, single, libraries, kernels)
        return container.pack(manifest.to_dictionary(), [self._blobs[blob] for blob in kept])


def _check_table(library: KernelLibrary, index: int, kernel: KernelEntry, target: str) -> None:
    """Raises BundleError unless the library's kernel has the tensors that the manifest says."""
    inputs = [tensor for tensor in kernel.operator.tensors if tensor.name not in kernel.constants]
    expected = [
        LibraryArgument(tensor.name, tensor.dtype, tensor.shape, tensor.optional)
        for tensor in (*inputs, *kernel.operator.outputs)
    ]
    if index >= library.kernel_count or library.arguments(index) != expected:
        raise BundleError(
            f"The library of target {target} lacks kernel {kernel.name!r}, or has another one in its place.",
            remedy="compile the bundle again",
        )
