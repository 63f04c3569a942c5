"""The rules of the house: imports point one way, data files have one reader, the links are there."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import qcompile

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "qcompile"

#: part of the package -> parts that it may import. Each part is a module or a folder directly under qcompile.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "files": {"errors"},
    "spec": {"errors"},
    "reference": {"errors", "spec"},
    "resources": {"errors"},
    "instructions": set(),
    "hardware": {"errors", "emulation", "instructions", "resources"},
    "targets": set(),
    "toolchain": {"errors"},
    "tvm_versions": {"errors"},
    "cache": {"errors", "files", "resources"},
    "facts": {"spec"},
    "difference": {"spec"},
    "compute": {"errors", "spec"},
    "catalogue": {"errors", "spec", "compute"},
    "schedules": {"errors", "spec", "compute", "facts", "hardware", "intrinsics"},
    "overflow": {"errors", "spec"},
    "intrinsics": set(),
    "packing": {"errors", "spec", "compute"},
    "records": {"errors", "facts", "files", "spec", "resources", "hardware", "schedules", "runtime"},
    "lowering": {"errors", "compute", "hardware", "instructions"},
    "c_interface": {"errors"},
    "process": set(),
    "emulation": {"errors", "cache", "c_interface", "process", "toolchain"},
    "runtime": {"errors", "files", "spec", "c_interface", "emulation"},
    "linking": {"errors", "cache", "toolchain"},
    "bundle": {"errors", "spec", "hardware", "runtime"},
    "pipeline": {
        "__init__", "errors", "facts", "spec", "cache", "catalogue", "compute", "records", "tvm_versions", "hardware",
        "bundle", "linking", "overflow", "packing", "requests", "runtime", "lowering", "toolchain",
    },
    "requests": {"errors", "spec", "cache", "frontends"},
    "frontends": {"errors", "files", "runtime", "spec", "reference"},
    "verification": {"difference", "errors", "spec", "reference", "runtime"},
    "timing": {"errors", "spec", "runtime", "verification"},
    "tuning": {
        "__init__", "errors", "facts", "hardware", "pipeline", "process", "records", "reference", "requests", "runtime",
        "spec", "timing", "toolchain", "tvm_versions", "verification",
    },
}  # fmt: skip


def parts() -> list[str]:
    names = [path.stem for path in PACKAGE.glob("*.py")] + [path.parent.name for path in PACKAGE.glob("*/__init__.py")]
    return sorted(set(names))


def sources(part: str) -> list[Path]:
    single = PACKAGE / f"{part}.py"
    return [single] if single.is_file() else sorted((PACKAGE / part).resolve().rglob("*.py"))


def imported_parts(path: Path, part: str) -> set[str]:
    """The parts of qcompile that a file imports, wherever the import stands."""
    found: set[str] = set()
    depth = 1 if path.parent == PACKAGE else 1 + len(path.parent.relative_to((PACKAGE / part).resolve()).parts) + 1
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level == depth:
                found |= {module.split(".")[0]} if module else {alias.name for alias in node.names}
            elif node.level == 0 and module.split(".")[0] == "qcompile":
                rest = module.split(".")[1:]
                found |= {rest[0]} if rest else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            for alias in node.names:
                names = alias.name.split(".")
                if names[0] == "qcompile":
                    found.add(names[1] if len(names) > 1 else "__init__")
    return {"__init__" if name == "__version__" else name for name in found} - {part}


def test_every_part_has_a_place() -> None:
    assert set(parts()) - {"__init__", "__main__", "cli"} == set(ALLOWED)


@pytest.mark.parametrize("part", sorted(ALLOWED))
def test_imports_point_one_way(part: str) -> None:
    for path in sources(part):
        assert imported_parts(path, part) <= ALLOWED[part], path


def test_the_allowed_imports_have_no_cycle() -> None:
    remaining = {part: needs - {"__init__"} for part, needs in ALLOWED.items()}
    while remaining:
        free = [part for part, needs in remaining.items() if not needs & set(remaining)]
        assert free, f"a cycle among {sorted(remaining)}"
        for part in free:
            del remaining[part]


def test_nothing_imports_the_command_line() -> None:
    for path in PACKAGE.rglob("*.py"):
        if "cli" not in path.relative_to(PACKAGE).parts and path.name != "__main__.py":
            assert "cli" not in imported_parts(path, path.relative_to(PACKAGE).parts[0].removesuffix(".py")), path


def test_only_resources_reads_the_data_files() -> None:
    for path in PACKAGE.rglob("*.py"):
        if path.name != "resources.py" and "frontends" not in path.parts:
            text = path.read_text(encoding="utf-8")
            assert "tomllib" not in text, path


@pytest.mark.parametrize(
    "part", ["spec", "reference", "runtime", "emulation", "errors", "files", "hardware", "records"]
)
def test_parts_without_tvm(part: str) -> None:
    for path in sources(part):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
            assert not any(name.split(".")[0] in ("tvm", "tvm_ffi") for name in names), path


def test_schedules_and_targets_are_links() -> None:
    for name in ("schedules", "targets"):
        link = PACKAGE / name
        assert link.is_symlink()
        assert str(link.readlink()) == f"../{name}"
        for path in [*ROOT.glob("tests/**/*.py"), *ROOT.glob("qcompile/**/*.py"), *ROOT.glob("examples/**/*.py")]:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ImportFrom) and node.level == 0:
                    assert (node.module or "").split(".")[0] != name, path


def test_public_names() -> None:
    assert set(qcompile.__all__) == {"__version__", *qcompile._PUBLIC}
    for name in qcompile.__all__:
        assert getattr(qcompile, name) is not None
    assert set(qcompile.__all__) <= set(dir(qcompile))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = qcompile.nonsense


def test_the_public_reference_is_a_function_whatever_was_imported() -> None:
    program = (
        "import qcompile as qc, numpy as np\n"
        "op = qc.QuantizeLinear(qc.Tensor((1,), 'float32'))\n"
        "assert qc.reference(op, input=np.ones(1, 'float32'), scale=0.5) == 2\n"
        "import qcompile.reference\n"
        "from qcompile.reference import evaluate\n"
        "assert qc.reference(op, input=np.ones(1, 'float32'), scale=0.5) == 2\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_importing_the_package_loads_nothing_heavy() -> None:
    program = (
        "import sys, qcompile\n"
        "assert not {'numpy', 'tvm', 'tvm_ffi', 'onnx', 'rich', 'click'} & set(sys.modules), sys.modules.keys()\n"
        "print(qcompile.__version__)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == qcompile.__version__


def test_the_version_is_that_of_the_package() -> None:
    assert f'version = "{qcompile.__version__}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_no_file_is_a_warehouse() -> None:
    for folder in (PACKAGE, ROOT / "schedules", ROOT / "tests", ROOT / "examples", ROOT / "benchmarks"):
        for path in folder.rglob("*.py"):
            assert len(path.read_text(encoding="utf-8").splitlines()) <= 450, path
