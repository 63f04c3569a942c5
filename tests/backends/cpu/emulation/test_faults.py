"""What kernels must not do is noticed, and named."""

from __future__ import annotations

from pathlib import Path

import pytest

import qcompile as qc

from .support import needs_emulator, open_tiny, run_tiny

pytestmark = needs_emulator


def test_a_kernel_that_behaves(tmp_path: Path) -> None:
    library = open_tiny(tmp_path, "for (int i = 0; i < 5; i++) output[i] = input[4 - i];")
    assert run_tiny(library) == b"\5\4\3\2\1"
    assert [argument.name for argument in library.arguments(0)] == ["input", "output"]
    assert library.arguments(0)[0].shape == (5,)
    assert 20 < library.instructions < 200


def test_outputs_begin_with_no_zeros(tmp_path: Path) -> None:
    """So that elements which are never written differ from the reference."""
    assert 0 not in run_tiny(open_tiny(tmp_path, ""))


FAULTS = {
    "output[5] = 1;": "writes just past the end of output",
    "output[8] = 1;": "writes 3 bytes past the end of output",
    "output[0] = input[5];": "reads just past the end of input",
    "output[-1] = 1;": "writes before the beginning of output",
    "output[-5000] = 1;": "writes 5000 bytes before output",
    "output[0] = input[-9000];": "reads 9000 bytes before input",
    "input[2] = 1;": "writes in input, which is read-only",
    "((uint8_t *)shape)[0] = 1;": "writes in the library of target tiny, which is read-only",
    "((void **)tensors)[0] = 0;": "writes in the table of tensors, which is read-only",
    "output[0] = *(volatile uint8_t *)64;": "reads where nothing is",
    "((void (*)(void))output)();": "jumps to memory that holds no code",
    '__asm__ volatile("movaps (%0), %%xmm0" ::"r"(input) : "xmm0");': "accesses memory that is not aligned",
    '__asm__ volatile("ud2");': "executes an instruction that the emulated CPU haswell does not have",
    "output[0] = input[0] / (volatile int){0};": "divides by zero",
    "volatile uint8_t *p = malloc(112); p[112] = 1;": "writes just past the end of a block of the heap",
    "volatile uint8_t *p = aligned_alloc(64, 128); p[128] = 1;": "writes just past the end of a block of the heap",
    "volatile uint8_t *p = malloc(64); p[0] = 1; free((void *)p); p[0] = 2;": "writes where nothing is",
    "free((void *)output);": "writes in output, which is read-only|writes in output",
    "memcpy((void *)output, (void *)input, 6);": "reads just past|reads in input",
    "memset((void *)output, 1, 6);": "reads in output|just past",
    "volatile uint8_t *p = __builtin_alloca(1 << 24); p[0] = 1;": "before the stack|where nothing is",
    "output[0] = getpid();": r"calls a function that is not emulated",
}


@pytest.mark.parametrize("body", FAULTS)
def test_faults(tmp_path: Path, body: str) -> None:
    with pytest.raises(qc.EmulationError, match=FAULTS[body]) as caught:
        run_tiny(open_tiny(tmp_path, body))
    assert "target tiny" in str(caught.value)


def test_where_a_fault_is(tmp_path: Path) -> None:
    with pytest.raises(qc.EmulationError) as caught:
        run_tiny(open_tiny(tmp_path, '__asm__ volatile("ud2");'))
    assert str(caught.value.given).startswith("0f 0b ")
    with pytest.raises(qc.EmulationError, match="not emulated") as caught:
        run_tiny(open_tiny(tmp_path, "output[0] = getpid();"))
    assert caught.value.given == "getpid"


def test_an_unknown_function_that_is_not_called(tmp_path: Path) -> None:
    library = open_tiny(tmp_path, "output[0] = input[0] == 1 ? 7 : getpid();")
    assert run_tiny(library)[0] == 7


def test_what_must_be_allowed(tmp_path: Path) -> None:
    body = (
        "static __thread int counter = 40; counter += 2; output[0] = counter;"
        "uint8_t *p = malloc(5); memset(p, 9, 5); memcpy((void *)(output + 1), p, 4); free(p);"
    )
    library = open_tiny(tmp_path, body, "-fstack-protector-all")
    assert run_tiny(library) == b"\x2a\x09\x09\x09\x09"
    assert run_tiny(library) == b"\x2c\x09\x09\x09\x09", "variables keep their values between calls"


def test_a_broken_stack(tmp_path: Path) -> None:
    body = "volatile uint8_t room[8]; for (int i = 0; i < 60; i++) room[i] = 0;"
    with pytest.raises(qc.EmulationError, match="has written beyond a variable on its stack"):
        run_tiny(open_tiny(tmp_path, body, "-fstack-protector-all"))


def test_text(tmp_path: Path) -> None:
    body = (
        'char *end; long number = strtol(" -12x", &end, 10);'
        'int length = snprintf(text, sizeof text, "%s|%d|%u|%x|%c|%lld|%zu|%%|%ld|%s|", "a", -3, 4000000000u, 255, 65,'
        " -5000000000ll, (size_t)7, number, end);"
        "return length == strlen(text) && strcmp(text, text) == 0 ? 1 : 2;"
    )
    with pytest.raises(
        qc.KernelError, match=r"The kernel failed: a\|-3\|4000000000\|ff\|A\|-5000000000\|7\|%\|-12\|x\|\."
    ):
        run_tiny(open_tiny(tmp_path, body))
    with pytest.raises(qc.KernelError, match=r"The kernel failed: abc\."):
        run_tiny(open_tiny(tmp_path, 'snprintf(text, 4, "%s", "abcdef"); return 1;'))
    with pytest.raises(qc.EmulationError, match="prints in a way that is not known here"):
        run_tiny(open_tiny(tmp_path, 'snprintf(text, 4, "%f", 1.0);'))


def test_rounding(tmp_path: Path) -> None:
    functions = ("floorf", "ceilf", "truncf", "roundf", "rintf", "nearbyintf")
    declarations = "\n".join(f"float {name}(float);" for name in functions) + "\ndouble floor(double), round(double);"
    cases = {"floorf(-1.5f)": -2, "ceilf(-1.5f)": -1, "truncf(-1.5f)": -1, "roundf(2.5f)": 3, "rintf(2.5f)": 2,
             "nearbyintf(3.5f)": 4, "floor(7.9)": 7, "round(-2.5)": -3}  # fmt: skip
    for call, value in cases.items():
        body = f"output[0] = {call} == {value};"
        assert run_tiny(open_tiny(tmp_path, body, declarations=declarations))[0] == 1, call


def test_too_little_memory(tmp_path: Path) -> None:
    """The kernel is told, as by a real machine."""
    body = "output[0] = malloc((size_t)1 << 40) == 0 && aligned_alloc(64, (size_t)1 << 62) == 0;"
    assert run_tiny(open_tiny(tmp_path, body))[0] == 1


def test_another_version_of_the_interface(tmp_path: Path) -> None:
    with pytest.raises(qc.BundleError, match="has another C interface"):
        open_tiny(tmp_path, "", version=99)
