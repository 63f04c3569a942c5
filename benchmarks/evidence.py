"""Gathers what shows whether a peer keeps to AVX2: small operators of the largest codes, timed beside the ports.

Every activation is the code that is farthest from its zero point, and every weight is 127 or -127, the same in a whole
column. So whichever products a kernel adds in int16, their sum does not fit. held.py decides what that proves.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import limits
import numpy as np
import operands
from held import INSTRUCTIONS, Evidence
from interleaved import turns
from measure import RIGHT
from operands import Values
from peers import Peer, Prepared
from shapes import ProductLayer, parse_layer
from suites import Case
from verdict import judge

from qcompile.reference import evaluate
from qcompile.spec import Operator

#: Layer -> whether its time proves something; for the last one, Winograd's method forms fewer products.
_PROBES = {
    "product 128x1024x512": True,
    "conv 28x28 256->256 1x1": True,
    "conv 14x14 128->128 3x3": False,
}
_ROUNDS = 7
#: Codes between an output and its zero point: far from saturation, and no tie.
_DISTANCE = 80


def gather(work: Iterable[Case], peers: Sequence[Peer]) -> tuple[list[Evidence], dict[str, str]]:
    """What each peer does, with the types and layouts of the work, on one thread.

    Args:
        work: what will be measured; operators on single elements are not examined.
        peers: those that are installed.

    Returns:
        (evidence, peer -> error of those that could not be examined).
    """
    evidence: list[Evidence] = []
    failures: dict[str, str] = {}
    if not limits.is_available():
        return evidence, failures
    for text, is_timed, types, layout in _probes(work):
        layer = parse_layer(text)
        operator = operands.operator(layer, types, layout)
        values = extreme_values(operator, types)
        expected = evaluate(operator, values)["output"]
        prepared: dict[str, tuple[Peer, Prepared]] = {}
        for peer in peers:
            if peer.supports(operator):
                try:
                    entry = peer.prepare(operator, values, 1)
                    entry.call()
                except Exception as error:  # whatever a library raises: it is reported, and the others are examined
                    failures[peer.name] = f"{type(error).__name__}: {error}"
                else:
                    prepared[peer.name] = (peer, entry)
        rates = _rates({name: entry for name, (_, entry) in prepared.items()}, operator) if is_timed else {}
        ports = {name: rates[name] for name in INSTRUCTIONS.values() if name in rates}
        for name, (peer, entry) in prepared.items():
            if entry.output is not None:
                is_right = judge(entry.output(), expected).word in RIGHT
                saturates = types in peer.saturates_on_avx2
                evidence.append(Evidence(name, text, types, is_right, saturates, rates.get(name), ports))
    return evidence, failures


def _probes(work: Iterable[Case]) -> list[tuple[str, bool, str, str]]:
    """(layer, whether its time proves something, types, layout), each once."""
    kinds = {(full_range(case.types), case.layout) for case in work if case.types}
    found: dict[tuple[str, bool, str, str], None] = {}
    for types, layout in sorted(kinds):
        for text, is_timed in _PROBES.items():
            is_product = isinstance(parse_layer(text), ProductLayer)
            if is_product or layout:
                found[text, is_timed, types, "" if is_product else layout] = None
    return list(found)


def full_range(types: str) -> str:
    """The types with the same representation whose weights fill eight bits; peers do not tell them apart."""
    return next(name for name, entry in operands.TYPES.items() if entry[:2] == operands.TYPES[types][:2])


def extreme_values(operator: Operator, types: str) -> Values:
    """All tensors of an operator that operands.operator made of these types.

    The bias is 0. Scales are such that each output is exactly _DISTANCE codes above or below its zero point.
    """
    values = operands.values(operator, types)
    data, weights = ("a", "b") if "b" in values else ("input", "filter")
    info = np.iinfo(values[data].dtype)
    zero_point = int(values[f"{data}_zero_point"])
    code = max(int(info.min), int(info.max), key=lambda entry: abs(entry - zero_point))
    shape = values[weights].shape
    channels = shape[-1 if weights == "b" else 0]
    signs = 1 - 2 * (np.arange(channels) % 2)
    signs = signs if weights == "b" else signs.reshape(-1, *[1] * (len(shape) - 1))
    centre = 128 if values[weights].dtype == np.uint8 else 0
    scale = np.float32(0.005)
    length = operator.accumulation_length
    changed: dict[str, Any] = {
        data: np.full_like(values[data], code),
        weights: np.broadcast_to(127 * signs + centre, shape).astype(values[weights].dtype),
        f"{weights}_scale": np.full_like(values[f"{weights}_scale"], scale),
        "output_scale": np.float32(
            float(values[f"{data}_scale"]) * float(scale) * 127 * abs(code - zero_point) * length / _DISTANCE
        ),
    }
    if "bias" in values:
        changed["bias"] = np.zeros_like(values["bias"])
    return {name: np.asarray(changed.get(name, value)) for name, value in values.items()}


def _rates(prepared: dict[str, Prepared], operator: Operator) -> dict[str, float]:
    """Products a second of peers, by the median of the turns, and of single instructions, by their fastest turn."""
    chosen = {name: limits.multiply_add_limit(1, name) for name in INSTRUCTIONS.values()}
    calls = {name: entry.call for name, entry in prepared.items()}
    samples = turns({**calls, **{name: limit.call for name, limit in chosen.items()}}, _ROUNDS)
    rates = {name: limit.rate(min(samples[name])) for name, limit in chosen.items()}
    return rates | {name: operator.operations / statistics.median(samples[name]) for name in calls}
