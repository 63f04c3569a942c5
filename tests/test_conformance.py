"""Compiled kernels equal the golden data of other systems, bit for bit, on every CPU target.

Each suite is compiled into one bundle for each target, saved and loaded. All parameters are constants; a sample is
compiled once more with everything at run time.
"""

from __future__ import annotations

import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

import qcompile as qc
from qcompile import catalogue
from qcompile.spec.values import canonical_values

from .conformance.cases import SUITES, Case, cases
from .conftest import needs_binutils
from .support import assert_equal, constant_names, split_values, through_file

COMPILED = [case for suite in SUITES for case in cases(suite) if catalogue.entry_of(case.operator).compute]
RUN_TIME_SAMPLE = COMPILED[::5]


@cache
def bundle(suite: str, target: str, run_time: bool) -> qc.Bundle:
    """The cases of a suite, by their ids."""
    chosen = [case for case in (RUN_TIME_SAMPLE if run_time else COMPILED) if case.suite == suite]
    constants = {
        case.id: {} if run_time else split_values(case.values, constant_names(case.operator))[0] for case in chosen
    }
    compiled = qc.compile({case.id: case.operator for case in chosen}, target, constants)
    with tempfile.TemporaryDirectory() as folder:
        loaded: qc.Bundle = through_file(compiled, Path(folder))
        return loaded


@pytest.mark.parametrize("case", COMPILED, ids=str)
def test_constants(case: Case, target: str) -> None:
    kernel = bundle(case.suite, target, False)[case.id]
    assert kernel.variant.target == target
    values = canonical_values(case.operator, case.values)
    assert_equal(case.expected, kernel(**{tensor.name: values[tensor.name] for tensor in kernel.inputs}))


@pytest.mark.parametrize("case", RUN_TIME_SAMPLE, ids=str)
def test_everything_at_run_time(case: Case, target: str) -> None:
    kernel = bundle(case.suite, target, True)[case.id]
    assert not kernel.constants
    assert_equal(case.expected, kernel(**case.values))


@needs_binutils
@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("run_time", [False, True])
def test_machine_code_has_no_fused_multiply_add(suite: str, run_time: bool, target: str, tmp_path: Path) -> None:
    if not any(case.suite == suite for case in (RUN_TIME_SAMPLE if run_time else COMPILED)):
        return  # a suite of operators that are only described
    compiled = bundle(suite, target, run_time)
    library = tmp_path / "library.so"
    library.write_bytes(compiled.library_bytes(target))
    text = subprocess.run(["objdump", "-d", library], capture_output=True, text=True, check=True).stdout
    instructions = {words[0] for line in text.splitlines() if (words := line.split("\t")[-1].split())}
    assert {"call", "ret"} <= instructions, "the disassembly was not understood"
    fused = sorted(name for name in instructions if name.startswith(("vfmadd", "vfmsub", "vfnmadd", "vfnmsub")))
    assert not fused
