"""What a user installs: the wheel is complete and works outside the repository."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder, ROOT]
    subprocess.run([str(word) for word in command], check=True)
    return next(folder.glob("*.whl"))


def tracked(folder: str) -> set[str]:
    done = subprocess.run(["git", "ls-files", folder], cwd=ROOT, capture_output=True, text=True, check=True)
    return {line for line in done.stdout.splitlines() if not (ROOT / line).is_symlink()}


def test_the_wheel_is_complete(wheel: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("the list of files comes from git, and this is no git checkout")
    expected = tracked("qcompile") | {f"qcompile/{name}" for name in tracked("schedules") | tracked("targets")}
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == expected


def test_the_wheel_compiles_and_runs_elsewhere(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", target, wheel]
    subprocess.run([str(word) for word in command], check=True)
    program = (
        "import qcompile as qc\n"
        f"assert qc.__file__.startswith({str(target)!r}), qc.__file__\n"
        "kernel = qc.compile(qc.Requantize(qc.Tensor((5,), 'int32')))\n"
        "assert all(result.is_exact for result in qc.verify(kernel))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(target), "QCOMPILE_CACHE": "off"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
