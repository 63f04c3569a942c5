"""Measures one operator: our kernel, the peers that have it, and the machine's limits, in turns."""

from __future__ import annotations

import math
import statistics
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import limits
import numpy as np
from interleaved import spread, turns
from operands import Values
from peers import Peer, Prepared
from suites import Case
from verdict import judge

import qcompile as qc
from qcompile.checks.verification import differing
from qcompile.reference import evaluate
from qcompile.spec import Convolution, MatrixMultiply

#: Verdicts of a peer whose sums are right.
RIGHT = ("exact", "rounding")


@dataclass(frozen=True)
class PeerResult:
    """A peer's part of a line.

    Args:
        microseconds: of one call.
        verdict: "exact", "rounding" or "wrong"; None where codes are not compared.
        wrong_share, largest_difference: as in verdict.Verdict.
        is_held: False where it was to keep to AVX2 and did not; it is then in no ratio to the best peer.
    """

    microseconds: float
    verdict: str | None
    wrong_share: float | None
    largest_difference: int | None
    is_held: bool = True


@dataclass(frozen=True)
class Line:
    """One operator with a number of threads.

    Args:
        suite, name, types, layout, count: as in suites.Case.
        threads: number of threads, ours and the peers'.
        microseconds: of one call of ours.
        rate: 10^9 multiply-accumulates or elements a second.
        spread: how much our times in the middle half of the turns differ, as a share of the median.
        peers: name -> result, of those that have the operator.
        port_share: share of the limit of `multiplier`; for convolutions and products.
        multiplier: the instruction that multiplies in dense kernels of the target.
        read_share: bytes of weights a second as a share of what the memory level `read_level` delivers; for products of
            one row.
        copy_share: bytes read and written a second, as a share of what a copy of large arrays reaches; for operators on
            single elements. Above 1 where the tensors fit the caches.
        limits: share -> what it is a share of, as measured in the same turns: multiply-accumulates or bytes a second.
        failures: peer -> error, of those that said to have the operator and raised one.
    """

    suite: str
    name: str
    types: str
    layout: str
    count: int
    threads: int
    microseconds: float
    rate: float
    spread: float
    peers: Mapping[str, PeerResult]
    port_share: float | None = None
    multiplier: str = ""
    read_share: float | None = None
    read_level: str | None = None
    copy_share: float | None = None
    limits: Mapping[str, float] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """What it is compared by."""
        return self.suite, self.name, self.types, self.layout, self.threads

    def ratio(self, peer: str) -> float | None:
        """The peer's time / ours, or None."""
        result = self.peers.get(peer)
        return result.microseconds / self.microseconds if result else None

    def best(self, verdicts: Sequence[str | None] = (*RIGHT, "wrong", None)) -> tuple[str, float] | None:
        """Name and ratio of the fastest held peer that has one of the verdicts."""
        names = [name for name, result in self.peers.items() if result.is_held and result.verdict in verdicts]
        ratios = {name: self.peers[name].microseconds / self.microseconds for name in names}
        return min(ratios.items(), key=lambda item: item[1]) if ratios else None

    def without(self, names: Container[str]) -> Line:
        """The same line with these peers marked as not held."""
        peers = {name: replace(result, is_held=name not in names) for name, result in self.peers.items()}
        return replace(self, peers=peers)

    def as_json(self) -> dict[str, Any]:
        """The fields, and the best peers."""
        right, fastest = self.best(RIGHT), self.best()
        return {
            **asdict(self),
            "best_right_peer": right[0] if right else None,
            "ratio_to_best_right_peer": right[1] if right else None,
            "best_peer": fastest[0] if fastest else None,
            "ratio_to_best_peer": fastest[1] if fastest else None,
        }


def geometric_mean(ratios: Iterable[float | None]) -> float | None:
    """Of those that are there."""
    present = [ratio for ratio in ratios if ratio is not None]
    return math.exp(sum(map(math.log, present)) / len(present)) if present else None


def measure(
    case: Case, threads: int, peers: Sequence[Peer], rounds: int, target: str, compile_options: Mapping[str, Any]
) -> Line:
    """Times one operator against its peers and the limits.

    Args:
        case: the operator.
        threads: number of threads of all.
        peers: those that are installed.
        rounds: turns.
        target: of our kernel.
        compile_options: more arguments of qcompile.compile.

    Raises:
        RuntimeError: our kernel's output is not the reference's.
    """
    operator, values = case.operator, case.values()
    constants = {tensor.name: values[tensor.name] for tensor in operator.tensors if tensor.role != "data"}
    kernel = qc.compile(operator, target, constants, **compile_options)
    inputs = {tensor.name: values[tensor.name] for tensor in kernel.inputs}
    outputs = [np.empty(tensor.shape, tensor.dtype) for tensor in kernel.outputs]
    expected = evaluate(operator, values)

    def ours() -> None:
        kernel(out=outputs, num_threads=threads, **inputs)

    ours()
    for (name, right), output in zip(expected.items(), outputs, strict=True):
        if differing(right, output).any():
            raise RuntimeError(f"{case.title}: our {name} is wrong")
    prepared, failures = _prepare(case, values, threads, peers)
    multiplier = limits.multiplier_of(kernel.variant.target)
    chosen = _limits(case, values, threads, multiplier)
    calls = {"ours": ours, **{name: entry.call for name, entry in prepared.items()}}
    samples = turns({**calls, **{f"limit {name}": limit.call for name, limit in chosen.items()}}, rounds)
    seconds = {name: statistics.median(values) for name, values in samples.items()}
    amounts = {
        "port_share": operator.operations,
        "read_share": values["b"].nbytes if "b" in values else 0,
        "copy_share": sum(array.nbytes for array in (*inputs.values(), *outputs)),
    }
    rates = {name: limit.rate(seconds[f"limit {name}"]) for name, limit in chosen.items()}
    shares = {name: amounts[name] / seconds["ours"] / rate for name, rate in rates.items()}
    level = limits.memory_level(values["b"].nbytes, threads) if "read_share" in shares else None
    return Line(
        case.suite,
        case.title,
        case.types,
        case.layout,
        case.count,
        threads,
        seconds["ours"] * 1e6,
        operator.operations / seconds["ours"] / 1e9,
        spread(samples["ours"]),
        {name: _result(entry, seconds[name], expected["output"]) for name, entry in prepared.items()},
        **shares,
        multiplier=multiplier if "port_share" in shares else "",
        read_level=level,
        limits=rates,
        failures=failures,
    )


def _prepare(
    case: Case, values: Values, threads: int, peers: Sequence[Peer]
) -> tuple[dict[str, Prepared], dict[str, str]]:
    """(calls of the peers that have the operator, errors of those that fail at it)."""
    prepared, failures = {}, {}
    for peer in peers:
        if peer.supports(case.operator):
            try:
                entry = peer.prepare(case.operator, values, threads)
                entry.call()
            except Exception as error:  # whatever a library raises: it is reported, and the others are measured
                failures[peer.name] = f"{type(error).__name__}: {error}"
            else:
                prepared[peer.name] = entry
    return prepared, failures


def _limits(case: Case, values: Values, threads: int, multiplier: str) -> dict[str, limits.Limit]:
    """Name of a share -> what it is a share of."""
    operator = case.operator
    if not isinstance(operator, (Convolution, MatrixMultiply)):
        return {"copy_share": limits.copy_limit()}
    if not limits.is_available(multiplier):
        return {}
    chosen = {"port_share": limits.multiply_add_limit(threads, multiplier)}
    if isinstance(operator, MatrixMultiply) and operator.rows == 1:
        level = limits.memory_level(values["b"].nbytes, threads)
        chosen["read_share"] = limits.read_limit(level, threads)
    return chosen


def _result(prepared: Prepared, seconds: float, expected: Any) -> PeerResult:
    if prepared.output is None:
        return PeerResult(seconds * 1e6, None, None, None)
    verdict = judge(prepared.output(), expected)
    return PeerResult(seconds * 1e6, verdict.word, verdict.wrong_share, verdict.largest_difference)
