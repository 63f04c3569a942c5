"""Times kernels on this machine: medians of repeated calls."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..reference.random_values import kernel_values
from ..runtime.kernel import Kernel
from ..spec import Convolution, MatrixMultiply, Operator

_LEAST_CALLS = 5


@dataclass(frozen=True)
class Timing:
    """The speed of one kernel with a number of threads.

    Args:
        name: the kernel.
        operator: name of its operator.
        target: the variant that ran.
        threads: number of threads.
        seconds: median of a call.
        spread: (slowest - fastest) / median of the middle half of the calls.
        calls: number of timed calls.
        operations: multiply-accumulates, or elements, of a call.
        unit: "MAC" or "element".
    """

    name: str
    operator: str
    target: str
    threads: int
    seconds: float
    spread: float
    calls: int
    operations: int
    unit: str

    @property
    def rate(self) -> float:
        """Operations a second, in units of 10^9."""
        return self.operations / self.seconds / 1e9


def measure(
    kernels: Sequence[Kernel],
    *,
    threads: Sequence[int],
    seconds: float = 0.2,
    seed: int = 0,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[Timing]:
    """Times kernels on random tensors, outputs allocated beforehand.

    Args:
        kernels: what to time.
        threads: numbers of threads to time each kernel with.
        seconds: time spent on each kernel and number of threads.
        seed: of the tensors.
        progress: called with (kernels done, kernels in all, name of the next) before each kernel and at the end.
    """
    timings = []
    for number, kernel in enumerate(kernels):
        if progress is not None:
            progress(number, len(kernels), kernel.name)
        timings += [_time_kernel(kernel, count, seconds, seed) for count in threads]
    if progress is not None:
        progress(len(kernels), len(kernels), "")
    return timings


def _time_kernel(kernel: Kernel, threads: int, seconds: float, seed: int) -> Timing:
    values = kernel_values(kernel.operator, kernel.constants, np.random.default_rng(seed))
    inputs = {tensor.name: values[tensor.name] for tensor in kernel.inputs}
    outputs = [np.empty(tensor.shape, tensor.dtype) for tensor in kernel.outputs]

    def sample() -> float:
        return kernel.time(out=outputs, num_threads=threads, **inputs)

    sample()  # a warm-up
    sample()
    samples = samples_of(sample, seconds, _LEAST_CALLS)
    median = statistics.median(samples)
    return Timing(
        kernel.name,
        kernel.operator.name,
        kernel.variant.target,
        threads,
        median,
        spread_of(samples),
        len(samples),
        kernel.operator.operations,
        unit_of(kernel.operator),
    )


def samples_of(sample: Callable[[], float], seconds: float, least: int) -> list[float]:
    """Samples, without a warm-up, for about `seconds` in all and `least` samples at least."""
    samples: list[float] = []
    end = time.perf_counter() + seconds
    while len(samples) < least or time.perf_counter() < end:
        samples.append(sample())
    return samples


def spread_of(samples: Sequence[float]) -> float:
    """(slowest - fastest) / median of the middle half of the samples."""
    middle = sorted(samples)[len(samples) // 4 : -(len(samples) // 4) or None]
    return (middle[-1] - middle[0]) / statistics.median(samples)


def unit_of(operator: Operator) -> str:
    """What an operator's operations are: "MAC" or "element"."""
    return "MAC" if isinstance(operator, (Convolution, MatrixMultiply)) else "element"
