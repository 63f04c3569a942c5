"""The worker that runs candidates: checks every bit, then takes the time."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..checks.timing import samples_of, spread_of
from ..checks.verification import describe_difference
from ..constants.facts import Facts
from ..errors import QCompileError
from ..reference import evaluate
from ..runtime.kernel import Kernel
from ..runtime.loader import load_bundle
from ..spec import naming
from .draws import drawn_values

Array = npt.NDArray[Any]

#: random draws that every candidate is checked on
DRAWS = 2
_ALIGNMENT = 64
_WARM_UP_SECONDS = 0.01
_LEAST_CALLS = 5
#: so many calls show whether a candidate is far behind
_FIRST_CALLS = 3
_FAR_BEHIND = 2.0


@dataclass(frozen=True)
class _Draw:
    """Inputs, expected outputs, and arrays for the outputs; all candidates get the same ones."""

    inputs: dict[str, Array]
    expected: dict[str, Array]
    outputs: list[Array]

    def poison(self) -> None:
        """Makes every byte of the outputs wrong: what the last candidate wrote must not pass for the next one's."""
        for right, output in zip(self.expected.values(), self.outputs, strict=True):
            np.bitwise_not(_bytes(right), out=_bytes(output))


class Runner:
    """Runs candidates of the operator that it was given last."""

    def __init__(self) -> None:
        self._draws: list[_Draw] = []

    def answers(self, message: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """To "open": {}. To "measure": status, with times or a cause. To "compare": one of these for each candidate."""
        if message["do"] == "open":
            self._open(message["kernel"], message["constants"], message["seed"], Facts.parse(message["facts"]))
            yield {}
        elif message["do"] == "measure":
            yield self._measure(message["path"], message["threads"], message["seconds"], message["best"])
        else:
            yield {"results": self._compare(message["paths"], message["threads"], message["seconds"])}

    def _open(self, name: str, constants: list[str], seed: int, facts: Facts) -> None:
        operator = naming.parse(name)
        fixed: dict[str, Array] = {}
        self._draws = []
        for number in range(DRAWS):
            values = {**drawn_values(operator, seed, number, facts), **fixed}
            fixed = fixed or {name: values[name] for name in constants}
            inputs = {name: _aligned(value) for name, value in values.items() if name not in constants}
            expected = {name: np.ascontiguousarray(right) for name, right in evaluate(operator, values).items()}
            self._draws.append(_Draw(inputs, expected, [_aligned(right) for right in expected.values()]))

    def _check(self, kernel: Kernel, threads: int) -> str:
        """Where the kernel is wrong; "" where it is exact."""
        for draw in self._draws:
            draw.poison()
            kernel(out=draw.outputs, num_threads=threads, **draw.inputs)
            for (name, right), output in zip(draw.expected.items(), draw.outputs, strict=True):
                detail = describe_difference(name, right, output, kernel)
                if detail:
                    return detail
        return ""

    def _sample(self, kernel: Kernel, threads: int) -> Callable[[], float]:
        """A function that runs the kernel once and returns the seconds that it took."""
        draw = self._draws[0]
        return lambda: kernel.time(out=draw.outputs, num_threads=threads, **draw.inputs)

    def _measure(self, path: str, threads: int, seconds: float, best: float | None) -> dict[str, Any]:
        try:
            kernel = next(iter(load_bundle(path)))
            detail = self._check(kernel, threads)
            if detail:
                return {"status": "wrong result", "cause": detail}
            sample = self._sample(kernel, threads)
            _warm_up(sample)
            samples = samples_of(sample, 0, _FIRST_CALLS)
            if best is None or min(samples) < _FAR_BEHIND * best:
                samples += samples_of(sample, seconds, _LEAST_CALLS - _FIRST_CALLS)
            return _times(samples)
        except QCompileError as error:
            return {"status": "run error", "cause": error.problem}

    def _compare(self, paths: list[str], threads: int, seconds: float) -> list[dict[str, Any]]:
        """Measures several candidates in turns, so that what disturbs the machine disturbs all of them."""
        results: list[dict[str, Any]] = [{} for _ in paths]
        measures: dict[int, Callable[[], float]] = {}
        for number, path in enumerate(paths):
            with _failure_in(results[number]):
                kernel = next(iter(load_bundle(path)))
                detail = self._check(kernel, threads)
                if detail:
                    results[number] |= {"status": "wrong result", "cause": detail}
                else:
                    measures[number] = self._sample(kernel, threads)
        samples: dict[int, list[float]] = {number: [] for number in measures}
        turns = max(3, round(seconds / 0.02))
        end = time.perf_counter() + seconds * max(1, len(measures))
        for turn in range(turns):
            if turn >= 3 and time.perf_counter() > end:
                break
            for number, sample in measures.items():
                sample()
                samples[number] += samples_of(sample, seconds / turns, 1)
        for number, own in samples.items():
            results[number] |= _times(own)
        return results


@contextlib.contextmanager
def _failure_in(result: dict[str, Any]) -> Iterator[None]:
    try:
        yield
    except QCompileError as error:
        result |= {"status": "run error", "cause": error.problem}


def _warm_up(sample: Callable[[], float]) -> None:
    end = time.perf_counter() + _WARM_UP_SECONDS
    sample()
    while time.perf_counter() < end:
        sample()


def _times(samples: list[float]) -> dict[str, Any]:
    median = statistics.median(samples)
    return {
        "status": "ok",
        "seconds": float(f"{median:.5g}"),
        "spread": float(f"{spread_of(samples):.3g}"),
        "calls": len(samples),
    }


def _aligned(array: Array) -> Array:
    """A copy at an address that is a multiple of a cache line, as no two candidates should differ by."""
    room = np.empty(array.nbytes + _ALIGNMENT, np.uint8)
    start = -room.__array_interface__["data"][0] % _ALIGNMENT
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _bytes(array: Array) -> npt.NDArray[np.uint8]:
    return array.reshape(-1).view(np.uint8)
