"""From a computed function to object code of a CPU.

Before scheduling, the function is prepared: its tensors may have any address, and LLVM is told how to round and which
products must not be fused. After scheduling, TVM's pipeline for CPUs lowers it, and LLVM makes an object file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from ...compute.rounding import UNFUSED
from ...errors import LoweringError
from ..interface import Code, Hardware
from .llvm import check_code_generator, tvm_target

#: Interface tensors come from anywhere: the code may not assume more than the alignment of one element.
INTERFACE_ALIGNMENT = 1
#: TVM keeps smaller buffers on the stack.
STACK_LIMIT = 1024


def prepare_interface(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Lets the parameters have any address: TVM assumes 64-byte alignment and would emit aligned moves."""
    unaligned = {
        parameter: tirx.decl_buffer(
            parameter.ty.shape, parameter.ty.dtype, name=parameter.name, data_alignment=INTERFACE_ALIGNMENT
        )
        for parameter in function.params
    }
    return tvm_ffi.structural_map(function, [(tvm.ir.Var, lambda var: unaligned.get(var, var))])


def select_rounding(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """int32(nearbyint(x)) -> LLVM's lrint, one exact instruction on every CPU.

    Without it, a processor without a rounding instruction (SSE2) calls the C library for every element.
    """
    nearbyint = tvm.ir.Op.get("tirx.nearbyint")

    def replace(cast: Any) -> Any:
        inner = cast.value
        if str(cast.ty.dtype) == "int32" and isinstance(inner, tvm.ir.Call) and inner.op.same_as(nearbyint):
            return tirx.call_llvm_pure_intrin("int32", "llvm.lrint", inner.args[0])
        return cast

    return tvm_ffi.structural_map(function, [(tirx.Cast, replace)])


def fence_products(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Marked products -> LLVM's arithmetic.fence, without which LLVM fuses them with the sum that they feed."""
    extern = tvm.ir.Op.get("tirx.call_pure_extern")

    def replace(call: Any) -> Any:
        if call.op.same_as(extern) and isinstance(call.args[0], tvm.ir.StringImm) and call.args[0].value == UNFUSED:
            return tirx.call_llvm_pure_intrin("float32", "llvm.arithmetic.fence", call.args[1])
        return call

    return tvm_ffi.structural_map(function, [(tvm.ir.Call, replace)])


#: rewrites of the computed function before it is scheduled
_PREPARATIONS: tuple[Callable[[tirx.PrimFunc], tirx.PrimFunc], ...] = (
    prepare_interface, select_rounding, fence_products,
)  # fmt: skip


def prepare(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The computed function, ready for a rule."""
    for step in _PREPARATIONS:
        function = step(function)
    return function


def generate(module: tvm.IRModule, symbol: str, hardware: Hardware, wanted: Sequence[str] = ()) -> Code:
    """Object code of the scheduled function "main"; its entry is `__tvm_ffi_` + symbol.

    Args:
        module: IRModule with the scheduled "main".
        symbol: an identifier.
        hardware: the target.
        wanted: names of stages whose text is wanted.

    Raises:
        LoweringError: TVM or LLVM refuse the function.
    """
    check_code_generator(hardware)
    target = tvm_target(hardware)
    named = tvm.IRModule({symbol: module["main"].with_attr("global_symbol", symbol)})
    try:
        with target:
            lowered, built = _build(named, target.with_host(target))
            texts = {
                stage: text()
                for stage, text in (
                    ("scheduled", named.script),
                    ("lowered", lowered.script),
                    ("llvm", lambda: str(built.inspect_source("ll"))),
                    ("assembly", lambda: str(built.inspect_source("asm"))),
                )
                if stage in wanted
            }
        with tempfile.TemporaryDirectory(prefix="qcompile-") as folder:
            path = Path(folder) / "kernel.o"
            built.write_to_file(str(path), "o")
            object_code = path.read_bytes()
    except Exception as error:  # TVM raises many types, of its own and of others
        raise LoweringError(f"TVM could not generate code for {symbol} on {hardware.name}: {error}") from error
    return Code(symbol, object_code, _workspace_bytes(lowered), texts=texts)


def _build(module: tvm.IRModule, target: tvm.target.Target) -> tuple[tvm.IRModule, Any]:
    """What tvm.tirx.build does for a CPU: the lowered module, and the module of its code."""
    pipeline, finalize_host, _ = tirx.get_default_tir_pipeline(target)
    lowered = pipeline(tirx.transform.BindTarget(target)(module))
    return lowered, tvm.get_global_func(f"target.build.{target.kind.name}")(finalize_host()(lowered), target.host)


def _workspace_bytes(module: tvm.IRModule) -> int:
    """Bytes of all buffers that do not fit on the stack."""
    total = 0

    def count(statement: Any) -> None:
        nonlocal total
        buffer = statement.buffer
        elements = 1
        for extent in buffer.shape:
            elements *= int(extent)
        size = elements * tvm.DataType(str(buffer.dtype)).itemsize
        total += size if size > STACK_LIMIT else 0

    for function in module.functions.values():
        tvm_ffi.structural_walk(function, [(tirx.AllocBuffer, count)])
    return total
