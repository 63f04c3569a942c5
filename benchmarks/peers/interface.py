"""What a peer is: a library that can compute some of our operators."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from qcompile.spec import Operator

Values = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Prepared:
    """An operator with everything but the data constant, ready to be called again and again on the same data.

    Args:
        call: computes it once.
        output: codes of the last call, in the operator's layout; None where a peer's codes are not compared.
    """

    call: Callable[[], object]
    output: Callable[[], npt.NDArray[Any]] | None


@dataclass(frozen=True)
class Peer:
    """A library, or a library with one of its engines.

    Args:
        name: as in tables and in `--peers`.
        module: what is imported, at the first `prepare` and not before.
        distributions: packages that bring the module; the first that is installed tells the version.
        supports: whether it has the operator with these types, this padding and this layout of the data.
        prepare: (operator, values of all of its tensors, threads) -> what is timed.
        objects: patterns, from the module's folder, of the shared objects that ask the CPU what it can do.
        avx2_environment: documented switches that restrict it to AVX2, for what does not ask there.
        saturates_on_avx2: keys of operands.TYPES for which its kernels for AVX2 are documented to saturate; right sums
            of the largest codes then show that other kernels ran.
        environment: variables that keep its threads from spinning after a call, when another one is timed.
    """

    name: str
    module: str
    distributions: tuple[str, ...]
    supports: Callable[[Operator], bool]
    prepare: Callable[[Operator, Values, int], Prepared]
    objects: tuple[str, ...] = ()
    avx2_environment: Mapping[str, str] = field(default_factory=dict)
    saturates_on_avx2: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def version(self) -> str | None:
        """Of the installed package; None where it is absent."""
        if importlib.util.find_spec(self.module) is None:
            return None
        for name in self.distributions:
            try:
                return importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue
        return "of unknown version"

    @property
    def masked_objects(self) -> list[Path]:
        """Paths of `objects`, without importing the module."""
        spec = importlib.util.find_spec(self.module)
        if spec is None or spec.origin is None:
            return []
        return sorted(path for pattern in self.objects for path in Path(spec.origin).parent.glob(pattern))


def channels_first(array: npt.NDArray[Any], layout: str) -> npt.NDArray[Any]:
    """An array of ours, or a filter, as NCHW or OIHW."""
    return np.ascontiguousarray(np.moveaxis(array, -1, 1)) if layout == "NHWC" else array


def float_bias(values: Values, data: str, weights: str) -> npt.NDArray[np.float32]:
    """The bias as numbers; a library that rounds them to multiples of the scales' product gets our codes again."""
    factors = np.float64(values[f"{data}_scale"]) * values[f"{weights}_scale"].astype(np.float64)
    return np.asarray(values["bias"] * factors, np.float32)
