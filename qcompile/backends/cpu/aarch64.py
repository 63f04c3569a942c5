"""How LLVM's names of aarch64 CPU features differ from those of target files, and what features imply."""

from __future__ import annotations

#: LLVM's name of a CPU feature -> ours, where they differ
LLVM_FEATURES = {"fp-armv8": "fp", "fullfp16": "asimdhp", "lse": "atomics"}
#: what every CPU of the architecture has
BASELINE = frozenset({"fp", "neon"})
#: feature -> what every CPU with it has too
IMPLIED: dict[str, frozenset[str]] = {}
