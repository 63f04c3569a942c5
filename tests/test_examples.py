"""The examples run as their users run them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import qcompile as qc

ROOT = Path(__file__).parent.parent
DIGITS = ROOT / "examples" / "digits"


def run(*command: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1", "COLUMNS": "100"}
    words = [sys.executable, *map(str, command)]
    return subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("model", ["digits_int8.onnx", "digits_qdq_int8.onnx"])
def test_digits(model: str, tmp_path: Path) -> None:
    done = run(DIGITS / "run.py", "--model", model, "--output", tmp_path / "digits.qcb")
    assert done.returncode == 0, done.stderr
    assert "verified: 7 of 7 kernels equal the reference bit for bit" in done.stdout
    accuracy = float(done.stdout.split("accuracy: ")[1].split("%")[0])
    assert accuracy >= 99.0
    assert "conv4" in done.stdout
    assert "GMAC/s" in done.stdout
    bundle = qc.load(tmp_path / "digits.qcb")
    assert isinstance(bundle, qc.Bundle)
    assert len(bundle) == 7


def test_digits_model_is_small() -> None:
    for model in DIGITS.glob("*.onnx"):
        assert model.stat().st_size < 200_000


def test_digits_training(tmp_path: Path) -> None:
    """A short training writes models that compile; the committed ones come from the full one."""
    pytest.importorskip("sklearn")
    done = run(DIGITS / "train.py", "--output-dir", tmp_path, "--epochs", 3)
    assert done.returncode == 0, done.stdout + done.stderr
    with np.load(tmp_path / "digits_test.npz") as again, np.load(DIGITS / "digits_test.npz") as committed:
        assert np.array_equal(again["images"], committed["images"])
    bundle = qc.compile(tmp_path / "digits_int8.onnx", input_shapes={"image": (4, 1, 8, 8)})
    assert all(result.is_exact for result in qc.verify(bundle, rounds=1))
