"""`qcompile compile` and `qcompile targets`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import qcompile as qc
from qcompile.backends import targets
from qcompile.backends.cpu import features as cpu_features
from qcompile.runtime.loader import load_bundle
from qcompile.system import toolchain, tvm_versions

from .conftest import Cli, check_failure, check_width


def test_operators_for_two_targets(cli: Cli, operators: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.qcb"
    result = cli("compile", operators, "--target", "x86_64", "--target", "x86_64-avx2", "-o", path)
    assert result.exit_code == 0, result.output
    assert load_bundle(path).names == ["conv", "[bold]sums"]
    assert load_bundle(path).targets == ["x86_64-avx2", "x86_64"]
    header, *_ = lines = result.stdout.splitlines()
    assert header.split() == ["kernel", "operator", "target", "constants", "rule"]
    assert "[bold]sums" in result.stdout
    assert "2 kernels" in lines[-1]
    assert "of the model" not in result.stdout
    check_width("\n".join(lines[:-1]))  # the last one has the path


def test_the_default_target_is_the_host(cli: Cli, model: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.qcb"
    result = cli("compile", model, "--input-shape", "x=3,4", "-o", path)
    assert result.exit_code == 0, result.output
    assert load_bundle(path).targets == [targets.host().name]
    assert "1 of 3 nodes of the model compiled into 1 kernel\n" in result.stdout
    assert f"why 2 not: qcompile explain {model} --input-shape x=3,4\n" in result.stdout


def test_json(cli: Cli, model: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.qcb"
    result = cli("compile", model, "--target", "x86_64", "--input-shape", "x=2,4", "-o", path, "--json")
    document = json.loads(result.stdout)
    assert document["bytes"] == path.stat().st_size
    assert document["targets"] == ["x86_64"]
    assert document["nodes"] == {"compiled": 1, "left_to_runtime": 2}
    (kernel,) = document["kernels"]
    assert kernel["name"] == "product"
    assert kernel["constants_bytes"] >= 20
    assert kernel["rules"] == {"x86_64": "cpu_widen16"}


def test_equal_to_the_library(bundle: Path, operators: Path) -> None:
    compiled = qc.compile(operators, target="x86_64")
    assert isinstance(compiled, qc.Bundle)
    assert compiled.to_bytes() == bundle.read_bytes()


@pytest.mark.parametrize("name", ["none.onnx", "none.toml"])
def test_missing_file(cli: Cli, tmp_path: Path, name: str) -> None:
    result = cli("compile", tmp_path / name, "-o", tmp_path / "out.qcb", "--json")
    check_failure(result, "error: ", name, "No such file")


@pytest.mark.parametrize(("name", "word"), [("foreign.onnx", "no ONNX model"), ("foreign.toml", "no TOML")])
def test_foreign_file(cli: Cli, tmp_path: Path, name: str, word: str) -> None:
    (tmp_path / name).write_bytes(b"\xffELF?")
    check_failure(cli("compile", tmp_path / name, "-o", tmp_path / "out.qcb"), "error: ", name, word)


LONG = """
[[kernel]]
name = "long"
operator = "MatrixMultiplyInteger"
a = {shape = [1, 140000], dtype = "uint8"}
b = {shape = [140000, 1], dtype = "uint8"}
"""


def test_sums_that_may_overflow(cli: Cli, tmp_path: Path) -> None:
    source, path = tmp_path / "long.toml", tmp_path / "out.qcb"
    source.write_text(LONG)
    compile_it = ["compile", source, "--target", "x86_64", "-o", path]
    check_failure(cli(*compile_it, "--overflow", "error"), "error: Kernel 'long'", "may overflow", "given", "remedy")
    check_failure(cli(*compile_it, "--overflow", "wrap"), "'--overflow'", "'warn', 'error'")
    assert not path.exists()
    for arguments in ([], ["--overflow", "warn"]):
        result = cli(*compile_it, *arguments)
        assert result.exit_code == 0, result.output
        assert "warning: Kernel 'long': the int32 accumulator may overflow: 140000 products" in result.stderr


def test_unknown_target(cli: Cli, operators: Path, tmp_path: Path) -> None:
    result = cli("compile", operators, "--target", "pdp11", "-o", tmp_path / "out.qcb")
    check_failure(result, "error: Unknown target", "'pdp11'", "x86_64-avx2")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("shape", ["x", "x=", "x=1,,2", "=1,2", "x=1,-2", "x=a", "x=1.5", "x=99999999999999999"])
def test_input_shape_that_is_none(cli: Cli, model: Path, tmp_path: Path, shape: str) -> None:
    check_failure(cli("compile", model, "--input-shape", shape, "-o", tmp_path / "o"), "'--input-shape'", "x=1,3,")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["x=1,4", "x=2,4"], "twice"),
        (["y=1,4"], "no input 'y'"),
        (["x=1,4,4"], "number of axes"),
        (["x=0,4"], "bad size"),
        (["x=2,5"], "contradicts"),
        ([], "--input-shape x=1,4"),
    ],
)
def test_input_shape_that_does_not_fit(cli: Cli, model: Path, tmp_path: Path, arguments: list[str], word: str) -> None:
    options = [part for text in arguments for part in ("--input-shape", text)]
    check_failure(cli("compile", model, *options, "-o", tmp_path / "out.qcb"), word)


def test_input_shape_of_operators(cli: Cli, operators: Path, tmp_path: Path) -> None:
    check_failure(cli("compile", operators, "--input-shape", "x=1", "-o", tmp_path / "o"), "ONNX models")


def test_unwritable_output_is_found_first(cli: Cli, operators: Path, tmp_path: Path) -> None:
    check_failure(cli("compile", operators, "-o", tmp_path / "no" / "out.qcb"), "error: ", "cannot be written")
    check_failure(cli("compile", tmp_path / "none.toml", "-o", tmp_path), "cannot be written", "folder")
    check_failure(cli("compile", operators), "--output")


def test_targets(cli: Cli) -> None:
    result = cli("targets")
    assert result.exit_code == 0
    check_width(result.stdout)
    assert all(f"{entry.name} " in result.stdout for entry in targets.load_all())
    assert "(host)" in result.stdout


def test_targets_json(cli: Cli) -> None:
    document = json.loads(cli("targets", "--json").stdout)
    assert document["host"] == targets.host().name
    assert [row["name"] for row in document["targets"]] == [entry.name for entry in targets.load_all()]
    assert [row["name"] for row in document["targets"] if row["is_host"]] == [document["host"]]
    assert all(row["runs_here"] == (not row["missing"]) for row in document["targets"])
    assert all(row["compiles_here"] for row in document["targets"])


def test_targets_on_a_lesser_machine(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_features, "architecture", lambda: "x86_64")
    monkeypatch.setattr(cpu_features, "features", lambda: frozenset({"avx", "fma"}))
    monkeypatch.setattr(tvm_versions, "installed", lambda package: None)
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(qc.ToolchainError):
        toolchain.c_compiler()
    rows = {row["name"]: row for row in json.loads(cli("targets", "--json").stdout)["targets"]}
    assert rows["x86_64"]["is_host"]
    assert rows["x86_64-avx2"]["missing"] == ["avx2", "bmi1", "bmi2", "f16c", "lzcnt", "movbe"]
    assert not rows["x86_64"]["compiles_here"]
    text = cli("targets").stdout
    assert "no, lacks" in text
    assert "apache-tvm not installed" in text
    assert "CC=no-such-compiler" in text


def test_targets_on_a_foreign_machine(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_features, "architecture", lambda: "riscv64")
    document = json.loads(cli("targets", "--json").stdout)
    assert document["host"] is None
    assert not any(row["runs_here"] or row["is_host"] for row in document["targets"])
