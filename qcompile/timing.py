"""Times kernels on this machine: medians of repeated calls."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .runtime.kernel import Kernel
from .spec import Convolution, MatrixMultiply, Operator
from .verification import kernel_values


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
    values = kernel_values(kernel, np.random.default_rng(seed))
    inputs = {tensor.name: values[tensor.name] for tensor in kernel.inputs}
    outputs = [np.empty(tensor.shape, tensor.dtype) for tensor in kernel.outputs]

    def call() -> None:
        kernel(out=outputs, num_threads=threads, **inputs)

    samples = time_calls(call, seconds)
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


def time_calls(call: Callable[[], None], seconds: float, least: int = 5) -> list[float]:
    """Seconds of each call, after a warm-up, for about `seconds` in all and `least` calls at least."""
    call()
    call()
    return sample_calls(call, seconds, least)


def sample_calls(call: Callable[[], None], seconds: float, least: int) -> list[float]:
    """Seconds of each call, without a warm-up, for about `seconds` in all and `least` calls at least."""
    samples: list[float] = []
    end = time.perf_counter() + seconds
    while len(samples) < least or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        samples.append(time.perf_counter() - start)
    return samples


def spread_of(samples: Sequence[float]) -> float:
    """(slowest - fastest) / median of the middle half of the samples."""
    middle = sorted(samples)[len(samples) // 4 : -(len(samples) // 4) or None]
    return (middle[-1] - middle[0]) / statistics.median(samples)


def unit_of(operator: Operator) -> str:
    """What an operator's operations are: "MAC" or "element"."""
    return "MAC" if isinstance(operator, (Convolution, MatrixMultiply)) else "element"
