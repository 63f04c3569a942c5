"""Times several ways to do the same thing in turns, so that a change of the machine's speed meets all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

Call = Callable[[], object]

#: Seconds that `settle` looks at the other threads for, and waits for them at most.
_LOOK = 0.001
_LONGEST_WAIT = 0.2


def medians(calls: Mapping[str, Call], rounds: int = 15, seconds_per_round: float = 0.01) -> dict[str, float]:
    """Seconds of one call of each: the medians of `turns`, which has the same arguments."""
    return {name: statistics.median(values) for name, values in turns(calls, rounds, seconds_per_round).items()}


def turns(calls: Mapping[str, Call], rounds: int = 15, seconds_per_round: float = 0.01) -> dict[str, list[float]]:
    """Seconds of one call of each in every round, as the mean within the round.

    Args:
        calls: name -> call.
        rounds: turns.
        seconds_per_round: time that each call is repeated for in a round.
    """
    repeats: dict[str, int] = {}
    for name, call in calls.items():
        call()  # warm up: pages, threads, caches
        start = time.perf_counter()
        call()
        repeats[name] = max(1, round(seconds_per_round / max(time.perf_counter() - start, 1e-9)))
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            settle()
            call()  # the caches hold another one's data, and its own threads sleep
            start = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            samples[name].append((time.perf_counter() - start) / repeats[name])
    return samples


def spread(samples: Sequence[float]) -> float:
    """How much the middle half of the samples differ, as a share of their median."""
    middle = sorted(samples)[len(samples) // 4 : -(len(samples) // 4) or None]
    return (middle[-1] - middle[0]) / statistics.median(samples)


def settle() -> None:
    """Waits until no other thread of this process works: some libraries' threads spin for a while after a call."""
    end = time.perf_counter() + _LONGEST_WAIT
    while time.perf_counter() < end:
        used = time.process_time()
        time.sleep(_LOOK)
        if time.process_time() - used < _LOOK / 4:
            return
