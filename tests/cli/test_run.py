"""`qcompile run`, `qcompile verify` and `qcompile bench`."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qcompile as qc
from qcompile.backends.cpu import features as cpu_features
from qcompile.checks import verification
from qcompile.reference import evaluate

from ..support import small_constants, small_convolution, small_input
from .conftest import Cli, check_failure, check_width


def arrays(path: Path, **values: Any) -> Path:
    np.savez(path, **values)
    return path


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return arrays(tmp_path / "in.npz", input=small_input()), tmp_path / "out.npz"


@pytest.mark.parametrize("options", [[], ["--threads", 2]])
def test_run(cli: Cli, bundle: Path, files: tuple[Path, Path], options: list[Any]) -> None:
    result = cli("run", bundle, "--kernel", "conv", "--input", files[0], "--output", files[1], *options)
    assert result.exit_code == 0, result.output
    assert "output: uint8[1, 8, 6, 5]" in result.stdout
    with np.load(files[1], allow_pickle=False) as outputs:
        assert outputs.files == ["output"]
        expected = qc.reference(small_convolution(), input=small_input(), **small_constants())
        assert np.array_equal(outputs["output"], expected)


def test_run_the_only_kernel(cli: Cli, one_kernel: Path, tmp_path: Path) -> None:
    a = np.arange(8, dtype=np.uint8).reshape(2, 4)
    result = cli("run", one_kernel, "--input", arrays(tmp_path / "i.npz", a=a), "--output", tmp_path / "o.npz")
    assert result.exit_code == 0, result.output
    with np.load(tmp_path / "o.npz") as outputs:
        assert np.array_equal(outputs["output"], a.astype(np.int32) @ np.arange(20).reshape(4, 5))


def test_run_with_several_outputs(cli: Cli, tmp_path: Path) -> None:
    kernel = qc.compile(qc.DynamicQuantizeLinear(qc.Tensor((3, 5), "float32")), target="x86_64")
    kernel.save(tmp_path / "dynamic.qcb")
    x = np.linspace(-3, 5, 15, dtype=np.float32).reshape(3, 5)
    source = arrays(tmp_path / "i.npz", input=x)
    result = cli("run", tmp_path / "dynamic.qcb", "--input", source, "--output", tmp_path / "o.npz")
    assert result.exit_code == 0, result.output
    with np.load(tmp_path / "o.npz") as outputs:
        assert outputs.files == ["output", "scale", "zero_point"]
        for name, expected in evaluate(kernel.operator, {"input": x}).items():
            assert np.array_equal(outputs[name], expected)


def test_run_names_the_kernels(cli: Cli, bundle: Path, files: tuple[Path, Path]) -> None:
    options = ["--input", files[0], "--output", files[1]]
    check_failure(cli("run", bundle, *options), "which one", "conv, [bold]sums", "--kernel")
    check_failure(cli("run", bundle, "--kernel", "pool", *options), "'pool'", "conv, [bold]sums")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"image": small_input()}, ["'image'", "accepted: input"]),
        ({"input": small_input(), "filter": np.int8(1)}, ["'filter'", "accepted: input"]),
        ({"input": small_input(), "out": small_input()}, ["'out'", "accepted: input"]),
        ({"input": small_input(), "self": small_input()}, ["'self'", "accepted: input"]),
        ({"input": small_input(), "file": small_input()}, ["'file'", "accepted: input"]),
        ({}, ["called without input"]),
        ({"input": small_input().astype(np.int32)}, ["wrong dtype", "int32", "uint8"]),
        ({"input": small_input()[:, 1:]}, ["wrong shape"]),
        ({"input": np.array([None])}, ["cannot be read", "Python objects"]),
    ],
)
def test_run_on_wrong_arrays(cli: Cli, bundle: Path, tmp_path: Path, values: Any, words: list[str]) -> None:
    source = tmp_path / "in.npz"
    with zipfile.ZipFile(source, "w") as archive:  # numpy.savez has arguments of its own, such as "file"
        for name, value in values.items():
            with archive.open(f"{name}.npy", "w") as stream:
                np.lib.format.write_array(stream, np.asarray(value))
    result = cli("run", bundle, "--kernel", "conv", "--input", source, "--output", tmp_path / "out.npz")
    check_failure(result, "error: ", *words)
    assert not (tmp_path / "out.npz").exists()


def test_run_on_files_that_hold_no_arrays(cli: Cli, bundle: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "array.npy", small_input())
    (tmp_path / "empty.npz").write_bytes(b"")
    (tmp_path / "text.npz").write_text("input")
    whole = arrays(tmp_path / "whole.npz", input=small_input()).read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "flipped.npz").write_bytes(whole[:150] + bytes([whole[150] ^ 255]) + whole[151:])
    for name in ("array.npy", "empty.npz", "text.npz", "cut.npz", "flipped.npz", "missing.npz", "."):
        result = cli("run", bundle, "--kernel", "conv", "--input", tmp_path / name, "--output", tmp_path / "o.npz")
        check_failure(result, "error: The input ", "accepted:")


def test_run_with_unwritable_output(cli: Cli, bundle: Path, files: tuple[Path, Path], tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "no" / "out.npz"):
        result = cli("run", bundle, "--kernel", "conv", "--input", files[0], "--output", path)
        check_failure(result, "cannot be written")


@pytest.mark.parametrize("command", ["verify", "bench"])
def test_bundles_that_are_none(cli: Cli, command: str, bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "foreign.qcb").write_bytes(b"PK\x03\x04" * 100)
    (tmp_path / "cut.qcb").write_bytes(bundle.read_bytes()[:-1])
    (tmp_path / "empty.qcb").write_bytes(b"")
    for name, word in {"foreign": "not a qcompile bundle", "cut": "damaged", "empty": "empty", "no": "read"}.items():
        check_failure(cli(command, tmp_path / f"{name}.qcb", "--json"), "error: The bundle", word)
    check_failure(cli(command, tmp_path), "error: The bundle")


@pytest.mark.parametrize("command", ["verify", "bench"])
def test_foreign_machine(cli: Cli, command: str, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_features, "architecture", lambda: "riscv64")
    check_failure(cli(command, bundle), "not compiled for this machine")


def test_verify(cli: Cli, bundle: Path) -> None:
    result = cli("verify", bundle, "--rounds", 1, "--seed", 5)
    assert result.exit_code == 0
    assert [line.split()[-1] for line in result.stdout.splitlines()[1:3]] == ["exact", "exact"]
    assert result.stdout.endswith("\n2 of 2 kernels exact\n")
    check_width(result.stdout)


def test_verify_json(cli: Cli, bundle: Path) -> None:
    document = json.loads(cli("verify", bundle, "--json").stdout)
    assert document["is_exact"]
    assert [(row["name"], row["wrong"], row["elements"]) for row in document["kernels"]] == [
        ("conv", 0, 2 * 240),
        ("[bold]sums", 0, 2 * 15),
    ]


def test_verify_a_wrong_kernel(cli: Cli, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def almost(operator: Any, values: Any) -> Any:
        outputs = evaluate(operator, values)
        if operator == small_convolution():
            outputs["output"] = outputs["output"].copy()
            outputs["output"][0, 2, 1, 3] ^= 1
        return outputs

    monkeypatch.setattr(verification, "evaluate", almost)
    result = cli("verify", bundle)
    assert result.exit_code == 1
    assert "2 wrong" in result.stdout.splitlines()[1]
    assert (
        "conv for x86_64: output: 1 of 240 elements of shape [1, 8, 6, 5] differ; the first at [0, 2, 1, 3]"
        in result.stdout
    )
    assert "; along channel: only 2; along row: only 1; along column: only 3\n" in result.stdout
    assert result.stdout.endswith("\n1 of 2 kernels exact, 1 wrong\n")
    result = cli("verify", bundle, "--json")
    assert result.exit_code == 1
    assert [row["is_exact"] for row in json.loads(result.stdout)["kernels"]] == [False, True]


@pytest.mark.parametrize(
    "arguments",
    [["verify", "--rounds", 0], ["verify", "--seed", -1], ["bench", "--threads", 0], ["bench", "--seconds", -1]],
)
def test_numbers_out_of_range(cli: Cli, bundle: Path, arguments: list[Any]) -> None:
    check_failure(cli(*arguments, bundle), "range")


def test_bench(cli: Cli, bundle: Path) -> None:
    result = cli("bench", bundle, "--seconds", 0, "--threads", 1, "--threads", 2)
    assert result.exit_code == 0
    header, *lines = result.stdout.splitlines()
    assert header.split() == ["kernel", "operator", "target", "threads", "median", "\u00b5s", "rate", "spread"]
    assert sum("MAC/s" in line for line in lines) == 4
    check_width(result.stdout)


def test_bench_of_one_kernel(cli: Cli, bundle: Path) -> None:
    document = json.loads(cli("bench", bundle, "--kernel", "conv", "--seconds", 0, "--threads", 1, "--json").stdout)
    (row,) = document["timings"]
    assert (row["name"], row["threads"], row["unit"]) == ("conv", 1, "MAC")
    assert row["operations"] == small_convolution().operations
    assert row["rate"] == pytest.approx(row["operations"] / row["seconds"] / 1e9)
    check_failure(cli("bench", bundle, "--kernel", "pool"), "'pool'")
