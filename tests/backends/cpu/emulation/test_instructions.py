"""Instructions that Bochs by itself gets wrong, and their like; results are written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

import qcompile as qc

from .support import needs_emulator, open_tiny, run_tiny

pytestmark = needs_emulator

#: shifts of the mask 0x100098001
SHIFTS = {
    "kshiftlw $14": 0x4000,
    "kshiftlw $15": 0x8000,
    "kshiftlw $16": 0,
    "kshiftrw $14": 2,
    "kshiftrw $15": 1,
    "kshiftrw $16": 0,
    "kshiftlb $7": 0x80,
    "kshiftlb $8": 0,
    "kshiftrd $15": 0x13,
    "kshiftlq $7": 0x8004C00080,
    "kshiftrq $31": 2,
}
#: the first bytes of a vector of zeros after this; %0 is the input, the bytes 1 to 5, and %1 is 5
READS = {
    "vpinsrb $0, 3(%0), %%xmm16, %%xmm16": b"\4\0\0\0\0",
    "vpinsrb $2, 4(%0), %%xmm16, %%xmm17; vmovdqa64 %%xmm17, %%xmm16": b"\0\0\5\0\0",
    "vpinsrb $1, -1(%0,%1), %%xmm16, %%xmm16": b"\0\5\0\0\0",
    "vpinsrw $0, 2(%0), %%xmm16, %%xmm16": b"\3\4\0\0\0",
    "vpinsrd $0, -4(%0,%1), %%xmm16, %%xmm16": b"\2\3\4\5\0",
    "vpbroadcastb 4(%0), %%xmm16": b"\5\5\5\5\5",
    "vpmovzxbw -8(%0,%1,2), %%xmm16%{%%k1%}%{z%}": b"\3\0\4\0\5",
}
#: what is written to the output, %0, from a vector with the bytes 1, 2, 3, ...
WRITES = {
    "vpextrb $2, %%xmm16, 3(%0)": b"\0\0\0\3\0",
    "vpextrw $1, %%xmm16, 2(%0)": b"\0\0\3\4\0",
    "vpextrd $1, %%xmm16, -4(%0,%1)": b"\0\5\6\7\10",
    "vpmovdb %%xmm16, -4(%0,%1)": b"\0\1\5\11\r",
}
#: of AVX512-FP16 and AVX512-BF16, which not all assemblers know: bytes, displacement of the one element of memory that
#: is 1 (or 1 + 0i), that element, and the result
HALVES = {
    "vdpbf16ps 16(%rbx), %xmm0, %xmm2": ("62 f2 7e 08 52 53 01", 16, 0x3F80, b"\0\0\x80\x3f"),
    "vdpbf16ps 4(%rbx){1to4}, %xmm0, %xmm2": ("62 f2 7e 18 52 53 01", 4, 0x3F80, b"\0\0\x80\x3f"),
    "vfmulcsh 4(%rbx), %xmm0, %xmm2": ("62 f6 7e 08 d7 53 01", 4, 0x3C00, b"\0\x3c\0\0"),
    "vfmulcph 4(%rbx){1to4}, %xmm0, %xmm2": ("62 f6 7e 18 d6 53 01", 4, 0x3C00, b"\0\x3c\0\0"),
    "vfmulcph 16(%rbx), %xmm0, %xmm2": ("62 f6 7e 08 d6 53 01", 16, 0x3C00, b"\0\x3c\0\0"),
}


@pytest.mark.parametrize("cpu", ["icelake", "sapphirerapids"])
def test_shifts_of_masks(tmp_path: Path, cpu: str) -> None:
    body = "uint64_t mask = 0x100098001, result = 0; switch (input[0]) {"
    for case, shift in enumerate(SHIFTS):
        body += f'case {case}: __asm__ volatile("kmovq %1, %%k1; {shift}, %%k1, %%k2; kmovq %%k2, %0"'
        body += ' : "=r"(result) : "r"(mask)); break;'
    body += "} for (int i = 0; i < 5; i++) output[i] = result >> 8 * i;"
    library = open_tiny(tmp_path, body, cpu=cpu)
    for case, shift in enumerate(SHIFTS):
        assert run_tiny(library, bytes([case, 0, 0, 0, 0])) == SHIFTS[shift].to_bytes(5, "little"), shift


@pytest.mark.parametrize("instruction", READS)
@pytest.mark.parametrize("cpu", ["icelake", "sapphirerapids"])
def test_displacements_of_reads(tmp_path: Path, cpu: str, instruction: str) -> None:
    body = f"""
      uint8_t vector[16];
      __asm__ volatile("kmovq %3, %%k1; vpxord %%xmm16, %%xmm16, %%xmm16; {instruction}; vmovdqu64 %%xmm16, %2"
                       : : "r"(input), "r"(5L), "m"(vector), "r"(7L) : "memory");
      for (int i = 0; i < 5; i++) output[i] = vector[i];"""
    assert run_tiny(open_tiny(tmp_path, body, cpu=cpu)) == READS[instruction]


@pytest.mark.parametrize("instruction", WRITES)
@pytest.mark.parametrize("cpu", ["icelake", "sapphirerapids"])
def test_displacements_of_writes(tmp_path: Path, cpu: str, instruction: str) -> None:
    body = f"""
      uint8_t vector[16];
      for (int i = 0; i < 16; i++) vector[i] = i + 1;
      for (int i = 0; i < 5; i++) output[i] = 0;
      __asm__ volatile("vmovdqu64 %2, %%xmm16; {instruction}" : : "r"(output), "r"(5L), "m"(vector) : "memory");"""
    assert run_tiny(open_tiny(tmp_path, body, cpu=cpu)) == WRITES[instruction]


@pytest.mark.parametrize("instruction", HALVES)
def test_displacements_in_arithmetic_with_halves(tmp_path: Path, instruction: str) -> None:
    code, displacement, one, expected = HALVES[instruction]
    code = ", ".join(f"0x{byte}" for byte in code.split())
    body = f"""
      uint16_t memory[16] = {{0}}, ones[8] = {{{one}}}, result[8];
      memory[{displacement // 2}] = {one};
      __asm__ volatile("vmovdqu %1, %%xmm0; vpxor %%xmm2, %%xmm2, %%xmm2; .byte {code}; vmovdqu %%xmm2, %2"
                       : : "b"(memory), "m"(ones), "m"(result) : "memory", "xmm0", "xmm2");
      for (int i = 0; i < 5; i++) output[i] = ((uint8_t *)result)[i];"""
    assert run_tiny(open_tiny(tmp_path, body, cpu="sapphirerapids")) == expected + b"\0"


def test_a_half_is_stored(tmp_path: Path) -> None:
    """`vmovw %xmm2, 2(%rbx)`"""
    body = """
      uint16_t values[8] = {0x201};
      for (int i = 0; i < 5; i++) output[i] = 0;
      __asm__ volatile("vmovdqu %1, %%xmm2; .byte 0x62, 0xf5, 0x7d, 0x08, 0x7e, 0x53, 0x01"
                       : : "b"(output), "m"(values) : "memory", "xmm2");"""
    assert run_tiny(open_tiny(tmp_path, body, cpu="sapphirerapids")) == b"\0\0\1\2\0"


@pytest.mark.parametrize("cpu", ["icelake", "sapphirerapids"])
@pytest.mark.parametrize(
    "instruction",
    [
        "vpgatherqd 4(%0,%%zmm17,4), %%ymm16%{%%k1%}",
        "vpbroadcastmb2q %%k1, %%xmm16",
        "vpbroadcastmw2d %%k1, %%ymm16",
        "vpsrlq $64, %%zmm16, %%zmm16",
        "vpsrlq $64, %%zmm16, %%zmm16%{%%k1%}",
        "vpsrlq %2, %%zmm16, %%zmm16",
        "vpsrlq %2, %%zmm16, %%zmm16%{%%k1%}%{z%}",
        "vpsrlq $1, %%zmm16, %%zmm16; vpsravq %2%{1to8%}, %%zmm16, %%zmm16",
        "vpsrlq $1, %%zmm16, %%zmm16; vpsravq %2%{1to8%}, %%zmm16, %%zmm16%{%%k1%}",
    ],
)
def test_upper_parts_of_results_are_zero(tmp_path: Path, cpu: str, instruction: str) -> None:
    """Of bytes that were 255."""
    body = f"""
      uint8_t vector[64], words[16] = {{0}};
      uint64_t counts[2] = {{64, 0}};
      __asm__ volatile("vpternlogd $255, %%zmm16, %%zmm16, %%zmm16; vpxord %%zmm17, %%zmm17, %%zmm17;"
                       "kxnorb %%k1, %%k1, %%k1; {instruction}; vmovdqu64 %%zmm16, %1"
                       : : "r"(words), "m"(vector), "m"(counts) : "memory");
      for (int i = 0; i < 5; i++) output[i] = vector[59 + i];"""
    assert run_tiny(open_tiny(tmp_path, body, cpu=cpu)) == bytes(5)


@pytest.mark.parametrize(
    "instruction",
    [
        "vpconflictd %%zmm16, %%zmm17",
        "vpexpandb (%0), %%xmm16%{%%k1%}%{z%}",
        "vpmultishiftqb %%xmm16, %%xmm16, %%xmm16%{%%k1%}",
        "vrangeps $7, %%xmm16, %%xmm16, %%xmm16",
    ],
)
def test_instructions_that_are_refused(tmp_path: Path, instruction: str) -> None:
    library = open_tiny(tmp_path, f'__asm__ volatile("{instruction}" : : "r"(input));', cpu="icelake")
    with pytest.raises(qc.EmulationError, match="executes an instruction that the emulator Bochs computes wrongly"):
        run_tiny(library)
    right = open_tiny(tmp_path, '__asm__ volatile("vpexpandb %xmm16, %xmm17");', cpu="icelake")
    run_tiny(right)
