"""The multiplying instructions that schedules use, one row each. Target files name them; rules ask for what they need.

A row says what an instruction computes, not how code asks for it: that is in the module of each instruction.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Dot:
    """The extents of the small matrix product that one instruction computes: m x k times k x n.

    Args:
        m: rows of sums.
        n: columns of sums.
        k: products that are added up in each sum.
        steps: groups of k that one register of data holds; an instruction takes one of them (by-element forms).
    """

    m: int
    n: int
    k: int
    steps: int = 1

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"


@dataclass(frozen=True)
class Instruction:
    """An instruction that multiplies and adds.

    Args:
        name: what target files call it: the mnemonic and the bits of its vectors.
        dot: what it computes.
        data: element type of the operand that all columns share.
        weights: element type of the other operand.
        vector_bits: width of its vectors.
        features: alternatives, each a set of the code generator's CPU features that the instruction needs.
        symbol: the code generator's name of it.
        accumulates: whether it adds the products to its first operand; otherwise a vector addition follows.
        largest_weight: the sums are exact where no weight is larger in absolute value; None (default): for all.
        completed_by: the instruction that adds up what this one leaves side by side; "" (default) where it leaves
            nothing.
    """

    name: str
    dot: Dot
    data: str
    weights: str
    vector_bits: int
    features: tuple[frozenset[str], ...]
    symbol: str
    accumulates: bool = False
    largest_weight: int | None = None
    completed_by: str = ""


def _features(*alternatives: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(words.split()) for words in alternatives)


def _pairs(bits: int, features: str, symbol: str) -> Instruction:
    return Instruction(
        f"pmaddwd_{bits}", Dot(1, bits // 32, 2), "int16", "int16", bits, _features(features), f"llvm.x86.{symbol}"
    )


def _bytes(bits: int, features: str, symbol: str) -> Instruction:
    # two products of a uint8 with such weights fit int16, beyond which the instruction saturates
    return Instruction(
        f"pmaddubsw_{bits}", Dot(1, bits // 32, 4), "uint8", "int8", bits, _features(features), f"llvm.x86.{symbol}",
        largest_weight=64, completed_by=f"pmaddwd_{bits}",
    )  # fmt: skip


def _accumulating(mnemonic: str, bits: int, k: int, data: str, weights: str) -> Instruction:
    needed = _features("avx512vnni") if bits == 512 else _features("avxvnni", "avx512vnni avx512vl")
    return Instruction(
        f"{mnemonic}_{bits}", Dot(1, bits // 32, k), data, weights, bits, needed, f"llvm.x86.avx512.{mnemonic}.{bits}",
        accumulates=True,
    )  # fmt: skip


_ROWS = (
    _pairs(128, "sse2", "sse2.pmadd.wd"),
    _pairs(256, "avx2", "avx2.pmadd.wd"),
    _pairs(512, "avx512bw", "avx512.pmaddw.d.512"),
    _bytes(128, "ssse3", "ssse3.pmadd.ub.sw.128"),
    _bytes(256, "avx2", "avx2.pmadd.ub.sw"),
    _bytes(512, "avx512bw", "avx512.pmaddubs.w.512"),
    *(_accumulating("vpdpbusd", bits, 4, "uint8", "int8") for bits in (128, 256, 512)),
    *(_accumulating("vpdpwssd", bits, 2, "int16", "int16") for bits in (128, 256, 512)),
)
INSTRUCTIONS: dict[str, Instruction] = {row.name: row for row in _ROWS}
