"""The table of kernels: written and read by one description, which is that of the C header."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

import qcompile as qc
from qcompile.backends.cpu import struct_layout
from qcompile.backends.cpu.linking import NATIVE
from qcompile.backends.interface import TableArgument, TableKernel
from qcompile.system import toolchain

from ...support import small_convolution


def table_kernel(arguments: int, shape: tuple[int, ...] = (1,)) -> TableKernel:
    rows = tuple(TableArgument(f"t{number}", "int8", shape, shape, "input") for number in range(arguments))
    return TableKernel("many", "symbol", rows, small_convolution())


@pytest.mark.parametrize("structure", struct_layout.STRUCTURES)
def test_the_fields_lie_where_the_c_compiler_puts_them(structure: str, tmp_path: Path) -> None:
    fields = [name for name, kind in struct_layout.STRUCTURES[structure] if kind != "padding"]
    name = structure if structure == "qc_argument" else f"struct {structure}"
    prints = "\n".join(f'  printf("%zu ", offsetof({name}, {field}));' for field in fields)
    source = f'#include <stddef.h>\n#include <stdio.h>\n#include "qcompile.h"\nint main(void) {{\n{prints}\n'
    (tmp_path / "offsets.c").write_text(source + f'  printf("%zu", sizeof({name}));\n}}\n')
    toolchain.run_compiler([f"-I{NATIVE}", "offsets.c", "-o", "offsets"], tmp_path, "compile the offsets")
    done = subprocess.run([tmp_path / "offsets"], capture_output=True, text=True, check=True)
    *offsets, size = map(int, done.stdout.split())
    layout = struct_layout.format_of(structure)
    assert size == layout.size
    content = bytearray(layout.size)
    for number, offset in enumerate(offsets, 1):
        content[offset] = number
    assert layout.unpack(bytes(content)) == tuple(range(1, len(fields) + 1))


def test_a_table_that_a_library_cannot_run_is_not_written() -> None:
    most = struct_layout.MAXIMUM_ARGUMENTS
    struct_layout.table_text([table_kernel(most)])
    with pytest.raises(qc.LoweringError, match=rf"too many tensors(?s:.*){most + 1} inputs(?s:.*)at most {most}"):
        struct_layout.table_text([table_kernel(most + 1)])
    with pytest.raises(qc.LoweringError, match=r"too many dimensions(?s:.*)65"):
        struct_layout.table_text([table_kernel(1, (1,) * 65)])


def test_the_library_is_built_with_the_limits_of_the_table() -> None:
    from qcompile.backends.cpu import linking

    flags = " ".join(linking._COMPILE_FLAGS)
    assert f"QC_MAXIMUM_ARGUMENTS={struct_layout.MAXIMUM_ARGUMENTS}" in flags
    sources = "".join(path.read_text() for path in NATIVE.glob("*.c"))
    assert "#define QC_MAXIMUM" not in sources


def test_a_table_that_is_impossible_is_refused() -> None:
    layout = struct_layout.format_of("qc_kernel_description")
    content = layout.pack(0, struct_layout.MAXIMUM_ARGUMENTS + 1, 0, 0)
    with pytest.raises(qc.BundleError, match="damaged"):
        struct_layout.read_arguments(0, lambda address, size: content[address : address + size])


def test_constants_are_stored_once() -> None:
    value = np.arange(4, dtype=np.int8)
    rows = tuple(TableArgument(name, "int8", (4,), (4,), "constant", value=value) for name in ("a", "b"))
    _, content = struct_layout.table_text([TableKernel("k", "s", rows, small_convolution())])
    assert len(content) == 64
