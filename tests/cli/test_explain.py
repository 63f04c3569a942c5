"""`qcompile explain`."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import qcompile as qc
from qcompile import planning
from qcompile.backends import all_stages
from qcompile.backends.cpu import features as cpu_features
from qcompile.errors import NotApplicable
from qcompile.schedules import cpu_widen16

from ..records.support import make, write_file
from .conftest import Cli, check_failure, check_width


def test_operators(cli: Cli, operators: Path) -> None:
    result = cli("explain", operators, "--target", "x86_64", "--target", "x86_64-avx2")
    assert result.exit_code == 0
    check_width(result.stdout)
    lines = result.stdout.splitlines()
    assert lines[0] == "conv"
    assert "[bold]sums" in lines
    assert [line.strip() for line in lines if line.startswith("  x86")] == ["x86_64-avx2", "x86_64"] * 2
    assert f"cpu_widen16, version {cpu_widen16.version}" in result.stdout
    assert "reviewed defaults of the target" in result.stdout or "the rule's own numbers" in result.stdout
    assert "of the model" not in result.stdout


def test_model(cli: Cli, model: Path) -> None:
    result = cli("explain", model, "--input-shape", "x=2,4")
    assert result.exit_code == 0
    check_width(result.stdout)
    assert "1 of 3 nodes of the model compiled\n" in result.stdout
    rows = [line.split(maxsplit=2) for line in result.stdout.splitlines()[-2:]]
    assert rows == [
        ["first", "Identity", "not one of qcompile's operators"],
        ["last", "Abs", "not one of qcompile's operators"],
    ]
    check_failure(cli("explain", model), "--input-shape x=1,4")


def test_model_without_a_kernel(cli: Cli, tmp_path: Path) -> None:
    import onnx
    from onnx import helper

    from ..frontends.support import make_model

    node = helper.make_node("Abs", ["x"], ["y"], name="\x1b[2J")
    onnx.save(make_model([node], {"x": ("float32", (2,))}, {"y": ("float32", (2,))}), tmp_path / "abs.onnx")
    result = cli("explain", tmp_path / "abs.onnx")
    assert result.exit_code == 0
    assert result.stdout.startswith("0 of 1 node of the model compiled\n")
    assert "\x1b" not in result.stdout
    check_failure(cli("compile", tmp_path / "abs.onnx", "-o", tmp_path / "o.qcb"), "no quantized operator", "explain")


def test_bundle(cli: Cli, bundle: Path, tmp_path: Path) -> None:
    result = cli("explain", bundle)
    assert result.exit_code == 0
    assert result.stdout.count("runs here  yes") == 2
    renamed = tmp_path / "renamed.bin"
    renamed.write_bytes(bundle.read_bytes())
    assert cli("explain", renamed).stdout == result.stdout
    assert cli("explain", bundle, "--target", "x86_64").stdout == result.stdout


def test_bundle_on_a_foreign_machine(cli: Cli, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_features, "architecture", lambda: "riscv64")
    result = cli("explain", bundle)
    assert result.exit_code == 0
    assert "no, lacks architecture x86_64 (this machine is riscv64)" in result.stdout


@pytest.mark.parametrize("kind", ["operators", "model", "bundle"])
def test_json(cli: Cli, kind: str, request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue(kind)
    shapes = ["--input-shape", "x=2,4"] if kind == "model" else []
    document = json.loads(cli("explain", path, "--target", "x86_64", "--json", *shapes).stdout)
    kernel = document["kernels"][0]
    (choice,) = kernel["choices"]
    assert choice["target"] == "x86_64"
    assert choice["rule"] == "cpu_widen16"
    assert set(choice["knobs"]) == set(cpu_widen16.knobs)
    assert choice["source"] in ("defaults", "rule")
    assert choice["obstacle"] is None
    assert all(set(entry) == {"rule", "reason"} for entry in choice["refused"])
    assert choice["missing"] == ([] if kind == "bundle" else None)
    if kind == "model":
        assert document["nodes"]["compiled"] == 1
        assert [node["name"] for node in document["nodes"]["left_to_runtime"]] == ["first", "last"]
    else:
        assert document["nodes"] is None
        assert {"filter", "input_scale"} < set(kernel["constants"])


def test_refused_rules(cli: Cli, operators: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = planning.find
    refused = (("cpu_fast", "it needs [more] channels"),)
    monkeypatch.setattr(
        planning,
        "find",
        lambda *given: replace(find(*given), rule="cpu_plain", version=3, knobs={}, source="rule", refused=refused),
    )
    text = cli("explain", operators, "--kernel", "conv").stdout
    assert "cpu_plain, version 3" in text
    assert "cpu_fast: it needs [more] channels" in text
    assert "the rule's own numbers" in text
    assert "none" in text


def test_no_rule_applies(cli: Cli, operators: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise NotApplicable("no rule likes it")

    monkeypatch.setattr(planning, "find", refuse)
    result = cli("explain", operators)
    assert result.exit_code == 0
    assert result.stdout.count("no rule likes it") == 2
    check_failure(cli("explain", operators, "--kernel", "conv", "--stage", "llvm"), "no rule likes it")


STAGES = all_stages()
WORDS = ("sblock", "sblock", "def ", "define", ".text")


@pytest.mark.parametrize(("stage", "word"), list(zip(STAGES, WORDS, strict=True)))
def test_stage(cli: Cli, operators: Path, stage: str, word: str) -> None:
    arguments = ["explain", operators, "--target", "x86_64", "--kernel", "conv", "--stage", stage]
    result = cli(*arguments)
    assert result.exit_code == 0, result.output
    assert word in result.stdout
    document = json.loads(cli(*arguments, "--json").stdout)
    assert {name: document[name] for name in ("kernel", "target", "stage")} == {
        "kernel": "conv",
        "target": "x86_64",
        "stage": stage,
    }
    # TVM names alias sets in LLVM IR by addresses in its memory
    first, second = (re.sub("0x[0-9a-f]+", "", text).strip() for text in (document["text"], result.stdout))
    assert first == second


def test_stage_of_a_bundle(cli: Cli, one_kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = cli("explain", one_kernel, "--stage", "llvm")
    assert result.exit_code == 0, result.output
    assert "define" in result.stdout
    assert result.stderr == ""
    find = planning.find

    def other(*arguments: Any) -> Any:
        found = find(*arguments)
        return replace(found, knobs={**found.knobs, "tile": 1})

    monkeypatch.setattr(planning, "find", other)
    result = cli("explain", one_kernel, "--stage", "computed")
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: the bundle's product was scheduled in another way")


def test_stage_of_a_target_file(cli: Cli, operators: Path, tmp_path: Path) -> None:
    import qcompile.targets

    text = (Path(qcompile.targets.__file__).parent / "x86_64.toml").read_text()
    file = tmp_path / "mine.toml"
    file.write_text(text.replace('name = "x86_64"', 'name = "mine"'))
    arguments = ["explain", operators, "--target", file, "--kernel", "conv"]
    assert "  mine\n" in cli(*arguments).stdout
    assert cli(*arguments, "--stage", "computed").exit_code == 0


def test_records_that_are_not_followed(cli: Cli, operators: Path, bundle: Path, tmp_path: Path) -> None:
    operator = qc.MatrixMultiplyInteger(qc.Tensor((3, 8), "uint8"), qc.Tensor((8, 5), "int8"))
    old = make(kernel=operator.name, constants=(), rule_version=99)
    path = write_file(tmp_path / "tuned.json", old)
    words = ["explain", operators, "--target", "x86_64", "--records", path]
    text = " ".join(cli(*words).stdout.split())
    assert "no record of this kernel for x86_64" in text
    assert "it is of cpu_plain version 99" in text
    document = json.loads(cli(*words, "--kernel", "[bold]sums", "--json").stdout)
    choice = document["kernels"][0]["choices"][0]
    assert choice["record"] is None
    assert "it is of cpu_plain version 99" in choice["records_refused"][0]
    check_failure(cli("explain", bundle, "--records", path), "still to be compiled")
    check_failure(cli("explain", operators, "--records", tmp_path / "none"), "No such file")


def test_wrong_questions(cli: Cli, operators: Path, bundle: Path, tmp_path: Path) -> None:
    check_failure(cli("explain", operators, "--kernel", "pool"), "'pool'", "conv, [bold]sums")
    check_failure(cli("explain", operators, "--target", "pdp11"), "'pdp11'")
    check_failure(cli("explain", operators, "--stage", "llvm"), "2 kernels: which one?", "--kernel")
    two = ["--target", "x86_64", "--target", "x86_64-avx2"]
    check_failure(cli("explain", operators, *two, "--kernel", "conv", "--stage", "llvm"), "one target", "--target")
    check_failure(cli("explain", operators, "--stage", "silicon"), "'silicon'")
    check_failure(cli("explain", bundle, "--target", "x86_64-avx2"), "not compiled for that target", "x86_64")
    check_failure(cli("explain", bundle, "--input-shape", "x=1"), "ONNX models")
    check_failure(cli("explain", tmp_path / "none.qcb"), "The bundle", "No such file")
    check_failure(cli("explain", tmp_path / "none.onnx"), "The model", "No such file")
    check_failure(cli("explain", tmp_path), "directory")
