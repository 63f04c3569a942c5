"""Files of operators: what they say, and the messages for what they should not."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qcompile.errors import (
    InvalidOperatorError,
    InvalidQuantizationError,
    InvalidTensorError,
    ModelError,
    QCompileError,
)
from qcompile.frontends.toml import MAXIMUM_BYTES, MAXIMUM_NAME, NamedOperator, read_operators
from qcompile.spec import DequantizeLinear, MatrixMultiplyInteger, QuantizedLinearConvolution, Tensor

CONVOLUTION = """
operator = "QuantizedLinearConvolution"
input = {shape = [1, 2, 4, 4], dtype = "uint8"}
filter = {shape = [3, 2, 1, 1], dtype = "int8"}
"""
KERNEL = "[[kernel]]\n" + CONVOLUTION
SMALL = '[[kernel]]\noperator = "DequantizeLinear"\ninput = {shape = [4], dtype = "int8"}\n'


def read(folder: Path, text: str | bytes) -> list[NamedOperator]:
    path = folder / "ops.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_operators(path)


def failure(folder: Path, text: str | bytes, kind: type[QCompileError], *words: str) -> QCompileError:
    with pytest.raises(kind) as caught:
        read(folder, text)
    assert type(caught.value) is kind
    for word in ("ops.toml", *words):
        assert word in str(caught.value)
    return caught.value


def weights(folder: Path, name: str = "weights.npz", **arrays: Any) -> Path:
    path = folder / name
    np.savez(path, **(arrays or {"filter": np.arange(6, dtype=np.int8).reshape(3, 2, 1, 1)}))
    return path


def test_operators_in_order(tmp_path: Path) -> None:
    text = (
        KERNEL
        + 'name = "conv1"\nbias = true\nstrides = [2, 2]\nfilter_scale = "per_channel"\nactivation = [3, 200]\n'
        + '[[kernel]]\noperator = "MatrixMultiplyInteger"\n'
        + 'a = {shape = [2, 3], dtype = "int8"}\nb = {shape = [3, 4], dtype = "int8"}\n'
    )
    first, second = read(tmp_path, text)
    assert first.name == "conv1"
    assert first.operator == QuantizedLinearConvolution(
        Tensor((1, 2, 4, 4), "uint8"),
        Tensor((3, 2, 1, 1), "int8"),
        bias=True,
        strides=(2, 2),
        filter_scale="per_channel",
        activation=(3, 200),
    )
    assert second.operator == MatrixMultiplyInteger(Tensor((2, 3), "int8"), Tensor((3, 4), "int8"))
    assert second.name == second.operator.name
    assert first.constants == second.constants == {}


def test_none_takes_a_tensor_away(tmp_path: Path) -> None:
    (entry,) = read(tmp_path, SMALL + 'zero_point = "none"\n')
    assert entry.operator == DequantizeLinear(Tensor((4,), "int8"), zero_point=None)


def test_constants_of_both_places(tmp_path: Path) -> None:
    weights(tmp_path)
    text = KERNEL + 'filter_scale = "per_channel"\nconstants = "weights.npz"\n[kernel.values]\n'
    (entry,) = read(tmp_path, text + "input_scale = 1\ninput_zero_point = 7\nfilter_scale = [0.5, 0.25, 1]\n")
    assert list(entry.constants) == ["input_scale", "input_zero_point", "filter", "filter_scale"]
    assert entry.constants["input_scale"] == np.float32(1)
    assert entry.constants["input_zero_point"].dtype == np.uint8
    assert entry.constants["filter_scale"].tolist() == [0.5, 0.25, 1]
    assert entry.constants["filter"].ravel().tolist() == [0, 1, 2, 3, 4, 5]


def test_constants_in_a_folder_below(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    weights(tmp_path / "data")
    (tmp_path / "link.npz").symlink_to(tmp_path / "data" / "weights.npz")
    for location in ("data/weights.npz", "./data/weights.npz", "link.npz"):
        (entry,) = read(tmp_path, KERNEL + f'constants = "{location}"\n')
        assert list(entry.constants) == ["filter"]


def test_a_relative_path_and_a_linked_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    weights(tmp_path / "real")
    read(tmp_path / "real", KERNEL + 'constants = "weights.npz"\n')
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    assert read_operators(tmp_path / "linked" / "ops.toml")[0].constants
    monkeypatch.chdir(tmp_path / "real")
    assert read_operators("ops.toml")[0].constants


@pytest.mark.parametrize(
    "location", ["../weights.npz", "data/../../weights.npz", "out/weights.npz", "out.npz", "loop/x"]
)
def test_constants_outside_of_the_folder(tmp_path: Path, location: str) -> None:
    inside = tmp_path / "inside"
    (inside / "data").mkdir(parents=True)
    weights(tmp_path)
    (inside / "out").symlink_to(tmp_path)
    (inside / "out.npz").symlink_to(tmp_path / "weights.npz")
    (inside / "loop").symlink_to(inside / "loop")
    failure(inside, KERNEL + f'constants = "{location}"\n', ModelError, "kernel 1", repr(location))


def test_absolute_path_of_constants(tmp_path: Path) -> None:
    text = KERNEL + f'name = "c"\nconstants = "{weights(tmp_path)}"\n'
    failure(tmp_path, text, ModelError, "kernel 'c': constants leads out of the folder")


@pytest.mark.parametrize("location", ["''", "3", "true", "['w.npz']", '"a\\u0000b"'])
def test_constants_that_are_no_path(tmp_path: Path, location: str) -> None:
    failure(tmp_path, KERNEL + f"constants = {location}\n", ModelError, "kernel 1: constants is no path")


def test_constants_that_cannot_be_read(tmp_path: Path) -> None:
    whole = weights(tmp_path).read_bytes()
    contents = {"empty": b"", "text": b"filter", "cut": whole[:-30], "pickle": b"\x80\x04K\x01.", "zip": b"PK\x03\x04"}
    for name, content in contents.items():
        (tmp_path / f"{name}.npz").write_bytes(content)
    weights(tmp_path, "objects.npz", filter=np.array([{}]))
    (tmp_path / "folder.npz").mkdir()
    for name in (*contents, "objects", "folder", "missing"):
        text = KERNEL + f'constants = "{name}.npz"\n'
        failure(tmp_path, text, InvalidTensorError, "kernel 1", f"'{name}.npz' cannot be read", "numpy.savez")
    np.save(tmp_path / "array.npy", np.zeros(3))
    failure(tmp_path, KERNEL + 'constants = "array.npy"\n', InvalidTensorError, "no .npz file")


def test_damaged_constants_are_never_another_error(tmp_path: Path) -> None:
    whole = weights(tmp_path).read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] ^= int(rng.integers(1, 256))
        (tmp_path / "weights.npz").write_bytes(damaged)
        with contextlib.suppress(InvalidTensorError):
            read(tmp_path, KERNEL + 'constants = "weights.npz"\n')


@pytest.mark.parametrize(
    ("lines", "kind", "words"),
    [
        ("input_scale = 0.0", InvalidQuantizationError, ["input_scale"]),
        ("input_scale = inf", InvalidQuantizationError, ["input_scale"]),
        ("input_scale = '0.1'", InvalidTensorError, ["input_scale", "str"]),
        ("input_scale = 2020-01-01", InvalidTensorError, ["input_scale", "date"]),
        ("input_scale = {a = 1}", InvalidTensorError, ["input_scale", "dict"]),
        ("input_zero_point = 256", InvalidTensorError, ["input_zero_point", "0 to 255"]),
        ("input_zero_point = 1000000000000000000000000", InvalidTensorError, ["input_zero_point"]),
        ("filter = [1, [2]]", InvalidTensorError, ["filter", "ragged"]),
        ("filter_scale = [1.0, 2.0]", InvalidTensorError, ["filter_scale", "shape"]),
        ("weight = 3", InvalidTensorError, ["'weight'", "filter_scale"]),
        ("input_scale = 1e30\nfilter_scale = 1e30\noutput_scale = 1e-20", InvalidQuantizationError, ["multiplier"]),
    ],
)
def test_wrong_values(tmp_path: Path, lines: str, kind: type[QCompileError], words: list[str]) -> None:
    failure(tmp_path, f'{KERNEL}name = "c"\n[kernel.values]\n{lines}\n', kind, "kernel 'c': ", *words)


def test_values_given_twice_or_of_the_wrong_kind(tmp_path: Path) -> None:
    weights(tmp_path)
    text = KERNEL + 'constants = "weights.npz"\n[kernel.values]\nfilter = [1]\n'
    failure(tmp_path, text, InvalidTensorError, "given twice", "filter")
    failure(tmp_path, KERNEL + "values = 3\n", ModelError, "values must be a table")
    weights(tmp_path, weight=np.zeros(3))
    failure(tmp_path, KERNEL + 'constants = "weights.npz"\n', InvalidTensorError, "'weight'", "filter_scale")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["has no kernels", "[[kernel]]"]),
        ("kernel = []", ["has no kernels"]),
        ("kernel = 3", ["has no kernels", "int"]),
        ("kernel = [1]", ["has no kernels"]),
        (f"[kernel]\n{CONVOLUTION}", ["has no kernels", "dict"]),
        (f"title = 1\n{KERNEL}", ["unknown key", "'title'"]),
        ("[[kernel]", ["no TOML", "line 1"]),
        (b"\xff\xfe", ["no TOML", "UTF-8"]),
        (b"ab\x00", ["no TOML"]),
        ("kernel = " + "[" * 100_000, ["nested too deeply"]),
        ("#" * (MAXIMUM_BYTES + 1), ["too large", str(MAXIMUM_BYTES)]),
    ],
)
def test_files_without_operators(tmp_path: Path, text: str | bytes, words: list[str]) -> None:
    failure(tmp_path, text, ModelError, *words)


def test_largest_file(tmp_path: Path) -> None:
    assert len(read(tmp_path, SMALL + "#" * (MAXIMUM_BYTES - len(SMALL)))) == 1


@pytest.mark.parametrize("name", ["missing.toml", ".", "link.toml"])
def test_files_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "link.toml").symlink_to("/dev/zero")
    with pytest.raises(ModelError, match="cannot be read"):
        read_operators(tmp_path / name)
    with pytest.raises(ModelError, match="cannot be read"):
        read_operators("a\x00b.toml")


@pytest.mark.parametrize("name", ["''", "'  '", "3", "['a']", f"'{'x' * (MAXIMUM_NAME + 1)}'"])
def test_unusable_names(tmp_path: Path, name: str) -> None:
    failure(tmp_path, SMALL + f"name = {name}\n", ModelError, "kernel 1: the name", f"1 to {MAXIMUM_NAME}")


def test_longest_name(tmp_path: Path) -> None:
    name = "x" * MAXIMUM_NAME
    assert read(tmp_path, SMALL + f"name = '{name}'\n")[0].name == name


def test_duplicate_names(tmp_path: Path) -> None:
    failure(tmp_path, SMALL + "name = 'a'\n" + KERNEL + "name = 'a'\n", ModelError, "same name", "'a'", "`name`")
    failure(tmp_path, SMALL + SMALL, ModelError, "same name", "`name`")


@pytest.mark.parametrize(
    ("lines", "kind", "words"),
    [
        ('operator = "Pool"', InvalidOperatorError, ["Unknown operator", "'Pool'", "QuantizeV2"]),
        ("operator = 3", InvalidOperatorError, ["Unknown operator"]),
        ("bias = true", InvalidOperatorError, ["'operator' is missing"]),
        ('operator = "Requantize"', InvalidOperatorError, ["Requantize", "input"]),
        (CONVOLUTION + "stride = 2", InvalidOperatorError, ["no such field", "'stride'", "strides"]),
        (CONVOLUTION + "strides = 2", InvalidOperatorError, ["strides"]),
        (CONVOLUTION + "group_count = 5", InvalidOperatorError, ["group_count"]),
        (CONVOLUTION + "bias = 'none'", InvalidOperatorError, ["bias"]),
        (CONVOLUTION.replace("4, 4", "4, 0"), InvalidOperatorError, ["axis without elements"]),
        (CONVOLUTION.replace("uint8", "uint4"), InvalidTensorError, ["dtype"]),
        (CONVOLUTION.replace("[1, 2, 4, 4]", "3"), InvalidOperatorError, ["input", "shape"]),
        (CONVOLUTION.replace('dtype = "int8"', "size = 1"), InvalidOperatorError, ["filter", "dtype"]),
        (CONVOLUTION.replace('{shape = [3, 2, 1, 1], dtype = "int8"}', "7"), InvalidOperatorError, ["filter"]),
    ],
)
def test_wrong_operators(tmp_path: Path, lines: str, kind: type[QCompileError], words: list[str]) -> None:
    failure(tmp_path, f"{SMALL}[[kernel]]\n{lines}\n", kind, "kernel 2: ", *words)
