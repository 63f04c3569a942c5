"""The content of a bundle: manifest, blobs, and its libraries, loaded when they are first needed."""

from __future__ import annotations

from collections.abc import Sequence

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
        self._libraries: dict[int, Library] = {}

    def blob(self, number: int) -> memoryview:
        """The bytes of a blob."""
        return self._blobs[number]

    def library(self, number: int) -> Library:
        """A library of the manifest.

        Raises:
            BundleError: it cannot be loaded, or lacks kernels.
        """
        if number not in self._libraries:
            entry = self.manifest.libraries[number]
            library = Library(self._blobs[entry.blob], f"target {entry.target}")
            for kernel in self.manifest.kernels:
                for variant in kernel.variants:
                    if variant.library == number and variant.index >= library.kernel_count:
                        raise BundleError(
                            f"The library of target {entry.target} lacks kernel {kernel.name!r}.",
                            remedy="compile the bundle again",
                        )
            self._libraries[number] = library
        return self._libraries[number]

    def subset(self, entries: Sequence[KernelEntry], single: bool) -> bytes:
        """The file of a bundle with some of the kernels, and the whole libraries."""
        kept: dict[int, int] = {}

        def keep(blob: int) -> int:
            return kept.setdefault(blob, len(kept))

        libraries = tuple(
            LibraryEntry(keep(entry.blob), entry.target, entry.architecture, entry.required_features)
            for entry in self.manifest.libraries
        )
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
