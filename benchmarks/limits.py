"""What this machine can do at most, measured beside the kernels: multiply-adds a second, and bytes read a second.

    python benchmarks/limits.py [--threads 1 --threads 2]

A kernel of exact int8 products on AVX2 multiplies int16 pairs (vpmaddwd) and adds (vpaddd), with VNNI it multiplies and
adds four bytes (vpdpbusd); the rate of these from registers is the limit of its arithmetic. A product of one row reads
each weight once; its limit is how fast the memory level in which the weights fit can be read.

The loop of vpmaddwd and vpaddd is what such a kernel is held to. It is not an upper bound: where the two compete for
ports, as on Zen 4, another mixture does more. The rates of vpmaddwd and of vpmaddubsw alone are upper bounds.
"""

from __future__ import annotations

import argparse
import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from interleaved import medians
from native import shared_library

from qcompile.backends import targets
from qcompile.backends.cpu import features as cpu_features

#: what multiplies -> function of limits.c, multiply-accumulates of one of its rounds, features that it needs
MULTIPLIERS = {
    "vpmaddwd": ("multiply_add", 12 * 16, ("avx2",)),
    "vpmaddwd alone": ("multiply_pairs_16", 12 * 16, ("avx2",)),
    "vpmaddubsw alone": ("multiply_pairs_8", 12 * 32, ("avx2",)),
    "vpdpbusd ymm": ("dot_product_256", 12 * 32, ("avxvnni",)),
    "vpdpbusd zmm": ("dot_product_512", 12 * 64, ("avx512f", "avx512vnni")),
}
_ROUNDS = 1_000_000
_UNITS = {"K": 1 << 10, "M": 1 << 20}
#: Bytes that one call reads at least, so that starting threads does not count.
_LEAST_BYTES = 1 << 27


@dataclass(frozen=True)
class Limit:
    """A call that works at a limit, and how much it does: multiply-accumulates, or bytes."""

    call: Callable[[], object]
    amount: int

    def rate(self, seconds: float) -> float:
        """Multiply-accumulates or bytes a second."""
        return self.amount / seconds


def is_available(multiplier: str = "vpmaddwd") -> bool:
    """Whether a limit can be measured here; that of reading memory needs what vpmaddwd needs."""
    return all(feature in cpu_features.features() for feature in MULTIPLIERS[multiplier][2])


def multiplier_of(target: str) -> str:
    """What multiplies in dense kernels of a target."""
    found = targets.load(target)
    if found.facts.instruction("uint8", "int8") is None:
        return "vpmaddwd"
    return "vpdpbusd zmm" if found.facts.vector_bits == 512 else "vpdpbusd ymm"


@cache
def cache_bytes() -> dict[str, int]:
    """Sizes of the caches that the first core reaches, "L2" and "L3" where the system tells them."""
    sizes = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, size = (f"L{(folder / 'level').read_text().strip()}", (folder / "size").read_text().strip())
        if level in ("L2", "L3") and size[-1:] in _UNITS:
            sizes[level] = int(size[:-1]) * _UNITS[size[-1]]
    return sizes


def memory_level(size: int, threads: int) -> str:
    """The level that `size` bytes fit in when `threads` cores have a part each: "L2", "L3" or "DRAM"."""
    caches = cache_bytes()
    if size <= caches.get("L2", 0) * threads * 3 // 4:
        return "L2"
    return "L3" if size <= caches.get("L3", 0) * 3 // 4 else "DRAM"


@cache
def multiply_add_limit(threads: int, multiplier: str = "vpmaddwd") -> Limit:
    """Multiplying and adding from registers, on each of the threads; `multiplier` is a key of MULTIPLIERS."""
    name, products, _ = MULTIPLIERS[multiplier]
    function = getattr(_library(), name)
    return Limit(_on_threads(threads, lambda _: function(_ROUNDS)), threads * _ROUNDS * products)


@cache
def read_limit(level: str, threads: int) -> Limit:
    """Sums of an array that fits the level, a part of it on each of the threads.

    Args:
        level: "L2", "L3" or "DRAM".
        threads: number of threads.
    """
    function = _library().read_memory
    caches = cache_bytes()
    last = max(caches.values(), default=1 << 25)
    size = {"L2": threads * caches.get("L2", 0) // 2, "L3": caches.get("L3", 0) // 2, "DRAM": 4 * last}[level]
    count = max(size // threads // 256, 1) * 64
    parts = [np.ones(count, np.int32) for _ in range(threads)]
    rounds = max(1, _LEAST_BYTES // (4 * count * threads))
    call = _on_threads(threads, lambda number: function(parts[number].ctypes.data, count, rounds))
    return Limit(call, 4 * count * threads * rounds)


@cache
def copy_limit() -> Limit:
    """A copy of 128 MiB on one thread: bytes read and written."""
    source, target = np.ones(1 << 27, np.uint8), np.ones(1 << 27, np.uint8)
    return Limit(lambda: np.copyto(target, source), 2 * source.nbytes)


@cache
def _library() -> Any:
    library = ctypes.CDLL(str(shared_library("limits.c")))
    for name, _, _ in MULTIPLIERS.values():
        getattr(library, name).argtypes = [ctypes.c_int64]
    library.read_memory.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
    return library


def _on_threads(threads: int, work: Callable[[int], object]) -> Callable[[], object]:
    """Calls work(0), work(1), ... at the same time; C code that is called by ctypes runs in parallel."""
    if threads == 1:
        return lambda: work(0)
    pool = ThreadPoolExecutor(threads)
    return lambda: list(pool.map(work, range(threads)))


def main() -> None:
    """Prints the limits."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", action="append", type=int, help="default: 1")
    options = parser.parse_args()
    for threads in options.threads or [1]:
        chosen = {name: multiply_add_limit(threads, name) for name in MULTIPLIERS if is_available(name)}
        chosen |= {level: read_limit(level, threads) for level in ("L2", "L3", "DRAM")}
        seconds = medians({name: limit.call for name, limit in chosen.items()})
        print(f"threads: {threads}")
        for name, limit in chosen.items():
            unit = "GMAC/s" if name in MULTIPLIERS else "GB/s read"
            print(f"  {name:16} {limit.rate(seconds[name]) / 1e9:8.1f} {unit}")


if __name__ == "__main__":
    main()
