"""Compiled kernels equal the golden data of other systems, bit for bit, on every CPU target.

Each suite is compiled into one bundle for each target, saved and loaded. All parameters are constants; a sample is
compiled once more with everything at run time. Targets that this machine cannot run are emulated.
"""

from __future__ import annotations

import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import qcompile as qc
from qcompile.spec.values import canonical_values

from ..conftest import needs_binutils
from ..support import assert_equal, constant_names, split_values, through_file
from .cases import SUITES, Case, cases

COMPILED = [case for suite in SUITES for case in cases(suite)]
#: The constants of this case prove that some inputs overflow; its input does.
OVERFLOWS = "conv_int32_wrap_001_usu"
pytestmark = pytest.mark.filterwarnings("ignore::qcompile.errors.AccumulatorOverflowWarning")
#: every fifth case of a suite, and at least one
RUN_TIME_SAMPLE = [case for suite in SUITES for case in cases(suite)[::5]]


@cache
def bundle(suite: str, target: str, run_time: bool) -> qc.Bundle:
    """The cases of a suite, by their ids."""
    chosen = [case for case in (RUN_TIME_SAMPLE if run_time else COMPILED) if case.suite == suite]
    constants = {case.id: {} if run_time else constants_of(case) for case in chosen}
    compiled = qc.compile({case.id: case.operator for case in chosen}, target, constants)
    with tempfile.TemporaryDirectory() as folder:
        loaded: qc.Bundle = through_file(compiled, Path(folder))
        return loaded


def constants_of(case: Case) -> dict[str, Any]:
    return split_values(case.values, constant_names(case.operator))[0]


def test_the_overflow_is_proved() -> None:
    case = next(case for case in COMPILED if case.id == OVERFLOWS)
    with pytest.raises(qc.AccumulatorOverflowError, match="overflows for some inputs"):
        qc.compile(case.operator, constants=constants_of(case), overflow="error")


@pytest.mark.parametrize("case", COMPILED, ids=str)
def test_constants(case: Case, target: str) -> None:
    kernel = bundle(case.suite, target, False)[case.id]
    assert kernel.variant.target == target
    values = canonical_values(case.operator, case.values)
    result = kernel(**{tensor.name: values[tensor.name] for tensor in kernel.inputs if tensor.name in values})
    assert_equal(case.expected, result, case.path_dependent)


@pytest.mark.parametrize("case", RUN_TIME_SAMPLE, ids=str)
def test_everything_at_run_time(case: Case, target: str) -> None:
    kernel = bundle(case.suite, target, True)[case.id]
    assert not kernel.constants
    assert_equal(case.expected, kernel(**case.values), case.path_dependent)


@needs_binutils
@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("run_time", [False, True])
def test_machine_code_has_no_fused_multiply_add(suite: str, run_time: bool, target: str, tmp_path: Path) -> None:
    compiled = bundle(suite, target, run_time)
    library = tmp_path / "library.so"
    library.write_bytes(compiled.library_bytes(target))
    text = subprocess.run(["objdump", "-d", library], capture_output=True, text=True, check=True).stdout
    instructions = {words[0] for line in text.splitlines() if (words := line.split("\t")[-1].split())}
    assert {"call", "ret"} <= instructions, "the disassembly was not understood"
    fused = sorted(name for name in instructions if name.startswith(("vfmadd", "vfmsub", "vfnmadd", "vfnmsub")))
    assert not fused
