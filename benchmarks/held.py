"""Decides which peers the mask of isa_mask.py does not hold, by what they did in evidence.py. Pure functions.

Speed: a 256-bit vpmaddubsw forms 32 products of bytes, and no instruction of AVX2 forms more. Where the sums of the
largest codes are right, a product takes as much as in vpmaddwd, which forms 16 from widened bytes: the result of a
vpmaddubsw of such codes fills int16 to more than half, or saturates, so that it has to be widened before it is added to
another one. vpmaddwd does that, as a second multiplication for 32 products; without it there are at least three more
operations (a shift and two additions), which take the time of the second multiplication on a CPU with two vector ports
for each that multiplies, as Zen 4 has, and more where there are fewer. So

    products a second <= 16 x rate of vpmaddwd                     right sums
                         32 x rate of vpmaddubsw                   any sums

with the rates measured without anything else (limits.py), in turns with the peer. A method that forms fewer products
(Winograd's, Strassen's), or that multiplies scalars or float32 at the same time, is not bound by it; evidence.py times
no operator for which a peer is known to do so.

Exactness: kernels for AVX2 that are documented to saturate cannot have the right sums of the largest codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

#: How far above the limit a peer is before it counts: turns on a shared machine differ by less.
MARGIN = 1.1
#: whether the sums of the largest codes are right -> the instruction alone that limits products a second; a key of
#: limits.MULTIPLIERS
INSTRUCTIONS = {True: "vpmaddwd alone", False: "vpmaddubsw alone"}


@dataclass(frozen=True)
class Evidence:
    """What a peer did with one operator, all of whose codes are the largest.

    Args:
        peer: its name.
        operator: for people.
        types: a key of operands.TYPES.
        is_right: whether the output is the one of exact sums.
        saturates_on_avx2: whether the peer's kernels for AVX2 are documented to saturate with these types.
        rate: products a second; None where time proves nothing.
        limits: value of INSTRUCTIONS -> products a second that it forms at most.
    """

    peer: str
    operator: str
    types: str
    is_right: bool
    saturates_on_avx2: bool
    rate: float | None = None
    limits: Mapping[str, float] = field(default_factory=dict)

    @property
    def port_share(self) -> float | None:
        """Products a second as a share of what the ports allow with AVX2; None where time proves nothing."""
        limit = self.limits.get(INSTRUCTIONS[self.is_right])
        return self.rate / limit if self.rate is not None and limit else None


def not_held(evidence: Iterable[Evidence]) -> dict[str, str]:
    """Name of each peer that used more than AVX2 at least once -> a sentence that says by what it is known."""
    seen: dict[str, list[Evidence]] = {}
    for entry in evidence:
        seen.setdefault(entry.peer, []).append(entry)
    reasons = {peer: [*_by_speed(entries), *_by_exactness(entries)] for peer, entries in seen.items()}
    return {
        peer: f"{peer} is not held by the mask: {', and '.join(texts)}; left out of the ratios"
        for peer, texts in reasons.items()
        if texts
    }


def _by_speed(evidence: Iterable[Evidence]) -> list[str]:
    shares = [(share, entry) for entry in evidence if (share := entry.port_share) is not None and share > MARGIN]
    if not shares:
        return []
    share, entry = max(shares, key=lambda pair: pair[0])
    return [f"it reaches {share:.2f} times what the ports of AVX2 allow ({_where(entry)})"]


def _by_exactness(evidence: Iterable[Evidence]) -> list[str]:
    found = [entry for entry in evidence if entry.is_right and entry.saturates_on_avx2]
    return [f"its sums are right where its kernels for AVX2 saturate ({_where(found[0])})"] if found else []


def _where(entry: Evidence) -> str:
    return f"{entry.operator}, {entry.types}"
