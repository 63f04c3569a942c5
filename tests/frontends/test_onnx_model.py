"""Loading: what is no model, what is unsafe, and dynamic dimensions."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from qcompile.errors import MissingDependencyError, ModelError, QCompileError
from qcompile.frontends.onnx import import_model

from .support import codes, make_model, number, scales, value_info
from .test_onnx_qdq import Group
from .test_onnx_qoperator import convolution_model, product_model


def dynamic_model() -> Any:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s"], ["q"], name="quantize"),
        helper.make_node("QuantizeLinear", ["other", "s"], ["p"], name="second"),
    ]
    inputs = {"x": ("float32", ("batch", 3, None)), "other": ("float32", ("batch", 2))}
    outputs = {"q": ("uint8", ("batch", 3, None)), "p": ("uint8", ("batch", 2))}
    return make_model(nodes, inputs, outputs, {"s": scales()})


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(product_model((5, 7), (7, 4)), path)
    return path


def test_a_model_is_a_path_bytes_or_a_proto(path: Path) -> None:
    sources = (path, str(path), path.read_bytes(), onnx.load(path))
    first, *others = (import_model(source) for source in sources)
    for other in others:
        assert other.nodes == first.nodes


def test_the_callers_proto_is_not_changed() -> None:
    model = dynamic_model()
    before = model.SerializeToString()
    import_model(model, {"x": (1, 3, 4)})
    assert model.SerializeToString() == before


def error_of(model: Any, *args: Any) -> str:
    with pytest.raises(ModelError) as caught:
        import_model(model, *args)
    assert isinstance(caught.value, QCompileError)
    return str(caught.value)


def test_no_file(tmp_path: Path) -> None:
    assert "cannot be read" in error_of(tmp_path / "missing.onnx")
    assert "cannot be read" in error_of("a\0b")
    assert "is a directory" in error_of(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "is not a regular file" in error_of(tmp_path / "pipe")


def test_an_unreadable_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert "Permission denied" in error_of(path)


def test_something_else_than_a_model() -> None:
    assert "This is no model" in error_of(3)
    assert "is empty" in error_of(b"")
    assert "no ONNX model, or a truncated one" in error_of(b"hello world")
    assert "no graph, IR version or operator set" in error_of(b"\x08\x07")


def test_a_truncated_file(path: Path) -> None:
    data = path.read_bytes()
    for length in range(0, len(data), 7):
        path.write_bytes(data[:length])
        error_of(path)


def test_a_file_above_2_gib(path: Path) -> None:
    os.truncate(path, 2**31)
    assert "is too large" in error_of(path)


def test_damaged_files_give_errors_of_ours() -> None:
    random = np.random.default_rng(3)
    data = Group().model().SerializeToString()
    for _ in range(400):
        damaged = bytearray(data)
        for place in random.integers(0, len(data), random.integers(1, 4)):
            damaged[place] = random.integers(0, 256)
        with contextlib.suppress(ModelError):
            import_model(bytes(damaged))


def test_what_the_checker_refuses() -> None:
    model = product_model((5, 7), (7, 4))
    del model.graph.node[0].input[2:]
    assert "refused by onnx.checker" in error_of(model)
    model = product_model((5, 7), (7, 4))
    model.graph.initializer[0].ClearField("raw_data")
    assert "refused by onnx.checker" in error_of(model)


@pytest.mark.parametrize(("opset", "remedy"), [(9, "onnx.version_converter"), (9999, "install a newer onnx")])
def test_opsets_out_of_range(opset: int, remedy: str) -> None:
    model = product_model((5, 7), (7, 4))
    model.opset_import[0].version = opset
    message = error_of(model)
    assert f"opset {opset}" in message
    assert remedy in message


@pytest.mark.parametrize(
    "model",
    [
        convolution_model(pads=[-1, 0, 0, 0]),
        product_model((5, 7), (7, 4), a_zp=number(0, "int8")),
        product_model((5, 7), (8, 4)),
    ],
)
def test_nodes_whose_inputs_contradict_each_other(model: Any) -> None:
    assert "The shapes or types of the model do not fit together" in error_of(model)


def external_model(location: str, **entries: Any) -> Any:
    model = product_model((5, 7), (7, 4))
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == "b")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        entry = tensor.external_data.add()
        entry.key, entry.value = key, str(value)
    return model


def saved(folder: Path, model: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder / "model.onnx"


def test_external_data_are_read(tmp_path: Path) -> None:
    weights = codes((7, 4))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "weights").write_bytes(b"12345" + weights.tobytes() + b"678")
    path = saved(tmp_path, external_model("data/weights", offset=5, length=28))
    imported = import_model(path)
    np.testing.assert_array_equal(imported.nodes[0].constants["b"], weights)


def test_external_data_inside_a_subgraph_are_checked(tmp_path: Path) -> None:
    group = Group()
    tensor = TensorProto(name="inner", data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "/etc/passwd"
    nodes = [helper.make_node("Neg", ["inner"], ["outer"])]
    branch = helper.make_graph(nodes, "branch", [], [value_info("outer", "float32", (1,))], [tensor])
    group.inputs["flag"] = ("bool", ())
    model = group.model()
    model.graph.node.append(helper.make_node("If", ["flag"], ["o"], then_branch=branch, else_branch=branch))
    assert "is at an absolute path" in error_of(saved(tmp_path, model))


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("{folder}/secret", "is at an absolute path"),
        ("C:\\secret", "is at an absolute path"),
        ("\\secret", "is at an absolute path"),
        ("../secret", "is outside the model's folder"),
        ("inside/../../secret", "is outside the model's folder"),
        ("..\\secret", "is outside the model's folder"),
        ("link", "is outside the model's folder"),
        ("linked/secret", "is outside the model's folder"),
        ("missing", "is missing"),
        ("inside", "is not a regular file"),
        ("", "names no file"),
    ],
)
def test_external_data_outside_are_refused_before_anything_is_read(
    tmp_path: Path, location: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_bytes(b"0" * 100)
    model = external_model("fine")
    model.graph.initializer.extend(external_model(location.format(folder=tmp_path)).graph.initializer)
    path = saved(tmp_path / "model", model)
    (path.parent / "fine").write_bytes(b"0" * 28)
    (path.parent / "inside").mkdir()
    (path.parent / "link").symlink_to(tmp_path / "secret")
    (path.parent / "linked").symlink_to(tmp_path)

    def only_the_model(self: Path, *arguments: Any, **options: Any) -> Any:
        assert self.name == "model.onnx", "an external file was opened"
        return original(self, *arguments, **options)

    original = Path.open
    monkeypatch.setattr(Path, "open", only_the_model)
    assert problem in error_of(path)


def test_external_data_that_are_too_short(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"0" * 20)
    assert "is too short" in error_of(saved(tmp_path, external_model("weights", length=28)))
    assert "is too short" in error_of(saved(tmp_path, external_model("weights", offset=21)))
    assert re.search("refused by onnx.checker|cannot be read", error_of(saved(tmp_path, external_model("weights"))))
    assert "has a bad offset" in error_of(saved(tmp_path, external_model("weights", offset=-1)))
    os.truncate(tmp_path / "weights", 2**31)
    assert "too large" in error_of(saved(tmp_path, external_model("weights")))


def test_external_data_need_a_file() -> None:
    model = external_model("weights")
    assert "was not given as a file" in error_of(model)
    assert "was not given as a file" in error_of(model.SerializeToString())


def test_unknown_sizes_name_the_inputs_and_the_remedy() -> None:
    message = error_of(dynamic_model())
    assert "The shape of 'x' is not known" in message
    assert "x (batch, 3, ?); other (batch, 2)" in message
    assert "input_shapes={'x': (1, 3, 1), 'other': (1, 2)}" in message
    assert "--input-shape x=1,3,1 --input-shape other=1,2" in message


def test_input_shapes_fix_sizes_and_equal_symbols() -> None:
    imported = import_model(dynamic_model(), {"x": [np.int64(2), 3, 5]})
    assert [node.operator.tensors[0].shape for node in imported.nodes] == [(2, 3, 5), (2, 2)]
    assert [size.dim_value for size in imported.model.graph.output[1].type.tensor_type.shape.dim] == [2, 2]


@pytest.mark.parametrize(
    ("shapes", "problem"),
    [
        ({"y": (1, 3, 4)}, "The model has no input 'y'"),
        ({"x": (1, 3)}, "has the wrong number of axes"),
        ({"x": (1, 4, 4)}, "contradicts the model"),
        ({"x": (1, 3, 0)}, "has a bad size"),
        ({"x": (1, 3, -1)}, "has a bad size"),
        ({"x": (1, 3, 1.5)}, "is no sequence of integers"),
        ({"x": 3}, "is no sequence of integers"),
        ({"x": (1, 3, 4), "other": (2, 2)}, "give two sizes to the dimension 'batch'"),
    ],
)
def test_input_shapes_that_do_not_fit(shapes: dict[str, Any], problem: str) -> None:
    assert problem in error_of(dynamic_model(), shapes)


def test_an_input_without_rank() -> None:
    model = dynamic_model()
    model.graph.input[0].type.tensor_type.ClearField("shape")
    assert "x (unknown rank)" in error_of(model)
    imported = import_model(model, {"x": (4, 3), "other": (4, 2)})
    assert imported.nodes[0].operator.tensors[0].shape == (4, 3)


def test_unknown_sizes_of_float_nodes_do_not_matter() -> None:
    node = helper.make_node("Relu", ["x"], ["y"], name="relu")
    model = make_model([node], {"x": ("float32", ("n",))}, {"y": ("float32", ("n",))})
    assert [node.name for node in import_model(model).skipped] == ["relu"]


def test_stale_inner_shapes_do_not_matter() -> None:
    group = Group()
    model = group.model()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    model.graph.value_info.append(value_info("xf", "float32", (7, 4, 6, 6)))
    (node,) = import_model(model, {"x": (3, 4, 6, 6)}).nodes
    assert node.operator.outputs[0].shape == (3, 5, 4, 4)


def _stand_ins() -> dict[str, tuple[list[Any], tuple[int, ...]]]:
    s, z = "s", "z"
    microsoft = {"domain": "com.microsoft"}

    def node(op_type: str, inputs: list[str], **attributes: Any) -> list[Any]:
        return [helper.make_node(op_type, inputs, ["m"], **microsoft, **attributes)]

    shape = (1, 4, 6, 6)
    return {
        "QLinearAdd": (node("QLinearAdd", ["x", s, z, "c", s, z, s, z]), shape),
        "QLinearMul": (node("QLinearMul", ["x", s, z, "c", s, z, s, z]), shape),
        "QLinearLeakyRelu": (node("QLinearLeakyRelu", ["x", s, z, s, z], alpha=0.1), shape),
        "QLinearSigmoid": (node("QLinearSigmoid", ["x", s, z, s, z]), shape),
        "QLinearSoftmax": (node("QLinearSoftmax", ["x", s, z, s, z], opset=13, axis=-1), shape),
        "QLinearConcat": (node("QLinearConcat", [s, z, "x", s, z, "x", s, z], axis=1), (1, 8, 6, 6)),
        "QLinearGlobalAveragePool": (node("QLinearGlobalAveragePool", ["x", s, z, s, z]), (1, 4, 1, 1)),
        "QLinearAveragePool": (
            node("QLinearAveragePool", ["x", s, z, s, z], kernel_shape=[2, 2], strides=[2, 2]),
            (1, 4, 3, 3),
        ),
        "QLinearReduceMean": (node("QLinearReduceMean", ["x", s, z, s, z], axes=[2, 3], keepdims=0), (1, 4)),
        "QLinearWhere": (node("QLinearWhere", ["mask", "x", s, z, "x", s, z, s, z]), shape),
    }


@pytest.mark.parametrize("opset", [13, 19])
@pytest.mark.parametrize("case", list(_stand_ins()))
def test_shapes_behind_operators_of_com_microsoft(case: str, opset: int) -> None:
    nodes, shape = _stand_ins()[case]
    nodes.append(helper.make_node("DequantizeLinear", ["m", "s", "z"], ["y"], name="dequantize"))
    constants = {"s": scales(), "z": number(3, "uint8"), "c": codes((4, 1, 1)), "mask": np.ones((1, 1, 1, 6), bool)}
    inputs, outputs = {"x": ("uint8", (1, 4, 6, 6))}, {"y": ("float32", (None,) * len(shape))}
    imported = import_model(make_model(nodes, inputs, outputs, constants, opset=opset))
    (node,) = imported.nodes
    assert node.operator.tensors[0].shape == shape
    assert node.operator.tensors[0].dtype == "uint8"


@pytest.mark.parametrize(
    ("op_type", "inputs"),
    [
        ("QGemm", ["a", "s", "z", "b", "s", "z"]),
        ("MatMulIntegerToFloat", ["a", "b", "s", "s"]),
        ("DynamicQuantizeMatMul", ["f", "b", "s"]),
        ("FusedGemm", ["f", "g"]),
    ],
)
def test_shapes_behind_float_results_of_com_microsoft(op_type: str, inputs: list[str]) -> None:
    nodes = [
        helper.make_node(op_type, inputs, ["m"], domain="com.microsoft"),
        helper.make_node("QuantizeLinear", ["m", "s", "z"], ["y"], name="quantize"),
    ]
    constants = {"s": scales(), "z": number(3, "uint8"), "b": codes((5, 7)), "g": np.zeros((5, 7), np.float32)}
    model_inputs = {"a": ("uint8", (3, 5)), "f": ("float32", (3, 5))}
    (node,) = import_model(make_model(nodes, model_inputs, {"y": ("uint8", (3, 7))}, constants)).nodes
    assert node.operator.tensors[0].shape == (3, 7)


def test_without_onnx(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingDependencyError, match="pip install onnx onnxruntime"):
        import_model(path)


def test_importing_the_front_end_imports_neither_onnx_nor_tvm() -> None:
    code = "import sys, qcompile.frontends.onnx; print({'onnx', 'onnxruntime', 'tvm'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
