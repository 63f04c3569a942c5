"""The x86-64 CPU models that can be emulated: data, no code. The symbols are those of bochscpu 0.4."""

from __future__ import annotations

from dataclasses import dataclass

#: bits of XCR0: which registers the operating system would save, and thereby permits
SSE, AVX, AVX512 = 0x03, 0x07, 0xE7


@dataclass(frozen=True)
class Model:
    """A CPU model.

    Args:
        description: a few words for people.
        symbol: the function of bochscpu's extension module that makes it.
        registers: bits of XCR0; without AVX there is no XCR0.
    """

    description: str
    symbol: str
    registers: int


MODELS = {
    "clawhammer": Model("AMD Athlon 64, SSE2", "_Z32create_athlon64_clawhammer_cpuidP8BX_CPU_C", SSE),
    "penryn": Model("Intel Core 2, SSE4.1", "_Z31create_core2_penryn_t9600_cpuidP8BX_CPU_C", SSE),
    "sandybridge": Model("Intel Core 2nd generation, AVX", "_Z38create_corei7_sandy_bridge_2600k_cpuidP8BX_CPU_C", AVX),
    "haswell": Model("Intel Core 4th generation, AVX2", "_Z32create_corei7_haswell_4770_cpuidP8BX_CPU_C", AVX),
    "ryzen": Model("AMD Ryzen, AVX2", "_Z18create_ryzen_cpuidP8BX_CPU_C", AVX),
    "skylake_x": Model("Intel Skylake-X, AVX-512", "_Z29create_corei7_skylake_x_cpuidP8BX_CPU_C", AVX512),
    "icelake": Model("Intel Ice Lake, AVX-512 VNNI", "_Z29create_corei7_icelake_u_cpuidP8BX_CPU_C", AVX512),
    "tigerlake": Model("Intel Tiger Lake, AVX-512 VNNI", "_Z22create_tigerlake_cpuidP8BX_CPU_C", AVX512),
    "sapphirerapids": Model(
        "Intel Sapphire Rapids, AVX-512 VNNI and AVX-VNNI", "_Z28create_sapphire_rapids_cpuidP8BX_CPU_C", AVX512
    ),
    "arrowlake": Model("Intel Arrow Lake, AVX-VNNI", "_Z23create_arrow_lake_cpuidP8BX_CPU_C", AVX),
}
