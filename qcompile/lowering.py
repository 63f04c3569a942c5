"""From a scheduled function to machine code, in named stages that can each be dumped.

computed   the TE's PrimFunc                       (TVMScript)
scheduled  after the rule, unaligned interface and chosen rounding instruction   (TVMScript)
lowered    what TVM's code generator gets          (TVMScript)
llvm       LLVM IR
assembly   machine code as text
object     an ELF object, whose entry is `__tvm_ffi_<symbol>`
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from .compute.rounding import UNFUSED
from .errors import LoweringError, TargetFileError
from .hardware import KNOWN_FEATURES, Hardware
from .instructions import INSTRUCTIONS

STAGES = ("computed", "scheduled", "lowered", "llvm", "assembly")
#: Interface tensors come from anywhere: the code may not assume more than the alignment of one element.
INTERFACE_ALIGNMENT = 1
#: TVM keeps smaller buffers on the stack.
STACK_LIMIT = 1024


@dataclass(frozen=True)
class Machine:
    """The machine code of one function.

    Args:
        symbol: the function's name; the entry is `__tvm_ffi_` + symbol.
        object_code: the ELF object.
        workspace_bytes: scratch memory of a call in one thread.
        texts: stage -> text, of those that were asked for.
    """

    symbol: str
    object_code: bytes
    workspace_bytes: int
    texts: dict[str, str]


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


#: code generator -> rewrites of the computed function before it is scheduled
PREPARATIONS: dict[str, tuple[Callable[[tirx.PrimFunc], tirx.PrimFunc], ...]] = {
    "llvm": (prepare_interface, select_rounding, fence_products),
}


def prepare(function: tirx.PrimFunc, hardware: Hardware) -> tirx.PrimFunc:
    """The computed function, ready for a rule of this target."""
    for step in PREPARATIONS[hardware.code_generators[0]]:
        function = step(function)
    return function


def check_code_generators(hardware: Hardware) -> None:
    """Raises LoweringError where this TVM lacks a code generator of the target."""
    for generator in hardware.code_generators:
        if tvm.get_global_func(f"target.build.{generator}", allow_missing=True) is None:
            raise LoweringError(
                f"Target {hardware.name} needs a code generator that this TVM does not have.",
                given=generator,
                remedy="install the apache-tvm wheel that qcompile names in its requirements",
            )


def tvm_target(hardware: Hardware) -> tvm.target.Target:
    """The target in TVM's terms.

    Raises:
        TargetFileError: TVM does not know an option, or the CPU.
    """
    try:
        target = tvm.target.Target(dict(hardware.target))
        cpus = tvm.get_global_func("target.llvm_get_cpu_archlist")(target)
        cpu = hardware.target.get("mcpu", "generic")
        if cpu not in set(map(str, cpus)):  # LLVM would print a line and take a generic one
            raise ValueError(f"LLVM knows no CPU {cpu!r}")
        _check_features(hardware, set(map(str, tvm.get_global_func("target.llvm_get_cpu_features")(target))))
        return target
    except (ValueError, TypeError, RuntimeError) as error:
        message = str(error).splitlines()[0]
        raise TargetFileError(f"TVM refuses the table [target] of {hardware.name}: {message}") from error


#: LLVM's name of a CPU feature -> ours, where they differ
LLVM_FEATURES = {"bmi": "bmi1", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "avx512bf16": "avx512_bf16",
                 "avx512fp16": "avx512_fp16", "avx512vbmi2": "avx512_vbmi2", "amx-tile": "amx_tile",
                 "amx-int8": "amx_int8"}  # fmt: skip
#: what every CPU with AVX has
_BEFORE_AVX = {"sse3", "ssse3", "sse4_1", "sse4_2", "popcnt"}


def _check_features(hardware: Hardware, features: set[str]) -> None:
    """Raises ValueError where LLVM would end the process, or ignore what it does not know.

    Args:
        hardware: the target.
        features: what LLVM's CPU has, with the target's own additions.
    """
    for word in hardware.target.get("mattr", ()):
        if word.startswith("+") and word[1:] not in features:
            raise ValueError(f"LLVM knows no feature {word!r} of mattr")
    used = {LLVM_FEATURES.get(name, name) for name in features} & set(KNOWN_FEATURES[hardware.architecture])
    required = set(hardware.required_features)
    lacking = used - required - {"sse2"} - (_BEFORE_AVX if "avx" in required else set())
    if lacking:
        raise ValueError(f"mcpu and mattr let the code use {', '.join(sorted(lacking))}, which required_features lacks")
    for field, known in INSTRUCTIONS.items():
        name = getattr(hardware, field)
        if name and not any(needed <= features for needed in known[name].features):
            ways = " or ".join(" and ".join(sorted(needed)) for needed in known[name].features)
            raise ValueError(f"{name} ({field}) needs the feature {ways}, which mcpu and mattr do not give")


def lower(module: tvm.IRModule, symbol: str, hardware: Hardware, dump: tuple[str, ...] = ()) -> Machine:
    """Machine code of the scheduled function "main", under the name `symbol`.

    Args:
        module: IRModule with the scheduled "main".
        symbol: an identifier.
        hardware: the target.
        dump: names of `STAGES` whose text is wanted ("computed" is known to the caller alone).

    Raises:
        LoweringError: TVM or LLVM refuse the function.
    """
    check_code_generators(hardware)
    target = tvm_target(hardware)
    function = module["main"].with_attr("global_symbol", symbol)
    named = tvm.IRModule({symbol: function})
    lowered: list[tvm.IRModule] = []
    try:
        host_target = target.with_host(target)
        with target:
            runtime_module = _build(named, host_target, lowered)
            texts = {"scheduled": named.script()} if "scheduled" in dump else {}
            if "lowered" in dump:
                texts["lowered"] = lowered[0].script()
            for stage, source in (("llvm", "ll"), ("assembly", "asm")):
                if stage in dump:
                    texts[stage] = runtime_module.inspect_source(source)
        with tempfile.TemporaryDirectory(prefix="qcompile-") as folder:
            path = Path(folder) / "kernel.o"
            runtime_module.write_to_file(str(path), "o")
            object_code = path.read_bytes()
    except Exception as error:  # TVM raises many types, of its own and of others
        raise LoweringError(f"TVM could not generate code for {symbol} on {hardware.name}: {error}") from error
    return Machine(symbol, object_code, _workspace_bytes(lowered[0]), texts)


def _build(module: tvm.IRModule, target: tvm.target.Target, lowered: list[tvm.IRModule]) -> Any:
    """tvm.tirx.build for a CPU, keeping the lowered module."""
    pipeline, finalize_host, _ = tirx.get_default_tir_pipeline(target)
    bound = tirx.transform.BindTarget(target)(module)
    lowered.append(pipeline(bound))
    return tvm.get_global_func(f"target.build.{target.kind.name}")(finalize_host()(lowered[0]), target.host)


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
