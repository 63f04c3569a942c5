"""A target whose only rule breaks things, in this process and in the workers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from qcompile.tuning import laboratory

from . import faulty_rule
from .faulty_rule import FaultyRule


@pytest.fixture
def rule(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyRule]:
    """The rule, which the workers know too."""
    script = str(Path(faulty_rule.__file__))
    monkeypatch.setattr(laboratory, "COMMAND", (sys.executable, script))
    rule = faulty_rule.install()
    yield rule
    del sys.modules[rule.__name__]


@pytest.fixture
def faulty_target(rule: FaultyRule, tmp_path: Path) -> str:
    """The path of its file."""
    path = tmp_path / "faulty.toml"
    path.write_text(faulty_rule.TARGET, encoding="utf-8")
    return str(path)
