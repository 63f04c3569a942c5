"""A file of operators, a model and a bundle, compiled once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import helper

from qcompile.cli.application import application

from ..frontends.support import make_model
from ..support import small_constants

Cli = Callable[..., Result]

OPERATORS = """
[[kernel]]
name = "conv"
operator = "QuantizedLinearConvolution"
input = {shape = [1, 4, 6, 5], dtype = "uint8"}
filter = {shape = [8, 4, 3, 3], dtype = "int8"}
bias = true
start_padding = [1, 1]
end_padding = [1, 1]
constants = "weights.npz"
[kernel.values]
input_scale = 0.02
input_zero_point = 100
filter_scale = 0.01
filter_zero_point = 3
output_scale = 0.1
output_zero_point = 110

[[kernel]]
name = "[bold]sums"
operator = "MatrixMultiplyInteger"
a = {shape = [3, 8], dtype = "uint8"}
b = {shape = [8, 5], dtype = "int8"}
"""


@pytest.fixture(scope="session")
def cli() -> Cli:
    """Runs the program in this process, 80 columns wide."""

    def run(*arguments: object, env: dict[str, str] | None = None) -> Result:
        return CliRunner(env={"COLUMNS": "80", **(env or {})}).invoke(application, list(map(str, arguments)))

    return run


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cli")


@pytest.fixture(scope="session")
def operators(folder: Path) -> Path:
    """OPS.toml: a convolution with constants, and a matrix product without."""
    constants = small_constants()
    np.savez(folder / "weights.npz", filter=constants["filter"], bias=constants["bias"])
    path = folder / "ops.toml"
    path.write_text(OPERATORS, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def model(folder: Path) -> Path:
    """A model: a matrix product of codes between two nodes that are not compiled; the batch is dynamic."""
    nodes = [
        helper.make_node("Identity", ["x"], ["same"], name="first"),
        helper.make_node("MatMulInteger", ["same", "w"], ["sums"], name="product"),
        helper.make_node("Abs", ["sums"], ["y"], name="last"),
    ]
    weights = np.arange(20, dtype=np.int8).reshape(4, 5)
    proto: Any = make_model(nodes, {"x": ("uint8", ("batch", 4))}, {"y": ("int32", ("batch", 5))}, {"w": weights})
    path = folder / "model.onnx"
    onnx.save(proto, path)
    return path


@pytest.fixture(scope="session")
def bundle(cli: Cli, folder: Path, operators: Path) -> Path:
    """OPS.toml, compiled for every x86 processor."""
    path = folder / "ops.qcb"
    result = cli("compile", operators, "--target", "x86_64", "-o", path)
    assert result.exit_code == 0, result.output
    return path


@pytest.fixture(scope="session")
def one_kernel(cli: Cli, folder: Path, model: Path) -> Path:
    """The bundle of the model's only kernel."""
    path = folder / "model.qcb"
    result = cli("compile", model, "--target", "x86_64", "--input-shape", "x=2,4", "-o", path)
    assert result.exit_code == 0, result.output
    return path


def check_failure(result: Result, *words: str) -> None:
    """Exit status 2, all on stderr, every word there, and no traceback."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    for word in words:
        assert word in result.stderr
    assert "Traceback" not in result.stderr


def check_width(text: str) -> None:
    assert max(map(len, text.splitlines())) <= 80, text
