"""The rules of the house: imports point one way, data files have one reader, the links are there."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import qcompile

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "qcompile"

#: part of the package -> parts that it may import. Each part is a module or a folder directly under qcompile.
ALLOWED: dict[str, set[str]] = {
    "version": set(),
    "errors": set(),
    "spec": {"errors"},
    "reference": {"errors", "spec"},
    "system": {"errors"},
    "compute": {"errors", "spec"},
    "catalogue": {"spec"},
    "constants": {"errors", "spec", "compute"},
    "intrinsics": set(),
    "targets": set(),
    "backends": {"errors", "spec", "system", "compute", "intrinsics"},
    "schedules": {"errors", "spec", "system", "compute", "constants", "intrinsics", "backends"},
    "records": {"errors", "spec", "system"},
    "planning": {"errors", "spec", "system", "constants", "backends", "schedules", "records"},
    "bundle": {"errors", "spec", "backends"},
    "runtime": {"errors", "spec", "system", "backends", "bundle"},
    "frontends": {"errors", "spec", "system", "runtime"},
    "pipeline": {
        "version", "errors", "spec", "system", "compute", "catalogue", "constants", "backends", "schedules", "records",
        "planning", "bundle", "runtime", "frontends",
    },
    "checks": {"errors", "spec", "reference", "backends", "runtime"},
    "tuning": {
        "version", "errors", "spec", "reference", "system", "constants", "backends", "schedules", "records", "planning",
        "runtime", "frontends", "pipeline", "checks",
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
    place = PACKAGE if path.parent == PACKAGE else (PACKAGE / part).resolve()
    depth = 1 if path.parent == PACKAGE else 2 + len(path.parent.relative_to(place).parts)
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
    return found - {part}


def test_every_part_has_a_place() -> None:
    assert set(parts()) - {"__init__", "__main__", "cli"} == set(ALLOWED)


@pytest.mark.parametrize("part", sorted(ALLOWED))
def test_imports_point_one_way(part: str) -> None:
    for path in sources(part):
        assert imported_parts(path, part) <= ALLOWED[part], path


def test_every_allowed_import_is_made() -> None:
    for part, allowed in ALLOWED.items():
        made = set().union(*(imported_parts(path, part) for path in sources(part)))
        assert allowed <= made, (part, allowed - made)


def test_the_allowed_imports_have_no_cycle() -> None:
    remaining = dict(ALLOWED)
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


#: parts that never import TVM
WITHOUT_TVM = (
    "errors", "version", "spec", "reference", "system", "constants", "records", "planning", "bundle", "runtime",
    "checks", "frontends",
)  # fmt: skip
#: files without TVM in parts that have others with it
FILES_WITHOUT_TVM = (
    "compute/arguments.py", "compute/form.py", "intrinsics/table.py", "backends/__init__.py", "backends/interface.py",
    "backends/fields.py", "backends/targets.py", "backends/cpu/facts.py", "backends/cpu/executor.py",
    "backends/cpu/library.py", "backends/cpu/features.py", "backends/cpu/struct_layout.py",
)  # fmt: skip


def imports_of_tvm(path: Path) -> list[ast.AST]:
    """The imports of TVM that are made when a file is run, or inside its functions."""
    found: list[ast.AST] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
        found += [node] if any(name.split(".")[0] in ("tvm", "tvm_ffi") for name in names) else []
    return found


@pytest.mark.parametrize("part", WITHOUT_TVM)
def test_parts_without_tvm(part: str) -> None:
    for path in sources(part):
        assert not imports_of_tvm(path), path


@pytest.mark.parametrize("name", FILES_WITHOUT_TVM)
def test_files_without_tvm(name: str) -> None:
    allowed = 1 if name == "backends/interface.py" else 0  # for type checkers alone
    assert len(imports_of_tvm(PACKAGE / name)) == allowed


def test_emulation_is_without_tvm() -> None:
    for path in (PACKAGE / "backends/cpu/emulation").rglob("*.py"):
        assert not imports_of_tvm(path), path


#: what only the wings of single kinds of hardware know
WORDS_OF_BACKENDS = re.compile(r"x86|llvm|linux|bochs", re.IGNORECASE)
PARTS_OF_BACKENDS = {"backends", "schedules", "targets", "intrinsics"}


@pytest.mark.parametrize("part", sorted(set(ALLOWED) - PARTS_OF_BACKENDS | {"cli", "__init__", "__main__"}))
def test_nothing_else_knows_a_kind_of_hardware(part: str) -> None:
    for path in sources(part):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            assert WORDS_OF_BACKENDS.search(line) is None, f"{path}:{number}: {line}"


@pytest.mark.parametrize("name", ["interface", "fields", "targets"])
def test_what_all_backends_share_knows_none_of_them(name: str) -> None:
    assert WORDS_OF_BACKENDS.search((PACKAGE / "backends" / f"{name}.py").read_text(encoding="utf-8")) is None


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
    assert set(qcompile.__all__) == set(qcompile._PUBLIC)
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
