"""What is to be compiled: from operators, a TOML file or an ONNX model to a list of kernels."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InvalidOperatorError, InvalidTensorError
from ..spec import Operator
from ..spec.serialization import OPERATORS
from ..system.hashing import digest

MAXIMUM_NAME = 1024

if TYPE_CHECKING:
    from .onnx import QuantizedNode, SkippedNode


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

    def __post_init__(self) -> None:
        for name in (self.name, *self.aliases):
            usable = isinstance(name, str) and 0 < len(name) <= MAXIMUM_NAME and name.isprintable()
            if not usable:
                raise InvalidOperatorError(
                    "A kernel's name is unusable.",
                    given=repr(name)[:80],
                    accepted=f"1 to {MAXIMUM_NAME} printable characters",
                )


@dataclass(frozen=True)
class Source:
    """The content of a model or of a file of operators.

    Args:
        requests: the kernels to compile.
        compiled: number of nodes of the model that the kernels replace; None for a file of operators.
        skipped: the other nodes, with their reasons.
    """

    requests: list[Request]
    compiled: int | None
    skipped: tuple[SkippedNode, ...]


def is_operator_file(source: Any) -> bool:
    """Whether something is the path of a TOML file of operators, by its name."""
    return isinstance(source, (str, os.PathLike)) and Path(source).suffix.lower() == ".toml"


def read_file(path: Any, input_shapes: Mapping[str, Sequence[int]] | None = None) -> Source:
    """The kernels that a TOML file of operators or an ONNX model asks for; a model may ask for none.

    Args:
        path: of either; or a model as bytes or ModelProto.
        input_shapes: for a model.

    Raises:
        ModelError: the file cannot be read, or is neither.
    """
    if is_operator_file(path):
        from .toml import read_operators

        if input_shapes:
            raise InvalidTensorError("input shapes are for ONNX models; operators already have fixed shapes.")
        return Source(
            [Request(entry.name, entry.operator, entry.constants) for entry in read_operators(path)], None, ()
        )
    from .onnx import import_model

    model = import_model(path, input_shapes)
    compiled = len({name for node in model.nodes for name in node.nodes})
    return Source(requests_of_nodes(model.nodes), compiled, model.skipped)


def requests_of(
    operators: Any, constants: Any = None, input_shapes: Mapping[str, Sequence[int]] | None = None
) -> list[Request]:
    """The requests of what `compile` and `tune` are given: operators, or a model or file of operators.

    Args:
        operators: one operator, a sequence or mapping of them, the path of a file, or a model.
        constants: of operators.
        input_shapes: of a model.

    Raises:
        InvalidTensorError: constants for a file, or input shapes for operators.
        ModelError, InvalidOperatorError: the file or the operators cannot be used.
    """
    if isinstance(operators, (str, os.PathLike, bytes)) or hasattr(operators, "SerializeToString"):
        if constants is not None:
            raise InvalidTensorError("constants= is for operators; a model brings its own.")
        return read_file(operators, input_shapes).requests
    if input_shapes is not None:
        raise InvalidTensorError("input_shapes= is for ONNX models; operators already have fixed shapes.")
    return requests_of_operators(operators, constants)


def requests_of_nodes(nodes: Sequence[QuantizedNode]) -> list[Request]:
    """One request for each distinct node of a model: equal operators with equal constants share a kernel."""
    distinct: dict[str, Request] = {}
    for node in nodes:
        contents = [(name, value.tobytes()) for name, value in sorted(node.constants.items())]
        key = digest(node.operator.name, *(part for pair in contents for part in pair))
        known = distinct.get(key)
        if known is None:
            distinct[key] = Request(node.name, node.operator, node.constants)
        else:
            distinct[key] = replace(known, aliases=(*known.aliases, node.name))
    return list(distinct.values())


def requests_of_operators(operators: Any, constants: Any) -> list[Request]:
    """The requests of one operator, a sequence or a mapping of them, with the constants of each.

    Raises:
        InvalidOperatorError: something is not an operator, or there is none.
        InvalidTensorError: constants that fit no operator.
    """
    if isinstance(operators, Operator):
        return [Request(operators.name, operators, _constants_mapping(constants))]
    if isinstance(operators, Mapping):
        unknown = set(_constants_mapping(constants)) - set(operators)
        if unknown:
            given, accepted = (", ".join(sorted(map(str, names))) for names in (unknown, operators))
            raise InvalidTensorError(
                "constants= names kernels that are not compiled.",
                given=given,
                accepted=f"{accepted}, each with a mapping of its own",
            )
        return [
            Request(name, _operator(operator), _constants_mapping((constants or {}).get(name)))
            for name, operator in operators.items()
        ]
    if not isinstance(operators, Sequence) or not operators:
        raise InvalidOperatorError(
            "There is nothing to compile.",
            given=type(operators).__name__,
            accepted="an operator, a sequence or mapping of operators, or the path of a model",
        )
    is_sequence = isinstance(constants, Sequence) and not isinstance(constants, (str, bytes))
    per_operator = list(constants) if is_sequence else [None] * len(operators)
    if (constants is not None and not is_sequence) or len(per_operator) != len(operators):
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
    if not isinstance(value, Operator) or type(value) not in OPERATORS:
        raise InvalidOperatorError("Not an operator.", given=repr(value), accepted="one of qcompile's operators")
    return value


def _constants_mapping(value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidTensorError("constants= must be a mapping of names to values.", given=type(value).__name__)
    return value
