"""What all tests share: a cache of their own, and kernels for every CPU target, in emulation where they have to be."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from qcompile.backends import targets
from qcompile.backends.cpu.emulation.bochs.client import check_installed
from qcompile.errors import EmulationError


def emulator_is_installed() -> bool:
    """Whether kernels of other CPUs can be run."""
    try:
        check_installed()
    except EmulationError:
        return False
    return True


CPU_TARGETS = [entry.name for entry in targets.load_all() if entry.kind == "cpu"]
RUNNABLE_TARGETS = [entry.name for entry in targets.load_all() if entry.kind == "cpu" and not targets.missing(entry)]

#: CPU targets that run here, natively or in emulation
TESTED_TARGETS = CPU_TARGETS if emulator_is_installed() else RUNNABLE_TARGETS

needs_binutils = pytest.mark.skipif(
    not (shutil.which("objdump") and shutil.which("nm")), reason="objdump and nm (package binutils) are not installed"
)


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The tests neither read nor fill the user's cache of compiled kernels."""
    folder = tmp_path_factory.mktemp("cache")
    before = os.environ.get("QCOMPILE_CACHE")
    os.environ["QCOMPILE_CACHE"] = str(folder)
    yield folder
    if before is None:
        del os.environ["QCOMPILE_CACHE"]
    else:
        os.environ["QCOMPILE_CACHE"] = before


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with an argument `target` runs for every CPU target; one that cannot even be emulated is skipped."""
    if "target" in metafunc.fixturenames:
        metafunc.parametrize(
            "target",
            [
                pytest.param(
                    name,
                    marks=pytest.mark.skipif(
                        name not in TESTED_TARGETS,
                        reason=f"kernels of target {name} do not run on this CPU, and the emulator is not installed",
                    ),
                )
                for name in CPU_TARGETS
            ],
            scope="module",
        )
