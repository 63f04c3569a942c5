"""compile(): the one place where description, schedule, code and bundle are joined."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from . import __version__, cache, catalogue, records, tvm_versions
from . import hardware as hardware_files
from .bundle import BundledKernel, assemble
from .errors import InvalidOperatorError, InvalidTensorError, NotApplicable, UnknownNameError, UnsupportedError
from .hardware import Hardware
from .linking import LinkedArgument, LinkedKernel, link
from .packing import fold
from .runtime import cpu_features
from .runtime.kernel import Kernel
from .runtime.loader import Bundle
from .runtime.manifest import VariantEntry
from .spec import Operator
from .spec.values import canonical_values

if TYPE_CHECKING:
    from .compute.computation import Computation

#: (kernels done, kernels in all, name of the kernel that comes next)
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Request:
    """A kernel to compile.

    Args:
        name: its name in the bundle.
        operator: the operator.
        constants: values of the tensors that are fixed, in any form that `spec.values` accepts.
        aliases: further names.
    """

    name: str
    operator: Operator
    constants: Mapping[str, Any]
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Code:
    """Compiled code of an operator with these tensors constant, whatever their values."""

    symbol: str
    object_code: bytes
    workspace_bytes: int
    arguments: tuple[tuple[str, str, tuple[int, ...], str], ...]


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
    names = [target] if isinstance(target, str) else list(target)
    if not names:
        raise UnknownNameError("No target is given.", accepted="a name, or a list of names")
    chosen = {
        hardware.name: hardware
        for hardware in (host() if name == "host" else hardware_files.load(str(name)) for name in names)
    }
    return sorted(chosen.values(), key=_demand, reverse=True)


@overload
def compile(
    operators: Operator,
    target: str | Sequence[str] = ...,
    constants: Mapping[str, Any] | None = ...,
    *,
    requantize: str = ...,
    progress: Progress | None = ...,
) -> Kernel: ...


@overload
def compile(
    operators: Sequence[Operator] | Mapping[str, Operator] | str | os.PathLike[str],
    target: str | Sequence[str] = ...,
    constants: Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None = ...,
    *,
    requantize: str = ...,
    input_shapes: Mapping[str, Sequence[int]] | None = ...,
    progress: Progress | None = ...,
) -> Bundle: ...


def compile(
    operators: Operator | Sequence[Operator] | Mapping[str, Operator] | str | os.PathLike[str],
    target: str | Sequence[str] = "host",
    constants: Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None = None,
    *,
    requantize: str = "float32",
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    progress: Progress | None = None,
) -> Kernel | Bundle:
    """Compiles operators into kernels.

    Args:
        operators: one operator; several, in a sequence or by name; or the path of an ONNX model or of a TOML file with
            operators.
        target: a target's name ("host" is this machine), the path of a target file, or several of these.
        constants: tensors that are fixed: name -> value for one operator; for several, a mapping for each of them, in
            their order or by their names. Models bring their own.
        requantize: the arithmetic of the last stage; "float32" is the only one of this version.
        input_shapes: shapes of a model's inputs, for those with dynamic dimensions.
        progress: called before each kernel and at the end.

    Returns:
        A Kernel for one operator, a Bundle otherwise.

    Raises:
        QCompileError: a subclass says what is wrong.
    """
    if requantize != "float32":
        raise UnsupportedError("Unknown requantize arithmetic.", given=repr(requantize), accepted="'float32'")
    if isinstance(operators, (str, os.PathLike)):
        if constants is not None:
            raise InvalidTensorError("constants= is for operators; a file brings its own.", given=os.fspath(operators))
        return compile_requests(requests_of_file(operators, input_shapes), target, progress=progress)
    if input_shapes is not None:
        raise InvalidTensorError("input_shapes= is for ONNX models; an operator has its shapes.")
    single = isinstance(operators, Operator)
    bundle = compile_requests(_requests(operators, constants), target, single=single, progress=progress)
    return next(iter(bundle)) if single else bundle


def requests_of_file(
    path: str | os.PathLike[str], input_shapes: Mapping[str, Sequence[int]] | None = None
) -> list[Request]:
    """The kernels that a TOML file of operators or an ONNX model asks for."""
    if Path(path).suffix.lower() == ".toml":
        from .frontends.toml import read_operators

        if input_shapes:
            raise InvalidTensorError("input shapes are for ONNX models; an operator has its shapes.")
        return [Request(entry.name, entry.operator, entry.constants) for entry in read_operators(path)]
    from .frontends.onnx import import_model

    return requests_of_nodes(import_model(path, input_shapes).nodes, os.fspath(path))


def requests_of_nodes(nodes: Sequence[Any], origin: str) -> list[Request]:
    """One request for each distinct node of a model: equal operators with equal constants share a kernel."""
    if not nodes:
        raise InvalidOperatorError(
            f"{origin} has no quantized operator that qcompile compiles.", remedy="`qcompile explain` lists its nodes"
        )
    distinct: dict[str, Request] = {}
    for node in nodes:
        contents = [(name, value.tobytes()) for name, value in sorted(node.constants.items())]
        key = cache.digest(node.operator.name, *(part for pair in contents for part in pair))
        known = distinct.get(key)
        if known is None:
            distinct[key] = Request(node.name, node.operator, node.constants)
        else:
            distinct[key] = replace(known, aliases=(*known.aliases, node.name))
    return list(distinct.values())


def _requests(operators: Any, constants: Any) -> list[Request]:
    if isinstance(operators, Operator):
        return [Request(operators.name, operators, _constants_mapping(constants))]
    if isinstance(operators, Mapping):
        unknown = set(constants or {}) - set(operators)
        if unknown:
            given = ", ".join(sorted(unknown))
            raise InvalidTensorError("constants= names kernels that are not compiled.", given=given)
        return [
            Request(str(name), _operator(operator), _constants_mapping((constants or {}).get(name)))
            for name, operator in operators.items()
        ]
    if not isinstance(operators, Sequence) or not operators:
        raise InvalidOperatorError(
            "There is nothing to compile.",
            given=type(operators).__name__,
            accepted="an operator, a sequence or mapping of operators, or the path of a model",
        )
    per_operator = [None] * len(operators) if constants is None else list(constants)
    if isinstance(constants, Mapping) or len(per_operator) != len(operators):
        raise InvalidTensorError("constants= must have one mapping for each operator.", accepted=len(operators))
    taken: dict[str, int] = {}
    requests = []
    for operator, own in zip(operators, per_operator, strict=True):
        name = _operator(operator).name
        taken[name] = taken.get(name, 0) + 1
        unique = name if taken[name] == 1 else f"{name}.{taken[name]}"
        requests.append(Request(unique, operator, _constants_mapping(own)))
    return requests


def _operator(value: Any) -> Operator:
    if not isinstance(value, Operator):
        raise InvalidOperatorError("This is no operator.", given=repr(value), accepted="one of qcompile's operators")
    return value


def _constants_mapping(value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidTensorError("constants= must be a mapping of names to values.", given=type(value).__name__)
    return value


def compile_requests(
    requests: Sequence[Request],
    target: str | Sequence[str],
    *,
    single: bool = False,
    progress: Progress | None = None,
) -> Bundle:
    """Compiles requests for one or several targets into one bundle."""
    targets = resolve_targets(target)
    checked = [replace(request, constants=_checked_constants(request)) for request in requests]
    variants: list[list[VariantEntry]] = [[] for _ in checked]
    libraries = []
    total, done = len(checked) * len(targets), 0
    for position, hardware in enumerate(targets):
        linked, objects = [], {}
        for number, request in enumerate(checked):
            if progress is not None:
                progress(done, total, request.name)
            choice = records.find(request.operator, hardware)
            code = _code(request.operator, frozenset(request.constants), hardware, choice)
            objects[code.symbol] = code.object_code
            linked.append(_linked_kernel(request, hardware, choice, code))
            variants[number].append(
                VariantEntry(
                    position, number, choice.rule, choice.version, dict(choice.knobs), choice.source, choice.refused,
                    code.workspace_bytes,
                )
            )  # fmt: skip
            done += 1
        libraries.append(link(linked, objects))
    if progress is not None:
        progress(done, total, "")
    kernels = [
        BundledKernel(request.name, request.aliases, request.operator, request.constants, tuple(own))
        for request, own in zip(checked, variants, strict=True)
    ]
    producer = {"qcompile": __version__, "apache-tvm": tvm_versions.TVM[1]}
    return assemble(kernels, targets, libraries, producer=producer, requantize="float32", single=single)


def _checked_constants(request: Request) -> Mapping[str, Any]:
    values = canonical_values(request.operator, request.constants)
    request.operator.check_values(values)
    if all(tensor.name in values for tensor in request.operator.tensors):
        raise InvalidTensorError(
            f"Kernel {request.name!r} has nothing left to compute: all its tensors are constants.",
            remedy="leave out the data (input, a) from constants=",
        )
    return values


def _linked_kernel(request: Request, hardware: Hardware, choice: records.Choice, code: _Code) -> LinkedKernel:
    form = records.load_rule(choice.rule).form(request.operator, hardware, choice.knobs)
    optional = {tensor.name for tensor in request.operator.tensors if tensor.optional}
    arguments = [
        LinkedArgument(
            name,
            dtype,
            shape,
            kind,
            optional=kind == "input" and name in optional,
            value=fold(name, request.operator, form, request.constants) if kind == "constant" else None,
        )
        for name, dtype, shape, kind in code.arguments
    ]
    return LinkedKernel(request.name, code.symbol, tuple(arguments))


def _code(operator: Operator, known: frozenset[str], hardware: Hardware, choice: records.Choice) -> _Code:
    """Machine code from the cache, or from TVM."""
    key = cache.digest(
        "kernel", operator.name, sorted(known), asdict(hardware), choice.rule, choice.version,
        sorted(choice.knobs.items()), tvm_versions.installed("apache-tvm"), cache.source_digest(),
    )  # fmt: skip
    stored = cache.cached(key, partial(_generate, operator, known, hardware, choice, f"qc_{key[:24]}"))
    text, _, object_code = stored.partition(b"\n")
    facts = json.loads(text)
    arguments = tuple((name, dtype, tuple(shape), kind) for name, dtype, shape, kind in facts["arguments"])
    return _Code(facts["symbol"], object_code, facts["workspace_bytes"], arguments)


def _generate(
    operator: Operator, known: frozenset[str], hardware: Hardware, choice: records.Choice, symbol: str
) -> bytes:
    from . import lowering

    computation, module = schedule(operator, known, hardware, choice)
    machine = lowering.lower(module, symbol, hardware)
    facts = {
        "symbol": symbol,
        "workspace_bytes": machine.workspace_bytes,
        "arguments": [list(asdict(argument).values()) for argument in computation.arguments],
    }
    return json.dumps(facts).encode() + b"\n" + machine.object_code


def schedule(
    operator: Operator, known: frozenset[str], hardware: Hardware, choice: records.Choice
) -> tuple[Computation, Any]:
    """The prepared computation of an operator and its scheduled IRModule."""
    compute = catalogue.compute_function(operator)  # says first what cannot be compiled at all
    tvm_versions.check()
    from . import lowering

    rule = records.load_rule(choice.rule)
    form = rule.form(operator, hardware, choice.knobs)
    computation = compute(operator, known, form)
    computation = replace(computation, function=lowering.prepare(computation.function, hardware))
    return computation, rule.schedule(operator, computation, form, choice.knobs)


def stages(operator: Operator, known: frozenset[str], hardware: Hardware, wanted: Sequence[str]) -> dict[str, str]:
    """The texts of lowering stages (`lowering.STAGES`) of a kernel, to look at.

    Raises:
        UnknownNameError: no such stage.
    """
    choice = records.find(operator, hardware)
    computation, module = schedule(operator, known, hardware, choice)
    from . import lowering

    for stage in wanted:
        if stage not in lowering.STAGES:
            raise UnknownNameError("Unknown stage.", given=repr(stage), accepted=", ".join(lowering.STAGES))
    machine = lowering.lower(module, "kernel", hardware, tuple(wanted))
    texts = {"computed": computation.function.script(), **machine.texts}
    return {stage: texts[stage] for stage in wanted}


__all__ = ["NotApplicable", "Request", "compile", "compile_requests", "host", "requests_of_file", "stages"]
