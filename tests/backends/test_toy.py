"""A second backend goes through the same doors as any other: it costs one folder."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import qcompile as qc
from qcompile import backends
from qcompile.backends import targets
from qcompile.backends.interface import Place
from qcompile.checks.timing import measure
from qcompile.planning import find
from qcompile.runtime.loader import load_bundle

from ..cli.conftest import Cli, check_failure
from ..cli.conftest import cli as cli
from ..support import small_constants, small_convolution, small_input, stage_texts
from . import toy

OPERATORS = {"conv": small_convolution(), "quantize": qc.QuantizeLinear(qc.Tensor((5, 3), "float32"))}
CONSTANTS = {"conv": small_constants()}


@pytest.fixture
def abacus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The path of a target file of the toy, which the table of backends has."""
    for half in ("facts", "compiler", "executor"):
        module = ModuleType(f"toy_backend.{half}")
        for name in ("parse", "compiler", "executor"):
            setattr(module, name, getattr(toy, name))
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(sys.modules, "toy_backend", ModuleType("toy_backend"))
    monkeypatch.setitem(backends.BACKENDS, toy.KIND, backends.Backend("toy_backend", toy.STAGES))
    rule = toy.ToyRule(f"qcompile.schedules.{toy.RULE}")
    monkeypatch.setitem(sys.modules, rule.__name__, rule)
    path = tmp_path / "abacus.toml"
    path.write_text(toy.TARGET)
    return str(path)


@pytest.fixture
def bundle(abacus: str, tmp_path: Path) -> Path:
    """A bundle for the toy and for a CPU."""
    path = tmp_path / "both.qcb"
    qc.compile(OPERATORS, [abacus, "x86_64"], CONSTANTS).save(path)
    return path


def test_compile_and_run(abacus: str) -> None:
    kernel = qc.compile(OPERATORS["conv"], abacus, small_constants())
    expected = qc.reference(OPERATORS["conv"], input=small_input(), **small_constants())
    assert np.array_equal(kernel(input=small_input()), expected)
    assert (kernel.variant.target, kernel.variant.kind, kernel.variant.needs) == ("abacus", "reference", {"beads": 10})
    assert (kernel.variant.place, kernel.variant.emulated_cpu) == (Place("abacus"), "")


def test_load_and_verify(bundle: Path) -> None:
    loaded = load_bundle(bundle)
    assert loaded.targets == ["x86_64", "abacus"], "the preferred one first"
    library = loaded.manifest.libraries[1]
    assert (library.kind, library.needs, library.format) == ("reference", {"beads": 10}, "json")
    results = qc.verify(loaded)
    assert {(result.name, result.target) for result in results} == {
        (name, target) for name in OPERATORS for target in ("x86_64", "abacus")
    }
    assert all(result.is_exact for result in results)
    values = np.linspace(-3, 3, 15, dtype=np.float32).reshape(5, 3)
    scale = np.float32(0.1)
    here, there = (loaded["quantize"].on(target)(input=values, scale=scale) for target in ("x86_64", "abacus"))
    assert np.array_equal(here, there)


def test_the_devices_own_clock_counts(abacus: str) -> None:
    (timing,) = measure([qc.compile(OPERATORS["conv"], abacus, small_constants())], threads=[1], seconds=0)
    assert timing.seconds == 1.0


def test_what_the_machine_lacks(abacus: str, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toy.ToyExecutor, "beads", 4)
    assert targets.missing(targets.load(abacus)) == ["6 more beads"]
    loaded = load_bundle(bundle)
    assert loaded["conv"].runnable_targets == ["x86_64"]
    with pytest.raises(qc.IncompatibleMachineError, match="abacus needs 6 more beads"):
        loaded["conv"].on("abacus")(input=small_input())


def test_a_damaged_library(bundle: Path) -> None:
    from qcompile.bundle import container

    manifest, blobs, _ = container.unpack(bundle.read_bytes(), "it")
    blobs[1] = memoryview(b"no JSON")
    with pytest.raises(qc.BundleError, match="The library of target abacus is not JSON"):
        qc.Bundle(container.pack(manifest, blobs))["conv"].on("abacus")(input=small_input())
    manifest["libraries"][1]["needs"] = {"beads": "many"}
    with pytest.raises(qc.BundleError, match="needs must have a number of beads"):
        qc.Bundle(container.pack(manifest, blobs))


def test_explain(abacus: str, bundle: Path, cli: Cli) -> None:
    result = cli("explain", bundle, "--target", "abacus", "--kernel", "conv")
    assert result.exit_code == 0, result.output
    assert toy.RULE in result.stdout
    hardware = targets.load(abacus)
    assert find(OPERATORS["conv"], hardware).rule == toy.RULE
    texts = stage_texts(OPERATORS["conv"], (), hardware, toy.STAGES)
    assert texts["notes"] == "kernel moves 10 beads"
    with pytest.raises(qc.UnknownNameError, match="do not pass this stage"):
        stage_texts(OPERATORS["conv"], (), hardware, ["assembly"])


def test_tune_refuses_by_name(abacus: str, tmp_path: Path, cli: Cli) -> None:
    with pytest.raises(qc.TuningError, match=r"Kernels of abacus cannot be tuned.\n.*hardware of kind reference"):
        qc.tune(OPERATORS["conv"], abacus, records=tmp_path / "tuned.json")
    assert not (tmp_path / "tuned.json").exists()
    result = cli("tune", OPERATORS["conv"].name, "--target", abacus, "--records", tmp_path / "tuned.json")
    check_failure(result, "Kernels of abacus cannot be tuned")
