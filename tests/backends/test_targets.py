"""Target files: order, and what a user's own file does not take from the package."""

from __future__ import annotations

from pathlib import Path

import pytest

import qcompile as qc
from qcompile.backends import targets
from qcompile.backends.cpu import facts as cpu_facts
from qcompile.backends.cpu.executor import executor
from qcompile.backends.interface import Emulation
from qcompile.planning import choose, find
from qcompile.records import RecordFile
from qcompile.spec import naming
from qcompile.system import resources

from ..support import small_constants, small_convolution

FOLDER = Path(str(qc.__file__)).parent / "targets"


def tuned_target() -> str:
    """A packaged target that has reviewed records."""
    return next(entry.name for entry in targets.load_all() if choose.tuned_records(entry))


def test_a_file_with_a_packaged_name_takes_neither_knobs_nor_records(tmp_path: Path) -> None:
    name = tuned_target()
    packaged = targets.load(name)
    record = next(record for file in choose.tuned_records(packaged) for record in file.records)
    operator = naming.parse(record.kernel)
    assert find(operator, packaged, record.constants).source == "tuned"
    path = tmp_path / "mine.toml"
    path.write_bytes((FOLDER / f"{name}.toml").read_bytes())
    own = targets.load(str(path))
    assert (own.name, own.is_packaged) == (name, False)
    assert find(operator, own, record.constants).source == "rule"
    with pytest.raises(qc.UnknownNameError, match="Two different targets have the same name"):
        targets.resolve([name, str(path)])


def test_defaults_are_those_of_packaged_targets(tmp_path: Path) -> None:
    name = next(entry.name for entry in targets.load_all() if resources.read_defaults(entry.name))
    rule = next(iter(resources.read_defaults(name)))
    packaged = targets.load(name)
    path = tmp_path / "mine.toml"
    path.write_bytes((FOLDER / f"{name}.toml").read_bytes())
    assert choose.default_knobs(rule, packaged)[0] == "defaults"
    assert choose.default_knobs(rule, targets.load(str(path)))[0] == "rule"


def test_targets_are_ordered_by_preference(tmp_path: Path) -> None:
    names = [entry.name for entry in targets.resolve(["x86_64", "x86_64-avx512vnni", "x86_64-avxvnni"])]
    assert names == ["x86_64-avx512vnni", "x86_64-avxvnni", "x86_64"]
    text = (FOLDER / "x86_64.toml").read_text()
    path = tmp_path / "mine.toml"
    path.write_text(text.replace('name = "x86_64"', 'name = "mine"').replace("preference = 10", "preference = 99"))
    assert targets.resolve(["x86_64-avx512vnni", str(path)])[0].name == "mine"


def test_an_architecture_without_an_emulator_is_named() -> None:
    """Nobody is told to install an emulator that does not help."""
    needs = {"architecture": "aarch64", "features": ["neon"], "emulated_cpu": ""}
    assert executor.places(needs, Emulation.ALWAYS) == []
    with pytest.raises(qc.EmulationError, match="no emulator for target it") as raised:
        executor.check_emulation(needs, "target it")
    assert "aarch64" in str(raised.value)
    assert "bochs" not in str(raised.value)


def test_ranking_asks_the_machine_when_it_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of records is the same whatever machine reads it."""
    packaged = targets.load(tuned_target())
    (file, *_) = choose.tuned_records(packaged)
    key = file.records[0].key
    monkeypatch.setattr("qcompile.backends.cpu.features.model", lambda: pytest.fail("it is not asked here"))
    again = RecordFile(file.origin, file.source, file.records)
    assert again.best_first(key, "no such machine") == again.best_first(key, "no such machine")
    first = again.best_first(key, file.records[0].cpu)[0]
    assert first.cpu == file.records[0].cpu


def test_the_page_has_every_field_and_its_example_works(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "targets.md").read_text(encoding="utf-8")
    for name in (*targets._FIELDS, *cpu_facts._FIELDS):
        assert f"`{name}`" in text or f"`[{name}]`" in text, name
    path = tmp_path / "my-server.toml"
    path.write_text(text.split("```toml\n")[1].split("```")[0])
    kernel = qc.compile(small_convolution(), str(path), small_constants())
    assert (kernel.variants[0].target, kernel.variants[0].rule) == ("my-server", "cpu_widen16")
