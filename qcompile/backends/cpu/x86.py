"""How LLVM's names of x86 CPU features differ from those of target files, and what features imply."""

from __future__ import annotations

#: LLVM's name of a CPU feature -> ours, where they differ
LLVM_FEATURES = {
    "bmi": "bmi1", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "avx512bf16": "avx512_bf16", "avx512fp16": "avx512_fp16",
    "avx512vbmi2": "avx512_vbmi2", "amx-tile": "amx_tile", "amx-int8": "amx_int8",
}  # fmt: skip
#: what every CPU of the architecture has
BASELINE = frozenset({"sse2"})
#: feature -> what every CPU with it has too
IMPLIED: dict[str, frozenset[str]] = {"avx": frozenset({"sse3", "ssse3", "sse4_1", "sse4_2", "popcnt"})}
