"""After how many trials the search comes near the optimum: replayed on spaces of which all times are known.

    python benchmarks/search.py                 invented spaces
    qcompile tune layers.toml --records all.json --trials 100000
    python benchmarks/search.py all.json        spaces that were measured completely

Prints for each space after how many trials the best is within 2 % of the optimum, for the search of qcompile and for
random search: the mean and the 90th percentile of many orders of the candidates, which decide between equal ones.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qcompile import records
from qcompile.tuning.search import Search
from qcompile.tuning.space import Candidate, coordinates_of

#: how near the optimum is near enough
NEAR = 1.02
#: smaller spaces say nothing
SMALLEST_SPACE = 20

#: (points as coordinates, times, generator) -> the order in which points are tried
Strategy = Callable[["np.ndarray", Sequence[float], random.Random], list[int]]


def by_search(batch: int) -> Strategy:
    """The search, asked for so many points at a time."""

    def order(coordinates: np.ndarray, times: Sequence[float], generator: random.Random) -> list[int]:
        search = Search(coordinates)
        tried: list[int] = []
        while points := search.ask(batch):
            for point in points:
                search.tell(point, times[point])
            tried += points
            if min(times[point] for point in points) <= NEAR * min(times):
                break
        return tried

    return order


def by_chance(coordinates: np.ndarray, times: Sequence[float], generator: random.Random) -> list[int]:
    """The default, then any order."""
    return [0, *generator.sample(range(1, len(times)), len(times) - 1)]


def trials_needed(order: Sequence[int], times: Sequence[float]) -> int:
    """The number of trials until the best is near the optimum."""
    limit = NEAR * min(times)
    return 1 + next(number for number, point in enumerate(order) if times[point] <= limit)


def replay(space: Space, strategy: Strategy, rounds: int) -> tuple[float, int]:
    """(mean, 90th percentile) of the trials that are needed."""
    needed = []
    for seed in range(rounds):
        generator = random.Random(seed)
        order = [0, *generator.sample(range(1, len(space.candidates)), len(space.candidates) - 1)]
        coordinates = coordinates_of([space.candidates[number] for number in order])
        times = [space.times[number] for number in order]
        needed.append(trials_needed(strategy(coordinates, times, generator), times))
    return statistics.mean(needed), sorted(needed)[int(0.9 * (rounds - 1))]


@dataclass(frozen=True)
class Space:
    """Candidates and their times; the first is the default."""

    name: str
    candidates: list[Candidate]
    times: list[float]


def measured_spaces(path: str) -> list[Space]:
    """The spaces of a file of records."""
    groups = defaultdict(list)
    for record in records.latest(record for record in records.read(path) if record.stage == "search"):
        if record.is_ok:
            groups[records.comparison(record)].append(record)
    return [
        Space(
            f"{key[0]}, {threads} threads",
            [Candidate(record.rule, record.rule_version, record.knobs) for record in own],
            [record.seconds or float("inf") for record in own],
        )
        for (key, threads, _), own in groups.items()
        if len(own) >= SMALLEST_SPACE
    ]


def invented_spaces() -> list[Space]:
    """A register tile with steps and spills, and a smooth valley with a knob that changes another's best value."""
    tiles = {"accumulators": range(4, 17), "tile": range(1, 9), "block": (8, 16, 32, 64, 128, 256), "order": range(3)}
    valley = {"a": (1, 2, 4, 8, 16, 32), "b": range(1, 9), "c": (16, 32, 64, 128, 256), "d": (0, 1), "e": (1, 2, 4)}
    return [_invented("register tile", tiles, _tile_time), _invented("valley", valley, _valley_time)]


def _invented(name: str, axes: Mapping[str, Sequence[int]], time: Callable[[Mapping[str, int]], float]) -> Space:
    points = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    return Space(name, [Candidate(name, 1, point) for point in points], list(map(time, points)))


def _tile_time(knobs: Mapping[str, int]) -> float:
    tile = knobs["tile"]
    blocks = knobs["accumulators"] // tile
    if blocks == 0:
        return 9.0
    spilled = max(0, blocks * tile + tile + blocks - 15)
    rows = -(-56 // tile) * tile / 56
    memory = 1 + 0.1 * abs(math.log2(knobs["block"]) - 6) + (0.07, 0.15, 0.0)[knobs["order"]]
    return rows * (1 + 0.12 * spilled) * (1 + 0.6 / (blocks * tile)) * memory


def _valley_time(knobs: Mapping[str, int]) -> float:
    a, c, e = (math.log2(knobs[name]) for name in ("a", "c", "e"))
    exponent = 0.15 * (a - 3) ** 2 + 0.05 * (knobs["b"] - 4) ** 2 + 0.08 * (c - 6) ** 2 * (1 + knobs["d"])
    return math.exp(exponent + 0.1 * knobs["d"] + 0.12 * abs(e - 1) + 0.05 * abs(a + math.log2(knobs["b"]) - 4.5))


def main() -> None:
    """Replays all spaces."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="?", help="file of records of spaces that were measured completely")
    parser.add_argument("--rounds", type=int, default=30, help="orders of the candidates (default: 30)")
    parser.add_argument("--batch", type=int, default=4, help="candidates that are built together (default: 4)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    arguments = parser.parse_args()
    spaces = invented_spaces() if arguments.records is None else measured_spaces(arguments.records)
    strategies = {"search": by_search(arguments.batch), "random": by_chance}
    lines = []
    for space in spaces:
        best = min(space.times)
        line: dict[str, object] = {"space": space.name, "points": len(space.times)}
        line["near"] = sum(time <= NEAR * best for time in space.times)
        line["default"] = space.times[0] / best
        for name, strategy in strategies.items():
            line[f"{name}_mean"], line[f"{name}_most"] = replay(space, strategy, arguments.rounds)
        lines.append(line)
    if arguments.json:
        print(json.dumps({"lines": lines}, indent=2))
        return
    print(f"trials until within {NEAR - 1:.0%} of the optimum: mean (90th percentile) of {arguments.rounds} orders")
    print(f"{'points':>7} {'near':>5} {'default':>8} {'search':>12} {'random':>12}  space")
    for line in lines:
        cells = " ".join(f"{line[f'{name}_mean']:.1f} ({line[f'{name}_most']})".rjust(12) for name in strategies)
        print(f"{line['points']:>7} {line['near']:>5} {line['default']:>8.3f} {cells}  {line['space']}")


if __name__ == "__main__":
    main()
