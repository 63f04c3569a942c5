"""Kernels in emulation, and small libraries in C that do what kernels must not do."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qcompile.backends.cpu.emulation.bochs import client
from qcompile.backends.cpu.linking import NATIVE
from qcompile.backends.interface import RunOptions
from qcompile.system.toolchain import run_compiler

needs_emulator = pytest.mark.skipif(
    importlib.util.find_spec("bochscpu") is None, reason="the emulator (package bochscpu-python) is not installed"
)

#: a library with one kernel that takes 5 bytes and returns 5 bytes
TINY = """
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "qcompile.h"
static const int64_t shape[] = {5};
static const qc_argument arguments[] = {
  {"input", QC_INPUT, 0, QC_UNSIGNED, 8, 1, 1, shape, shape, 0},
  {"output", QC_OUTPUT, 0, QC_UNSIGNED, 8, 1, 1, shape, shape, 0}};
static const qc_kernel_description kernel = {"tiny", 2, arguments, 0};
static char text[200];
%(globals)s
int32_t qc_abi_version(void) { return %(version)d; }
int32_t qc_kernel_count(void) { return 1; }
const qc_kernel_description *qc_kernel(int32_t index) { return index == 0 ? &kernel : 0; }
const char *qc_last_error(void) { return text; }
int32_t qc_run(int32_t index, void *const *tensors, int32_t threads) {
  volatile uint8_t *input = tensors[0], *output = tensors[1];
  %(body)s
  return 0;
}
"""


def tiny_library(folder: Path, body: str, *flags: str, declarations: str = "", version: int = 1) -> bytes:
    """A library whose kernel does what the C statements say."""
    source = TINY % {"globals": declarations, "body": body, "version": version}
    (folder / "tiny.c").write_text(source, encoding="utf-8")
    arguments = ["-O1", "-fno-builtin", "-w", "-fPIC", "-shared", f"-I{NATIVE}", *flags, "tiny.c", "-o", "tiny.so"]
    run_compiler([*arguments, "-lm"], folder, "make a library")
    return (folder / "tiny.so").read_bytes()


def open_tiny(folder: Path, body: str, *flags: str, cpu: str = "haswell", **options: Any) -> client.EmulatedLibrary:
    """The library, in emulation."""
    return client.open_library(tiny_library(folder, body, *flags, **options), cpu, "target tiny")


def run_tiny(library: client.EmulatedLibrary, data: bytes = b"\1\2\3\4\5") -> bytes:
    """What its kernel returns."""
    output = np.zeros(5, np.uint8)
    library.run(0, [np.frombuffer(data, np.uint8)], [output], RunOptions(1))
    return output.tobytes()


def worker_process(cpu: str) -> int:
    """The number of the process that emulates a CPU."""
    worker: Any = client._emulators[cpu]._worker
    return int(worker._process.pid)
