"""The multiplying instructions that schedule rules know, by LLVM's names: data, no code.

A target file names them in its fields; see `hardware.Hardware` for what each field's instructions compute.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Instruction:
    """An instruction.

    Args:
        vector_bits: width of its vectors.
        features: alternatives, each a set of LLVM's CPU features that it needs.
    """

    vector_bits: int
    features: tuple[frozenset[str], ...]


def _needs(vector_bits: int, *alternatives: str) -> Instruction:
    return Instruction(vector_bits, tuple(frozenset(words.split()) for words in alternatives))


_SHORT_VNNI = ("avxvnni", "avx512vnni avx512vl")
#: field of a target file -> LLVM's name -> the instruction
INSTRUCTIONS: dict[str, dict[str, Instruction]] = {
    "multiply_add_pairs": {
        "llvm.x86.sse2.pmadd.wd": _needs(128, "sse2"),
        "llvm.x86.avx2.pmadd.wd": _needs(256, "avx2"),
        "llvm.x86.avx512.pmaddw.d.512": _needs(512, "avx512bw"),
    },
    "multiply_add_bytes": {
        "llvm.x86.ssse3.pmadd.ub.sw.128": _needs(128, "ssse3"),
        "llvm.x86.avx2.pmadd.ub.sw": _needs(256, "avx2"),
        "llvm.x86.avx512.pmaddubs.w.512": _needs(512, "avx512bw"),
    },
    "dot_product": {
        "llvm.x86.avx512.vpdpbusd.128": _needs(128, *_SHORT_VNNI),
        "llvm.x86.avx512.vpdpbusd.256": _needs(256, *_SHORT_VNNI),
        "llvm.x86.avx512.vpdpbusd.512": _needs(512, "avx512vnni"),
    },
    "dot_product_pairs": {
        "llvm.x86.avx512.vpdpwssd.128": _needs(128, *_SHORT_VNNI),
        "llvm.x86.avx512.vpdpwssd.256": _needs(256, *_SHORT_VNNI),
        "llvm.x86.avx512.vpdpwssd.512": _needs(512, "avx512vnni"),
    },
}
