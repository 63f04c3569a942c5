"""Which variant is emulated, and when: `emulate=`, `emulated()`, and the command line."""

from __future__ import annotations

import copy
import importlib.util
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import qcompile as qc
from qcompile.backends.cpu import features as cpu_features
from qcompile.backends.cpu.emulation.bochs import client
from qcompile.bundle import container
from qcompile.cli.application import application
from qcompile.runtime.loader import load_bundle

from ....support import small_constants, small_convolution, small_input
from .support import needs_emulator

pytestmark = needs_emulator


@pytest.fixture(scope="module")
def both() -> qc.Bundle:
    compiled: qc.Bundle = qc.compile(
        {"conv": small_convolution(), "product": qc.MatrixMultiplyInteger(qc.Tensor((3, 8), "uint8"),
                                                                         qc.Tensor((8, 5), "int8"))},
        ["x86_64", "x86_64-avx2"], {"conv": small_constants()},
    )  # fmt: skip
    return compiled


@pytest.fixture(scope="module")
def path(both: qc.Bundle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("emulation") / "both.qcb"
    both.save(path)
    return path


@pytest.fixture(scope="module")
def avx2_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("emulation") / "avx2.qcb"
    qc.compile(small_convolution(), "x86_64-avx2", small_constants()).save(path)
    return path


@pytest.fixture
def plain_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without AVX."""
    monkeypatch.setattr(cpu_features, "features", lambda: frozenset({"sse2"}))


@pytest.fixture(scope="module")
def expected() -> Any:
    return qc.reference(small_convolution(), input=small_input(), **small_constants())


def test_nothing_runs_natively(plain_machine: None, avx2_path: Path, expected: Any) -> None:
    with pytest.raises(qc.IncompatibleMachineError) as caught:
        qc.load(avx2_path)
    assert "or check it here in emulation: qc.load(path, emulate=True)" in str(caught.value.remedy)
    kernel: Any = qc.load(avx2_path, emulate=True)
    assert (kernel.variant.target, kernel.variant.emulated_cpu) == ("x86_64-avx2", "haswell")
    assert np.array_equal(kernel(input=small_input()), expected)
    assert kernel.instructions > 100
    unable = next(iter(load_bundle(avx2_path)))
    with pytest.raises(qc.IncompatibleMachineError, match="not compiled for this machine"):
        unable(input=small_input())
    assert unable.variants[0].emulated_cpu == ""
    assert unable.runnable_targets == []
    assert np.array_equal(unable.emulated()(input=small_input()), expected)


def test_native_variants_are_preferred(plain_machine: None, path: Path, expected: Any) -> None:
    native: Any = qc.load(path)
    assert native["conv"].runnable_targets == ["x86_64"]
    bundle: Any = qc.load(path, emulate=True)
    kernel = bundle["conv"]
    assert (kernel.variant.target, kernel.variant.emulated_cpu) == ("x86_64", "")
    assert kernel.runnable_targets == ["x86_64", "x86_64-avx2"]
    assert [variant.emulated_cpu for variant in kernel.variants] == ["haswell", ""]
    assert np.array_equal(kernel(input=small_input()), expected)
    assert kernel.instructions == 0
    other = kernel.on("x86_64-avx2")
    assert other.variant.emulated_cpu == "haswell"
    assert np.array_equal(other(input=small_input(), num_threads=4), expected)
    assert other.instructions > 100
    with pytest.raises(qc.IncompatibleMachineError):
        _ = native["conv"].on("x86_64-avx2").variant


def test_always(path: Path, expected: Any) -> None:
    """Wherever the tests run: what would run natively is emulated too."""
    bundle: Any = qc.load(path, emulate="always")
    kernel = bundle["conv"]
    assert kernel.variant.emulated_cpu == "haswell", "the most demanding variant comes first"
    assert np.array_equal(kernel(input=small_input()), expected)
    assert np.array_equal(kernel.on("x86_64")(input=small_input()), expected)
    assert load_bundle(path).emulated(always=True)["product"].variant.emulated_cpu == "haswell"


@pytest.mark.parametrize("change", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_copies(path: Path, change: Callable[[Any], Any]) -> None:
    bundle: Any = qc.load(path, emulate="always")
    assert change(bundle)["conv"].variant.emulated_cpu == "haswell"
    assert change(bundle["conv"]).variant.emulated_cpu == "haswell"
    assert change(bundle["conv"].on("x86_64")).variant.emulated_cpu == "clawhammer"


def test_a_wrong_mode(path: Path) -> None:
    for attempt in (lambda: qc.load(path, emulate="sometimes"), lambda: qc.verify(path, emulate=1)):  # type: ignore[arg-type]
        with pytest.raises(qc.EmulationError, match="Invalid value for emulate=") as caught:
            attempt()
        assert caught.value.accepted == "False, True or 'always'"


def test_one_kernel_keeps_its_cpu(both: qc.Bundle, tmp_path: Path) -> None:
    both["conv"].save(tmp_path / "conv.qcb")
    kernel: Any = qc.load(tmp_path / "conv.qcb", emulate="always")
    assert kernel.on("x86_64").variant.emulated_cpu == "clawhammer"


def older(path: Path) -> bytes:
    """The bundle as version 0.1.0 wrote it."""
    manifest, blobs, _ = container.unpack(path.read_bytes(), "it")
    for library in manifest["libraries"]:
        library["needs"]["emulated_cpu"] = ""
    return container.pack(manifest, blobs)


def test_older_bundles(path: Path, expected: Any) -> None:
    bundle = qc.Bundle(older(path))
    assert np.array_equal(bundle["conv"].on("x86_64")(input=small_input()), expected)
    with pytest.raises(qc.EmulationError, match="does not say which CPU to emulate for target x86_64") as caught:
        bundle["conv"].emulated(always=True).on("x86_64")(input=small_input())
    assert "compile it again" in str(caught.value.remedy)


@pytest.mark.parametrize("value", [3, None, "x" * 5000, ["haswell"]])
def test_wrong_manifests(path: Path, value: Any) -> None:
    manifest, blobs, _ = container.unpack(path.read_bytes(), "it")
    manifest["libraries"][0]["needs"]["emulated_cpu"] = value
    with pytest.raises(qc.BundleError, match="invalid manifest"):
        qc.Bundle(container.pack(manifest, blobs))


def test_a_library_of_another_kernel(both: qc.Bundle) -> None:
    """The table in the library is compared with the manifest, as it is natively."""
    manifest, blobs, _ = container.unpack(both.to_bytes(), "it")
    for variant in manifest["kernels"][0]["variants"]:
        variant["index"] = 1
    bundle = qc.Bundle(container.pack(manifest, blobs), emulate="always")
    with pytest.raises(qc.BundleError, match="lacks kernel 'conv', or has another one in its place"):
        bundle["conv"](input=small_input())


def test_verify(plain_machine: None, path: Path) -> None:
    assert [(result.target, result.emulated_cpu) for result in qc.verify(path, rounds=1)] == [("x86_64", "")] * 2
    found = qc.verify(path, rounds=1, emulate=True)
    assert all(result.is_exact for result in found)
    assert [(result.name, result.target, result.emulated_cpu) for result in found] == [
        ("conv", "x86_64", ""),
        ("conv", "x86_64-avx2", "haswell"),
        ("product", "x86_64", ""),
        ("product", "x86_64-avx2", "haswell"),
    ]
    always = qc.verify(path, rounds=1, emulate="always")
    assert {(result.target, result.emulated_cpu) for result in always} == {
        ("x86_64", "clawhammer"),
        ("x86_64-avx2", "haswell"),
    }


def with_cpu(bundle: qc.Bundle, target: str, cpu: str) -> qc.Bundle:
    """The bundle, whose manifest names another CPU for a target."""
    manifest, blobs, _ = container.unpack(bundle.to_bytes(), "it")
    for library in manifest["libraries"]:
        if library["target"] == target:
            library["needs"]["emulated_cpu"] = cpu
    return qc.Bundle(container.pack(manifest, blobs))


def test_a_variant_that_fails_does_not_hide_the_others(tmp_path: Path) -> None:
    compiled = qc.compile({"conv": small_convolution()}, ["x86_64", "x86_64-avx2"], {"conv": small_constants()})
    bundle = with_cpu(compiled, "x86_64-avx2", "penryn")
    failed, exact = qc.verify(bundle, rounds=1, emulate="always")
    assert (failed.target, failed.is_exact, failed.wrong) == ("x86_64-avx2", False, 0)
    assert "an instruction that the emulated CPU penryn does not have" in failed.failure
    assert (exact.target, exact.is_exact, exact.failure) == ("x86_64", True, "")
    bundle.save(tmp_path / "penryn.qcb")
    result = cli("verify", tmp_path / "penryn.qcb", "--emulate-all")
    assert result.exit_code == 1
    assert "1 of 2 variants exact (1 kernel), 1 failed" in result.stdout
    assert "conv for x86_64-avx2: A kernel of target x86_64-avx2 executes an instruction" in result.stdout
    result = cli("verify", tmp_path / "penryn.qcb", "--emulate-all", "--json")
    assert [bool(row["failure"]) for row in json.loads(result.stdout)["kernels"]] == [True, False]
    with pytest.raises(qc.EmulationFaultError):
        bundle["conv"].emulated(always=True).on("x86_64-avx2")(input=small_input())


def test_a_variant_without_a_cpu_is_named(tmp_path: Path) -> None:
    compiled = qc.compile({"conv": small_convolution()}, ["x86_64", "x86_64-avx2"])
    bundle = with_cpu(compiled, "x86_64-avx2", "")
    assert [result.target for result in qc.verify(bundle, rounds=1, emulate="always")] == ["x86_64"]
    bundle.save(tmp_path / "old.qcb")
    result = cli("verify", tmp_path / "old.qcb", "--emulate-all")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "not checked: x86_64-avx2, whose CPU the bundle does not name"


def test_a_missing_emulator_is_noticed_first(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise qc.EmulationError("The emulator bochscpu is not installed.")

    monkeypatch.setattr(client, "check_installed", missing)
    seen: list[str] = []
    with pytest.raises(qc.EmulationError, match="not installed"):
        qc.verify(path, emulate="always", progress=lambda done, total, name: seen.append(name))
    assert seen == []


def cli(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "80"}).invoke(application, list(map(str, arguments)))


def test_the_command(plain_machine: None, path: Path, avx2_path: Path) -> None:
    result = cli("verify", path)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["kernel", "target", "run", "elements", "result"]
    assert lines[1].split() == ["conv", "x86_64", "native", "480", "exact"]
    assert lines[-1] == "not checked: x86_64-avx2, which this machine cannot run (--emulate)"
    result = cli("verify", path, "--emulate")
    assert result.exit_code == 0, result.output
    assert "emulated (haswell)" in result.stdout
    assert "not checked" not in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    result = cli("verify", avx2_path)
    assert result.exit_code == 2
    assert "--emulate" in result.stderr


def test_the_command_prints_json(plain_machine: None, path: Path) -> None:
    document = json.loads(cli("verify", path, "--json").stdout)
    assert document["not_checked"] == ["x86_64-avx2"]
    document = json.loads(cli("verify", path, "--emulate", "--json").stdout)
    assert document["not_checked"] == []
    assert [kernel["emulated_cpu"] for kernel in document["kernels"]] == ["", "haswell", "", "haswell"]


def test_the_command_without_an_emulator(plain_machine: None, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client.stop_all()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = cli("verify", path, "--emulate")
    assert result.exit_code == 2
    assert "pip install bochscpu-python==0.4.0" in result.stderr
    assert "Traceback" not in result.stderr


def test_running_natively_loads_nothing_of_it(path: Path) -> None:
    program = (
        "import sys, numpy, qcompile\n"
        f"kernel = qcompile.load({str(path)!r})['product'].on('x86_64')\n"
        "kernel(a=numpy.zeros((3, 8), numpy.uint8), b=numpy.zeros((8, 5), numpy.int8))\n"
        "assert not [name for name in sys.modules if 'emulation' in name or name in ('bochscpu', 'subprocess')]\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=dict(os.environ), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
