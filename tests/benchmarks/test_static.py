"""The static figures of the targets with dot products hold their bounds, and the loops are found."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import qcompile as qc

from ..backends.cpu.emulation.support import needs_emulator

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def static(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("static")


def mca(static: Any) -> str:
    """llvm-mca, if it knows the CPUs."""
    try:
        command: str = static.llvm_mca()
        static.limit(command, static.MODELS["x86_64-avxvnni"], 256)
    except qc.ToolchainError:
        pytest.skip("llvm-mca of LLVM 16 or later is not installed")
    return command


@needs_emulator
@pytest.mark.parametrize("judged", ["x86_64-avxvnni", "x86_64-avx512vnni"])
def test_the_bounds_hold(static: Any, judged: str) -> None:
    mca(static)
    figures = static.judge_all([judged])
    assert len(figures) == len(static.LAYERS)
    for one in figures:
        model = static.MODELS[judged]
        assert one.rule == "cpu_dot_product"
        assert one.share >= model.least_share, one
        assert 1 / one.loop_products < one.instructions_per_product <= model.most_instructions, one
        assert one.is_good


def test_the_limit_is_that_of_the_ports(static: Any) -> None:
    command = mca(static)
    # two multiplications of 8 or 16 lanes with four products begin in a cycle
    assert static.limit(command, static.MODELS["x86_64-avxvnni"], 256) == pytest.approx(64, rel=0.01)
    assert static.limit(command, static.MODELS["x86_64-avx512vnni"], 512) == pytest.approx(128, rel=0.01)


LOOPS = """
.LBB0_1:
\tvpdpbusd\t%zmm1, %zmm2, %zmm3
.LBB0_2:                                # comment
\t.p2align 4
\tvpdpbusd\t(%rax), %zmm2, %zmm3
\taddq $64, %rax
\tjne\t.LBB0_2
\tvpdpbusd\t%zmm1, %zmm2, %zmm3
\tjne\t.LBB0_1
.LBB0_3:
\taddq $1, %rcx
\tjne\t.LBB0_3
"""


def test_the_inner_loop_is_found(static: Any) -> None:
    loop = static.inner_loop(LOOPS, "vpdpbusd")
    assert loop[0].startswith(".LBB0_2:")
    assert loop[1:] == ["vpdpbusd (%rax), %zmm2, %zmm3", "addq $64, %rax", "jne .LBB0_2"]
    with pytest.raises(ValueError, match="no loop with vpmaddwd"):
        static.inner_loop(LOOPS, "vpmaddwd")


def test_a_missing_or_wrong_llvm_mca(static: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLVM_MCA", "no-such-program")
    with pytest.raises(qc.ToolchainError, match=r"LLVM_MCA=no-such-program(?s:.*)apt-get install llvm-19"):
        static.llvm_mca()
    monkeypatch.setenv("LLVM_MCA", "true")
    with pytest.raises(qc.ToolchainError, match="could not judge"):
        static.cycles(static.llvm_mca(), "icelake-server", [])


@needs_emulator
def test_the_program(static: Any) -> None:
    mca(static)
    command = [sys.executable, str(FOLDER / "static.py"), "--target", "x86_64-avx512vnni", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=FOLDER.parent,
                          env={**os.environ, "PYTHONPATH": str(FOLDER.parent)})  # fmt: skip
    assert done.returncode == 0, done.stderr
    kernels = json.loads(done.stdout)["kernels"]
    assert [kernel["cpu"] for kernel in kernels] == ["icelake-server"] * 2
    assert all(kernel["is_good"] and kernel["emulated_cpu"] == "icelake" for kernel in kernels)
