"""compile(): the one place where description, schedule, code and bundle are joined."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from . import __version__, cache, catalogue, overflow, tvm_versions
from . import hardware as hardware_files
from . import records as schedule_records
from .bundle import BundledKernel, assemble
from .errors import (
    InvalidOperatorError,
    InvalidTensorError,
    LoweringError,
    QCompileError,
    RecordsError,
    RecordsWarning,
    UnknownNameError,
    UnsupportedError,
)
from .facts import NOTHING, Facts, facts_of
from .hardware import Hardware
from .linking import LinkedArgument, LinkedKernel, link
from .packing import fold
from .requests import Request, read_file, requests_of_operators
from .runtime import cpu_features
from .runtime.kernel import Kernel
from .runtime.loader import Bundle
from .runtime.manifest import REQUANTIZE_VARIANTS, VariantEntry
from .spec import Operator
from .spec.values import canonical_values
from .toolchain import c_compiler

if TYPE_CHECKING:
    from onnx import ModelProto

    from .compute.computation import Computation

#: (kernels done, kernels in all, name of the kernel that comes next)
Progress = Callable[[int, int, str], None]
#: the path of a file of records, or several
RecordPaths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True)
class _Code:
    """Compiled code of an operator with these tensors constant, whatever their values."""

    symbol: str
    object_code: bytes
    workspace_bytes: int
    arguments: tuple[tuple[str, str, tuple[int, ...], str], ...]


@dataclass(frozen=True)
class _Work:
    """A kernel to compile for one target."""

    request: Request
    hardware: Hardware
    choice: schedule_records.Choice

    def key(self) -> str:
        """What determines the code; the values of the constants do not."""
        return cache.digest(
            "kernel", self.request.operator.name, sorted(self.request.constants), asdict(self.hardware),
            self.choice.rule, self.choice.version, sorted(self.choice.knobs.items()),
            self.choice.form(self.request.operator, self.hardware),
            tvm_versions.installed("apache-tvm"), cache.source_digest(),
        )  # fmt: skip


def host() -> Hardware:
    """The most demanding CPU target that runs on this machine.

    Raises:
        UnknownNameError: none does.
    """
    usable = [
        entry
        for entry in hardware_files.load_all()
        if entry.kind == "cpu" and not cpu_features.missing(entry.architecture, entry.required_features)
    ]
    if not usable:
        raise UnknownNameError(
            "No CPU target runs on this machine.",
            given=cpu_features.architecture(),
            accepted=", ".join(entry.name for entry in hardware_files.load_all()),
        )
    return max(usable, key=_demand)


def _demand(hardware: Hardware) -> tuple[int, int, str]:
    return hardware.vector_bits, len(hardware.required_features), hardware.name


def resolve_targets(target: str | Sequence[str]) -> list[Hardware]:
    """The targets of a name, or of several; "host" is this machine's. The most demanding comes first."""
    names = [target] if isinstance(target, (str, os.PathLike)) else target
    if not isinstance(names, Sequence) or not all(isinstance(name, (str, os.PathLike)) for name in names):
        raise UnknownNameError("This is no target.", given=repr(target)[:200], accepted="a name, or a list of names")
    if not names:
        raise UnknownNameError("No target is given.", accepted="a name, or a list of names")
    chosen: dict[str, Hardware] = {}
    for name in names:
        hardware = host() if name == "host" else hardware_files.load(os.fspath(name))
        if chosen.setdefault(hardware.name, hardware) != hardware:
            raise UnknownNameError("Two different targets have the same name.", given=repr(hardware.name))
    return sorted(chosen.values(), key=_demand, reverse=True)


@overload
def compile(
    operators: Operator,
    target: str | Sequence[str] = ...,
    constants: Mapping[str, Any] | None = ...,
    *,
    records: RecordPaths | None = ...,
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
    records: RecordPaths | None = ...,
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
    records: RecordPaths | None = None,
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
    if isinstance(operators, (str, os.PathLike, bytes)) or hasattr(operators, "SerializeToString"):
        if constants is not None:
            raise InvalidTensorError("constants= is for operators; a model brings its own.")
        requests = read_file(operators, input_shapes).requests
        return compile_requests(requests, target, records=records, overflow=overflow, progress=progress)
    if input_shapes is not None:
        raise InvalidTensorError("input_shapes= is for ONNX models; an operator has its shapes.")
    single = isinstance(operators, Operator)
    requests = requests_of_operators(operators, constants)
    bundle = compile_requests(requests, target, records=records, overflow=overflow, single=single, progress=progress)
    return next(iter(bundle)) if single else bundle


def compile_requests(
    requests: Sequence[Request],
    target: str | Sequence[str],
    *,
    records: RecordPaths | None = None,
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
    targets = resolve_targets(target)
    c_compiler()  # raises before the long work rather than after it
    checked = [replace(request, constants=_checked_constants(request, overflow)) for request in requests]
    files = load_records(records)
    facts = [facts_of(request.operator, request.constants) for request in checked]
    work = [
        _Work(
            request, hardware, schedule_records.find(request.operator, hardware, request.constants.keys(), files, own)
        )
        for hardware in targets
        for request, own in zip(checked, facts, strict=True)
    ]
    if files and not any(job.choice.source == "records" for job in work):
        names = ", ".join(file.origin for file in files)
        warnings.warn(f"no record of {names} is followed; `qcompile explain --records` says why", RecordsWarning,
                      stacklevel=2)  # fmt: skip
    codes = _generate_all(work, progress)
    libraries, variants = [], [[] for _ in checked]  # type: tuple[list[bytes], list[list[VariantEntry]]]
    for position in range(len(targets)):
        part = slice(position * len(checked), (position + 1) * len(checked))
        linked = [_linked_kernel(job, code) for job, code in zip(work[part], codes[part], strict=True)]
        libraries.append(link(linked, {code.symbol: code.object_code for code in codes[part]}))
        for number, (job, code) in enumerate(zip(work[part], codes[part], strict=True)):
            variants[number].append(_variant(job.choice, position, number, code))
    return _bundle(checked, variants, targets, libraries, single)


def _bundle(
    requests: Sequence[Request],
    variants: Sequence[Sequence[VariantEntry]],
    targets: Sequence[Hardware],
    libraries: Sequence[bytes],
    single: bool,
) -> Bundle:
    kernels = [
        BundledKernel(request.name, request.aliases, request.operator, request.constants, tuple(own))
        for request, own in zip(requests, variants, strict=True)
    ]
    producer = {"qcompile": __version__, "apache-tvm": tvm_versions.TVM[1]}
    return assemble(kernels, targets, libraries, producer=producer, requantize="float32", single=single)


def compile_candidate(request: Request, hardware: Hardware, choice: schedule_records.Choice) -> tuple[Bundle, str]:
    """A bundle of one kernel that is scheduled as told, and the digest of its code. The cache is not used.

    Args:
        request: with canonical constants, whose sums are not checked for overflow.
        hardware: the target.
        choice: the rule and its knobs.
    """
    job = _Work(request, hardware, choice)
    code = _parsed(_generate(job, "qc_candidate"))
    library = link([_linked_kernel(job, code)], {code.symbol: code.object_code})
    bundle = _bundle([request], [[_variant(choice, 0, 0, code)]], [hardware], [library], single=True)
    return bundle, cache.digest(code.object_code)


def load_records(paths: RecordPaths | None) -> list[schedule_records.RecordFile]:
    """The files of records of a path, or of several.

    Raises:
        RecordsError: one cannot be read.
    """
    if paths is None:
        return []
    several = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    if not isinstance(several, Sequence) or not all(isinstance(path, (str, os.PathLike)) for path in several):
        raise RecordsError("records= is wrong.", given=repr(paths)[:200], accepted="the path of a file, or several")
    return [schedule_records.load(path) for path in several]


def _checked_constants(request: Request, overflow_answer: str) -> Mapping[str, Any]:
    values = canonical_values(request.operator, request.constants)
    request.operator.check_values(values)
    overflow.check(request.operator, values, request.name, overflow_answer)
    if all(tensor.name in values for tensor in request.operator.tensors):
        raise InvalidTensorError(
            f"Kernel {request.name!r} has nothing left to compute: all its tensors are constants.",
            remedy="leave out the data (input, a) from constants=",
        )
    return values


def _variant(choice: schedule_records.Choice, library: int, index: int, code: _Code) -> VariantEntry:
    return VariantEntry(
        library, index, choice.rule, choice.version, dict(choice.knobs), choice.source, choice.refused,
        code.workspace_bytes,
    )  # fmt: skip


def _generate_all(work: Sequence[_Work], progress: Progress | None) -> list[_Code]:
    """The code of each job, in their order. TVM leaves the interpreter free, so that threads share the work."""
    codes = []
    with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as executor:
        futures: dict[str, Future[_Code]] = {}
        for job in work:
            key = job.key()
            if key not in futures:
                futures[key] = executor.submit(_code, job, key)
        try:
            for number, job in enumerate(work):
                if progress is not None:
                    progress(number, len(work), job.request.name)
                codes.append(futures[job.key()].result())
        except BaseException:
            executor.shutdown(cancel_futures=True)
            raise
    if progress is not None:
        progress(len(work), len(work), "")
    return codes


def _linked_kernel(job: _Work, code: _Code) -> LinkedKernel:
    request = job.request
    form = job.choice.form(request.operator, job.hardware)
    tensors = {tensor.name: tensor for tensor in (*request.operator.tensors, *request.operator.outputs)}
    arguments = [
        LinkedArgument(
            name,
            dtype,
            shape if kind == "constant" else tensors[name].shape,
            shape,
            kind,
            optional=kind == "input" and tensors[name].optional,
            value=fold(name, request.operator, form, request.constants) if kind == "constant" else None,
        )
        for name, dtype, shape, kind in code.arguments
    ]
    return LinkedKernel(request.name, code.symbol, tuple(arguments))


def _code(job: _Work, key: str) -> _Code:
    """Machine code from the cache, or from TVM."""
    return _parsed(cache.cached(key, partial(_generate, job, f"qc_{key[:24]}")))


def _parsed(stored: bytes) -> _Code:
    text, _, object_code = stored.partition(b"\n")
    facts = json.loads(text)
    arguments = tuple((name, dtype, tuple(shape), kind) for name, dtype, shape, kind in facts["arguments"])
    return _Code(facts["symbol"], object_code, facts["workspace_bytes"], arguments)


def _generate(job: _Work, symbol: str) -> bytes:
    from . import lowering

    computation, module = schedule(job.request.operator, frozenset(job.request.constants), job.hardware, job.choice)
    machine = lowering.lower(module, symbol, job.hardware)
    facts = {
        "symbol": symbol,
        "workspace_bytes": machine.workspace_bytes,
        "arguments": [list(asdict(argument).values()) for argument in computation.arguments],
    }
    return json.dumps(facts).encode() + b"\n" + machine.object_code


def schedule(
    operator: Operator, known: frozenset[str], hardware: Hardware, choice: schedule_records.Choice
) -> tuple[Computation, Any]:
    """The prepared computation of an operator and its scheduled IRModule.

    Raises:
        LoweringError: TVM refuses the computation or a move of the rule.
    """
    tvm_versions.check()
    compute = catalogue.compute_function(operator)
    from . import lowering

    rule = schedule_records.load_rule(choice.rule)
    form = choice.form(operator, hardware)
    try:
        computation = compute(operator, known, form)
        computation = replace(computation, function=lowering.prepare(computation.function, hardware))
        return computation, rule.schedule(operator, hardware, computation, form, choice.knobs)
    except QCompileError:
        raise
    except Exception as error:  # TVM raises many types
        raise LoweringError(f"{choice.rule} could not schedule {operator.name} on {hardware.name}: {error}") from error


def stages(
    operator: Operator,
    known: frozenset[str],
    hardware: Hardware,
    wanted: Sequence[str],
    records: RecordPaths | None = None,
    facts: Facts = NOTHING,
) -> dict[str, str]:
    """The texts of lowering stages (`lowering.STAGES`) of a kernel, to look at.

    Raises:
        UnknownNameError: no such stage.
    """
    choice = schedule_records.find(operator, hardware, known, load_records(records), facts)
    computation, module = schedule(operator, known, hardware, choice)
    from . import lowering

    for stage in wanted:
        if stage not in lowering.STAGES:
            raise UnknownNameError("Unknown stage.", given=repr(stage), accepted=", ".join(lowering.STAGES))
    machine = lowering.lower(module, "kernel", hardware, tuple(wanted))
    texts = {"computed": computation.function.script(), **machine.texts}
    return {stage: texts[stage] for stage in wanted}
