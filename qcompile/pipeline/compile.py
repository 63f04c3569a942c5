"""compile(): from operators, files and models to a bundle."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

from ..backends import check_compiler, compiler_of
from ..backends.interface import Code, Hardware
from ..backends.targets import resolve
from ..bundle.assemble import BundledKernel, assemble
from ..bundle.manifest import REQUANTIZE_VARIANTS, VariantEntry
from ..constants.facts import facts_of
from ..constants.overflow import check
from ..errors import InvalidOperatorError, InvalidTensorError, RecordsWarning, UnsupportedError
from ..frontends.requests import Request, requests_of
from ..planning import Plan, find
from ..records import RecordFile, load_each
from ..records.file import Paths
from ..runtime.kernel import Kernel
from ..runtime.loader import Bundle
from ..spec import Operator
from ..spec.values import canonical_values
from ..system import tvm_versions
from ..system.hashing import digest
from ..version import __version__
from .codes import Job, generate, generate_all, table_kernel

if TYPE_CHECKING:
    from onnx import ModelProto

#: (kernels done, kernels in all, name of the kernel that comes next)
Progress = Callable[[int, int, str], None]


@overload
def compile(
    operators: Operator,
    target: str | Sequence[str] = ...,
    constants: Mapping[str, Any] | None = ...,
    *,
    records: Paths | None = ...,
    requantize: str = ...,
    overflow: str = ...,
    progress: Progress | None = ...,
) -> Kernel: ...


@overload
def compile(
    operators: Sequence[Operator] | Mapping[str, Operator] | str | os.PathLike[str] | bytes | ModelProto,
    target: str | Sequence[str] = ...,
    constants: Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None = ...,
    *,
    records: Paths | None = ...,
    requantize: str = ...,
    overflow: str = ...,
    input_shapes: Mapping[str, Sequence[int]] | None = ...,
    progress: Progress | None = ...,
) -> Bundle: ...


def compile(
    operators: Operator | Sequence[Operator] | Mapping[str, Operator] | str | os.PathLike[str] | bytes | ModelProto,
    target: str | Sequence[str] = "host",
    constants: Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None = None,
    *,
    records: Paths | None = None,
    requantize: str = "float32",
    overflow: str = "warn",
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    progress: Progress | None = None,
) -> Kernel | Bundle:
    """Compiles operators into kernels.

    Args:
        operators: one operator; several, in a sequence or by name; an ONNX model, as a path, bytes or a ModelProto; or
            the path of a TOML file with operators.
        target: a target's name ("host" is this machine), the path of a target file, or several of these.
        constants: tensors that are fixed: name -> value for one operator; for several, a mapping for each of them, in
            their order or by their names. Models bring their own.
        records: file of records that `tune` wrote, or several; earlier ones decide first.
        requantize: the arithmetic of the last stage; "float32" is the only one of this version.
        overflow: where the int32 sums of some inputs can overflow, as far as the constants tell, "warn" warns and
            "error" raises; see docs/numerics.md.
        input_shapes: shapes of a model's inputs, for those with dynamic dimensions.
        progress: called before each kernel and at the end.

    Returns:
        A Kernel for one operator, a Bundle otherwise.

    Raises:
        AccumulatorOverflowError: int32 sums can overflow, and `overflow` is "error".
        QCompileError: another subclass says what is wrong.

    Warns:
        AccumulatorOverflowWarning: int32 sums can overflow, and `overflow` is "warn"; they then wrap modulo 2^32.
    """
    if requantize not in REQUANTIZE_VARIANTS:
        accepted = ", ".join(map(repr, REQUANTIZE_VARIANTS))
        raise UnsupportedError("Unknown requantize arithmetic.", given=repr(requantize), accepted=accepted)
    requests = requests_of(operators, constants, input_shapes)
    single = isinstance(operators, Operator)
    bundle = compile_requests(
        requests, target, records=records, requantize=requantize, overflow=overflow, single=single, progress=progress
    )
    return next(iter(bundle)) if single else bundle


def compile_requests(
    requests: Sequence[Request],
    target: str | Sequence[str],
    *,
    records: Paths | None = None,
    requantize: str = REQUANTIZE_VARIANTS[0],
    overflow: str = "warn",
    single: bool = False,
    progress: Progress | None = None,
) -> Bundle:
    """Compiles requests for one or several targets into one bundle.

    Raises:
        InvalidOperatorError: there are none, besides the errors of `compile`.
    """
    if not requests:
        raise InvalidOperatorError(
            "There is no quantized operator to compile.", remedy="`qcompile explain MODEL` says why for each node"
        )
    targets = resolve(target)
    for hardware in targets:
        check_compiler(hardware)  # raises before the long work rather than after it
    checked = [replace(request, constants=_checked_constants(request, overflow)) for request in requests]
    files = load_each(records)
    jobs = [
        [Job(request.name, _plan(request, hardware, files), requantize) for request in checked] for hardware in targets
    ]
    if files and not any(job.plan.source == "records" for own in jobs for job in own):
        names = ", ".join(file.origin for file in files)
        warnings.warn(
            f"no record of {names} is followed; `qcompile explain --records` says why", RecordsWarning, stacklevel=2
        )
    codes = generate_all([job for own in jobs for job in own], progress)
    libraries = [_library(own, checked, codes, hardware) for own, hardware in zip(jobs, targets, strict=True)]
    kernels = [
        _bundled(request, [(own[number].plan, codes[own[number].key]) for own in jobs], number)
        for number, request in enumerate(checked)
    ]
    return _bundle(kernels, targets, libraries, requantize, single)


def _plan(request: Request, hardware: Hardware, files: Sequence[RecordFile]) -> Plan:
    facts = facts_of(request.operator, request.constants)
    return find(request.operator, hardware, request.constants.keys(), files, facts)


def _library(jobs: Sequence[Job], requests: Sequence[Request], codes: Mapping[str, Code], hardware: Hardware) -> bytes:
    own = [codes[job.key] for job in jobs]
    table = [table_kernel(job, request.constants, code) for job, request, code in zip(jobs, requests, own, strict=True)]
    return compiler_of(hardware.kind).link(table, {code.symbol: code for code in own}, hardware)


def _bundled(request: Request, variants: Sequence[tuple[Plan, Code]], number: int) -> BundledKernel:
    entries = tuple(
        VariantEntry(
            library, number, plan.rule, plan.version, dict(plan.knobs), plan.source, plan.refused, code.workspace_bytes
        )
        for library, (plan, code) in enumerate(variants)
    )
    return BundledKernel(request.name, request.aliases, request.operator, request.constants, entries)


def _bundle(
    kernels: Sequence[BundledKernel],
    targets: Sequence[Hardware],
    libraries: Sequence[bytes],
    requantize: str,
    single: bool,
) -> Bundle:
    producer = {"qcompile": __version__, "apache-tvm": tvm_versions.TVM[1]}
    content = assemble(kernels, targets, libraries, producer=producer, requantize=requantize, single=single)
    return Bundle(content, "The new bundle")


def compile_candidate(request: Request, plan: Plan) -> tuple[Bundle, str]:
    """A bundle of one kernel that is scheduled as told, and the digest of its code. The cache is not used.

    Args:
        request: with canonical constants, whose sums are not checked for overflow.
        plan: of the kernel.
    """
    requantize = REQUANTIZE_VARIANTS[0]
    job = Job(request.name, plan, requantize)
    code = generate(plan, "qc_candidate")
    library = compiler_of(plan.hardware.kind).link(
        [table_kernel(job, request.constants, code)], {code.symbol: code}, plan.hardware
    )
    bundle = _bundle([_bundled(request, [(plan, code)], 0)], [plan.hardware], [library], requantize, single=True)
    return bundle, digest(code.content)


def _checked_constants(request: Request, overflow: str) -> Mapping[str, Any]:
    values = canonical_values(request.operator, request.constants)
    request.operator.check_values(values)
    check(request.operator, values, request.name, overflow)
    if all(tensor.name in values for tensor in request.operator.tensors):
        raise InvalidTensorError(
            f"Kernel {request.name!r} has nothing left to compute: all its tensors are constants.",
            remedy="leave out the data (input, a) from constants=",
        )
    return values
