"""What is in the machine code: vectors, the exact instructions, and nothing that the library does not bring along."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

import qcompile as qc
from qcompile import catalogue
from qcompile.backends import targets
from qcompile.planning import find
from qcompile.spec import Convolution, MatrixMultiply, Operator

from ...conftest import CPU_TARGETS, needs_binutils
from ...support import small_constants, small_convolution, stage_texts

EXAMPLES = [example for row in catalogue.CATALOGUE for example in row.examples]
#: Arithmetic on whole vectors of the widths that the targets have.
VECTOR_REGISTER = {128: "xmm", 256: "ymm", 512: "zmm"}
#: targets with an instruction for dot products of four bytes -> its text for a whole vector, and its first bytes
DOT_PRODUCTS = {
    "x86_64-avxvnni": (r"\{vex\}\s+vpdpbusd\s.*%ymm", rb"\xc4[\x02\x22\x42\x62\x82\xa2\xc2\xe2].\x50"),
    "x86_64-avx512vnni": (r"vpdpbusd\s.*%zmm", rb"\x62..[\x40-\x5f]\x50"),
}


@cache
def assembly(operator: Operator, target: str, constants: bool = True) -> list[str]:
    known = frozenset(tensor.name for tensor in operator.tensors if tensor.role != "data") if constants else frozenset()
    text = stage_texts(operator, known, targets.load(target), ["assembly"])["assembly"]
    return [line.strip() for line in text.splitlines() if line.startswith("\t") and not line.startswith("\t.")]


@pytest.mark.parametrize("operator", EXAMPLES, ids=lambda operator: operator.name)
@pytest.mark.parametrize("compiled_for", CPU_TARGETS)
@pytest.mark.parametrize("constants", [True, False])
def test_no_kernel_is_a_scalar_loop(operator: Operator, compiled_for: str, constants: bool) -> None:
    register = VECTOR_REGISTER[targets.load(compiled_for).facts.vector_bits]
    arithmetic = (
        r"(\{vex\}\s+)?v?(pmaddwd|pmulld|pmullw|pmuludq|pdpbusd|pdpwssd)"
        if isinstance(operator, (Convolution, MatrixMultiply))
        else r"v?(mul|div)ps"
    )
    lines = assembly(operator, compiled_for, constants)
    assert any(re.match(rf"{arithmetic}\s.*%{register}", line) for line in lines)
    if operator.outputs[0].dtype != "int32" and operator.outputs[0].dtype != "float32":
        assert any(re.match(rf"v?cvtt?ps2dq\s.*%{register}", line) for line in lines), "rounding is vectorized"


@pytest.mark.parametrize(("compiled_for", "register"), [("x86_64", "xmm"), ("x86_64-avx2", "ymm")])
def test_pairs_are_multiplied_and_added_in_one_instruction(compiled_for: str, register: str) -> None:
    for operator in EXAMPLES:
        if isinstance(operator, (Convolution, MatrixMultiply)):
            choice = find(operator, targets.load(compiled_for))
            narrow = isinstance(operator, Convolution) and operator.group_count > 1
            assert choice.rule == ("cpu_channelwise" if narrow else "cpu_widen16")
            assert narrow or choice.refused[0][0] == "cpu_channelwise"
            lines = assembly(operator, compiled_for)
            assert any(re.match(rf"v?pmaddwd\s.*%{register}", line) for line in lines)


def sums_in_dot_products(target: str) -> list[Operator]:
    """The examples that the rule of dot products schedules on a target."""
    found = targets.load(target)
    return [example for example in EXAMPLES if find(example, found).rule == "cpu_dot_product"]


@pytest.mark.parametrize("compiled_for", DOT_PRODUCTS)
def test_four_bytes_are_multiplied_and_added_in_one_instruction(compiled_for: str) -> None:
    operators = sums_in_dot_products(compiled_for)
    wide = [
        example for example in EXAMPLES
        if isinstance(example, MatrixMultiply) or (isinstance(example, Convolution) and example.group_count == 1)
    ]  # fmt: skip
    assert operators == wide
    for operator in operators:
        lines = assembly(operator, compiled_for)
        assert any(re.match(DOT_PRODUCTS[compiled_for][0], line) for line in lines), operator.name
        assert not any("pmaddwd" in line for line in lines), operator.name


@needs_binutils
@pytest.mark.parametrize("compiled_for", DOT_PRODUCTS)
def test_dot_products_are_in_the_encoding_of_the_target(compiled_for: str, tmp_path: Path) -> None:
    """AVX-VNNI has the VEX encoding (three bytes from C4), AVX-512 the EVEX one (from 62), which it lacks."""
    operators = sums_in_dot_products(compiled_for)
    path = tmp_path / "library.so"
    path.write_bytes(qc.compile(operators, compiled_for).library_bytes(compiled_for))
    content = path.read_bytes()
    own, other = (re.compile(DOT_PRODUCTS[name][1], re.S) for name in sorted(DOT_PRODUCTS, key=compiled_for.__ne__))
    found = []
    for line in tool("objdump", "-d", "-w", path).splitlines():
        match = re.match(r"\s*[0-9a-f]+:\t([0-9a-f ]+)\t(?:\{vex\} )?vpdpbusd\s", line)
        if match:
            code = bytes.fromhex(match[1])
            assert own.match(code), line
            assert not other.match(code), line
            assert code in content
            found.append(code)
    assert found


def test_pairs_and_their_sum_are_one_instruction_with_vnni() -> None:
    operator = next(example for example in EXAMPLES if isinstance(example, Convolution) and example.group_count > 1)
    for compiled_for in DOT_PRODUCTS:
        lines = assembly(operator, compiled_for)
        assert any(re.match(r"(\{vex\}\s+)?vpdpwssd\s", line) for line in lines)


@pytest.mark.parametrize("operator", EXAMPLES, ids=lambda operator: operator.name)
@pytest.mark.parametrize("compiled_for", CPU_TARGETS)
def test_no_fused_and_no_approximate_float_operations(operator: Operator, compiled_for: str) -> None:
    for line in assembly(operator, compiled_for, constants=False):
        assert not re.match(r"v?(fmadd|fmsub|fnmadd|fnmsub|rcpps|rcpss|rsqrt)", line.removeprefix("v")), line


@pytest.mark.parametrize("operator", EXAMPLES, ids=lambda operator: operator.name)
def test_the_plain_target_has_no_instruction_of_a_newer_cpu(operator: Operator) -> None:
    assert not any(re.search(r"%(ymm|zmm)|^v[a-z]", line) for line in assembly(operator, "x86_64"))


def test_interface_tensors_are_moved_without_alignment(tmp_path: Path) -> None:
    operator = qc.Requantize(qc.Tensor((64,), "int32"))
    lines = assembly(operator, "x86_64-avx2", constants=False)
    assert any(line.startswith("vmovdqu") or "vcvtdq2ps" in line for line in lines)
    assert not any(re.match(r"vmovdqa\s+[^,]*\((%r[a-z0-9]+)", line) and "rsp" not in line for line in lines)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    bundle = qc.compile([small_convolution()], "x86_64", [small_constants()])
    path = tmp_path_factory.mktemp("library") / "library.so"
    path.write_bytes(bundle.library_bytes("x86_64"))
    return path


def tool(*command: object) -> str:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout


@needs_binutils
def test_the_library_needs_libc_alone(library: Path) -> None:
    needed = set(re.findall(r"NEEDED\s+(\S+)", tool("objdump", "-p", library)))
    assert needed <= {"libc.so.6", "libm.so.6", "libpthread.so.0", "ld-linux-x86-64.so.2"}


@needs_binutils
def test_the_library_exports_its_interface_alone(library: Path) -> None:
    names = {line.split()[-1] for line in tool("nm", "-D", "--defined-only", library).splitlines()}
    assert names == {"qc_abi_version", "qc_find", "qc_kernel", "qc_kernel_count", "qc_last_error", "qc_run"}


PROGRAM = r"""
#include <stdio.h>
#include <string.h>
#include "qcompile.h"

int main(void) {
  int32_t index = qc_find("NAME");
  const qc_kernel_description *kernel = qc_kernel(index);
  if (qc_abi_version() != QC_ABI_VERSION || qc_kernel_count() != 1 || kernel == NULL) return 1;
  for (int32_t i = 0; i < kernel->argument_count; i++)
    if (kernel->arguments[i].kind != QC_CONSTANT)
      printf("%s %d %d %d %d\n", kernel->arguments[i].name, kernel->arguments[i].kind, kernel->arguments[i].bits,
             kernel->arguments[i].dimensions, (int)kernel->arguments[i].shape[1]);
  unsigned char input[4 * 6 * 5], output[8 * 6 * 5];
  for (int i = 0; i < (int)sizeof input; i++) input[i] = (unsigned char)(i * 37);
  void *tensors[] = {input, output};
  if (qc_run(index, tensors, 2) != 0) return 2;
  for (int i = 0; i < (int)sizeof output; i++) printf("%d ", output[i]);
  void *missing[] = {NULL, output};
  if (qc_run(index, missing, 1) == 0 || strstr(qc_last_error(), "NULL") == NULL) return 3;
  if (qc_run(7, tensors, 1) == 0 || strstr(qc_last_error(), "no kernel") == NULL) return 4;
  if (qc_find("nothing") != -1) return 5;
  return 0;
}
"""


@pytest.mark.parametrize(("language", "standard"), [("c", "c99"), ("c++", "c++11")])
def test_a_program_in_c_or_cpp(library: Path, tmp_path: Path, language: str, standard: str) -> None:
    import numpy as np

    from qcompile.backends.cpu.linking import NATIVE

    if language == "c++" and subprocess.run(["which", "g++"], capture_output=True, check=False).returncode:
        pytest.skip("g++ is not installed")
    source = tmp_path / "program.c"
    source.write_text(PROGRAM.replace("NAME", small_convolution().name))
    compiler = "cc" if language == "c" else "g++"
    command = [compiler, "-x", language, f"-std={standard}", "-Wall", "-Wextra", "-Werror", f"-I{NATIVE}", source]
    tool(*command, "-x", "none", library, f"-Wl,-rpath,{library.parent}", "-o", tmp_path / "program")
    lines = tool(tmp_path / "program").splitlines()
    assert lines[:2] == ["input 0 8 4 4", "output 1 8 4 8"]
    x = (np.arange(120) * 37).astype(np.uint8).reshape(1, 4, 6, 5)
    expected = qc.reference(small_convolution(), input=x, **small_constants())
    assert np.array_equal(np.array(lines[2].split(), int), expected.ravel())
