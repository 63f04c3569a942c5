"""Runs a whole model for checking: kernels for the quantized nodes, another engine for the rest. No fast path."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import InvalidTensorError, KernelError, ModelError
from ...runtime.kernel import Kernel
from ...runtime.loader import load_bundle
from .dependency import onnx_package
from .graph import Array, GraphIndex, Node
from .importer import import_proto
from .inference import dtype_name
from .model import ModelSource, declared_sizes, dynamic_inputs, fix_input_shapes, load_model
from .nodes import ImportedModel, QuantizedNode

ONNXRUNTIME = "onnxruntime"
REFERENCE = "onnx reference"


class RunResult(Mapping[str, Array]):
    """The outputs of a model by name.

    Args:
        outputs: graph output -> array.
        by_kernels: names of the kernels that ran, in that order.
        by_others: name of every other node that ran -> the engine that ran it.
    """

    def __init__(self, outputs: Mapping[str, Array], by_kernels: tuple[str, ...], by_others: Mapping[str, str]):
        self._outputs = dict(outputs)
        self.by_kernels = by_kernels
        self.by_others = dict(by_others)

    def __getitem__(self, name: str) -> Array:
        return self._outputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)

    def __repr__(self) -> str:
        return (
            f"RunResult({', '.join(self._outputs)}; {len(self.by_kernels)} kernels, {len(self.by_others)} other nodes)"
        )


def run_onnx(
    model: ModelSource | ImportedModel,
    bundle: Any,
    feeds: Mapping[str, Any],
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
) -> RunResult:
    """Runs a model; its quantized nodes by the kernels of `bundle` of the same name, everything else by another engine.

    Args:
        model: what `import_model` takes, or what it returned.
        bundle: a bundle, the path of one, a kernel, or any mapping from names to objects that are called like kernels
            and have their attributes `operator` and `constants`. Nodes without a kernel are run by the other engine.
        feeds: graph input -> array. Dynamic dimensions that `input_shapes` leaves open are taken from them.
        input_shapes: as for `import_model`.

    Raises:
        InvalidTensorError: a feed is missing, unknown, or has a wrong shape or dtype.
        ModelError: the errors of `import_model`; a bundle of another model; an engine that fails.
        KernelError: a kernel that returns something else than its operator describes.
    """
    proto = model.model if isinstance(model, ImportedModel) else load_model(model, input_shapes)
    arrays = _check_feeds(proto, feeds)
    open_inputs = {name: arrays[name].shape for name in dynamic_inputs(proto)}
    if open_inputs:
        fixed = onnx_package().ModelProto()
        fixed.CopyFrom(proto)
        fix_input_shapes(fixed, open_inputs)
        proto = fixed
    imported = model if isinstance(model, ImportedModel) and not open_inputs else import_proto(proto)
    return _Run(imported, bundle, arrays).execute()


def _check_feeds(model: Any, feeds: Mapping[str, Any]) -> dict[str, Array]:
    defaults = {tensor.name for tensor in model.graph.initializer}
    inputs = {value.name: value for value in model.graph.input}
    missing = [name for name in inputs if name not in feeds and name not in defaults]
    unknown = [name for name in feeds if name not in inputs]
    if missing or unknown:
        raise InvalidTensorError(
            f"The model has no input {unknown[0]!r}." if unknown else f"The input {missing[0]!r} is missing.",
            given=", ".join(map(repr, feeds)) or "nothing",
            accepted=", ".join(map(repr, inputs)),
        )
    return {name: _check_feed(inputs[name], feed) for name, feed in feeds.items()}


def _check_feed(value: Any, feed: Any) -> Array:
    array = np.asarray(feed)
    if not value.type.HasField("tensor_type"):
        raise InvalidTensorError(f"The input {value.name!r} is no tensor.", accepted="models with tensors as inputs")
    expected = dtype_name(value.type.tensor_type.elem_type)
    kinds = ("object", "str") if expected == "string" else (expected,)
    name = "str" if array.dtype.kind == "U" else str(array.dtype)
    if name not in kinds:
        raise InvalidTensorError(f"The input {value.name!r} has the wrong dtype.", given=name, accepted=expected)
    sizes = declared_sizes(value)
    if sizes is not None and (
        len(sizes) != array.ndim
        or any(isinstance(size, int) and size != given for size, given in zip(sizes, array.shape, strict=True))
    ):
        raise InvalidTensorError(
            f"The input {value.name!r} has the wrong shape.",
            given=array.shape,
            accepted="(" + ", ".join(map(str, sizes)) + ")",
        )
    return array


@dataclass(frozen=True, eq=False)
class _Unit:
    """Something to run: a kernel, or one node of the model."""

    needs: tuple[str, ...]
    gives: tuple[str, ...]
    node: Node | None = None
    kernel: Any = None
    quantized: QuantizedNode | None = None


class _Run:
    def __init__(self, imported: ImportedModel, bundle: Any, feeds: dict[str, Array]):
        self.graph = GraphIndex(imported.model)
        self.values: dict[str, Any] = dict(feeds)
        self.by_kernels: list[str] = []
        self.by_others: dict[str, str] = {}
        self.pending = _needed_units(self.graph, _kernel_units(imported, bundle))

    def execute(self) -> RunResult:
        while self.pending:
            segment = self._ready_nodes()
            if segment:
                self._run_segment(segment)
            if not self._run_kernels() and not segment:
                raise ModelError("The nodes of the model wait for each other.", given=self.pending[0].gives)
        outputs = {name: self._value(name) for name in self.graph.outputs}
        return RunResult(outputs, tuple(self.by_kernels), self.by_others)

    def _known(self, name: str) -> bool:
        return name in self.values or name in self.graph.initializers

    def _value(self, name: str) -> Any:
        return self.values[name] if name in self.values else self.graph.default(name)

    def _ready_nodes(self) -> list[Node]:
        """All nodes that need no further kernel; the graph is in topological order."""
        inside: set[str] = set()
        ready: list[Node] = []
        waiting: list[_Unit] = []
        for unit in self.pending:
            if unit.node is not None and all(name in inside or self._known(name) for name in unit.needs):
                ready.append(unit.node)
                inside.update(unit.gives)
            else:
                waiting.append(unit)
        self.pending = waiting
        return ready

    def _run_segment(self, segment: list[Node]) -> None:
        inside = {name for node in segment for name in node.outputs if name}
        used = dict.fromkeys(name for node in segment for name in node.used_values if name not in inside)
        wanted = {name for unit in self.pending for name in unit.needs} | set(self.graph.outputs)
        outputs = [name for name in inside if name in wanted]
        feeds = {name: self.values[name] for name in used if name in self.values}
        initializers = [name for name in used if name not in feeds]
        model = _submodel(self.graph, segment, feeds, initializers, sorted(outputs))
        engine, results = _run_engine(model, feeds)
        self.values.update(zip(sorted(outputs), results, strict=True))
        self.by_others.update({node.name: engine for node in segment})

    def _run_kernels(self) -> bool:
        waiting: list[_Unit] = []
        for unit in self.pending:
            if unit.quantized is not None and all(self._known(name) for name in unit.needs):
                self._run_kernel(unit.quantized, unit.kernel)
            else:
                waiting.append(unit)
        progress = len(waiting) < len(self.pending)
        self.pending = waiting
        return progress

    def _run_kernel(self, node: QuantizedNode, kernel: Any) -> None:
        tensors = {
            name: np.asarray(self._value(value)).reshape(node.operator.tensor(name).shape)
            for name, value in node.inputs.items()
        }
        result = kernel(**tensors)
        results = result if isinstance(result, tuple) else (result,)
        for role, array in zip(node.operator.outputs, results, strict=True):
            returned = np.asarray(array)
            if returned.shape != role.shape or returned.dtype != role.dtype:
                raise KernelError(
                    f"The kernel {node.name!r} returned another tensor than its operator describes.",
                    given=f"{returned.dtype}{list(returned.shape)}",
                    accepted=role,
                )
            if role.name in node.outputs:
                self.values[node.outputs[role.name]] = returned
        self.by_kernels.append(node.name)


#: stands for a tensor that is no constant; equal to no array
_NOTHING = np.empty((0,) * 9)


def _as_mapping(bundle: Any) -> Any:
    if isinstance(bundle, (str, os.PathLike)):
        return load_bundle(bundle)
    return dict.fromkeys((bundle.name, *bundle.aliases), bundle) if isinstance(bundle, Kernel) else bundle


def _kernel_units(imported: ImportedModel, bundle: Any) -> list[_Unit]:
    bundle = _as_mapping(bundle)
    units = []
    for node in imported.nodes:
        try:
            kernel = bundle[node.name]
        except KeyError:
            continue
        if kernel.operator != node.operator:
            raise ModelError(
                f"The bundle was compiled from another model, or for other shapes: kernel {node.name!r} differs.",
                given=kernel.operator.name,
                accepted=node.operator.name,
                remedy="compile this model, with the same input shapes",
            )
        different = [
            name
            for name in {*kernel.constants, *node.constants}
            if not np.array_equal(kernel.constants.get(name, _NOTHING), node.constants.get(name, _NOTHING))
        ]
        if different:
            raise ModelError(
                f"The bundle was compiled from a model with other weights: kernel {node.name!r} differs.",
                given=", ".join(sorted(different)),
                remedy="compile this model",
            )
        units.append(_Unit(tuple(node.inputs.values()), tuple(node.outputs.values()), kernel=kernel, quantized=node))
    if imported.nodes and not units and len(bundle):
        raise ModelError(
            "The bundle was compiled from another model: it has none of this model's kernels.",
            given=", ".join(sorted(map(str, getattr(bundle, "names", bundle)))[:5]),
            accepted=", ".join(node.name for node in imported.nodes[:5]),
            remedy="compile this model",
        )
    return units


def _needed_units(graph: GraphIndex, kernels: list[_Unit]) -> list[_Unit]:
    """The kernels, and of the nodes those that the outputs need beside them, in graph order."""
    producers: dict[str, _Unit] = {}
    for node in graph.nodes:
        unit = _Unit(node.used_values, tuple(name for name in node.outputs if name), node=node)
        producers.update(dict.fromkeys(unit.gives, unit))
    for unit in kernels:
        producers.update(dict.fromkeys(unit.gives, unit))
    order = list(dict.fromkeys(producers.values()))
    needed: set[int] = set()
    names = list(graph.outputs)
    while names:
        producer = producers.get(names.pop())
        if producer is not None and id(producer) not in needed:
            needed.add(id(producer))
            names += producer.needs
    return [unit for unit in order if id(unit) in needed]


def _submodel(
    graph: GraphIndex, segment: list[Node], feeds: Mapping[str, Any], initializers: list[str], outputs: list[str]
) -> Any:
    """A model of these nodes; inputs of the fed arrays' types, outputs of inferred ones."""
    onnx = onnx_package()
    model = onnx.ModelProto(ir_version=max(graph.model.ir_version, 4))
    model.opset_import.extend(graph.model.opset_import)
    model.functions.extend(graph.model.functions)
    model.graph.name = "segment"
    for node in segment:
        proto = model.graph.node.add()
        proto.CopyFrom(node.proto)
        proto.name = node.name  # onnxruntime refuses names that are not unique
    model.graph.initializer.extend(graph.initializers[name] for name in initializers)
    for name, value in feeds.items():
        if not isinstance(value, np.ndarray):
            raise ModelError(
                f"{name!r} is no tensor, and has to pass from one engine to another.", given=type(value).__name__
            )
        element_type = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
        model.graph.input.append(onnx.helper.make_tensor_value_info(name, element_type, value.shape))
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    return model


def _run_engine(model: Any, feeds: Mapping[str, Array]) -> tuple[str, Sequence[Any]]:
    """Runs a model by onnxruntime as it is written, on one thread; without onnxruntime by the ONNX reference."""
    try:
        runtime = importlib.import_module("onnxruntime")
    except ImportError:
        return REFERENCE, _run_reference(model, feeds)
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return ONNXRUNTIME, session.run(None, dict(feeds))
    except Exception as error:  # onnxruntime has an exception class for every status, with no common base
        raise _engine_failed(ONNXRUNTIME, model, error, None) from error


def _run_reference(model: Any, feeds: Mapping[str, Array]) -> Sequence[Any]:
    try:
        evaluator = importlib.import_module("onnx.reference").ReferenceEvaluator(model)
        return list(evaluator.run(None, dict(feeds)))
    except Exception as error:  # the evaluator lets through whatever its NumPy code raises
        raise _engine_failed(REFERENCE, model, error, "install onnxruntime: pip install onnxruntime") from error


def _engine_failed(engine: str, model: Any, error: Exception, remedy: str | None) -> ModelError:
    operators = ", ".join(sorted({node.op_type for node in model.graph.node}))
    return ModelError(
        f"{engine} cannot run the other nodes of the model ({operators}).", given=str(error).strip(), remedy=remedy
    )
