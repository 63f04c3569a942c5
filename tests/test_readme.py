"""The README does what it says: its code runs, and its table of operators is the generated one.

`python -m tests.test_readme` writes the table. What the other pages' tests need of Markdown is here too.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from qcompile import catalogue
from qcompile.backends import targets
from qcompile.backends.interface import Hardware
from qcompile.errors import NotApplicable
from qcompile.planning import find
from qcompile.reference import REFERENCES

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
BEGIN, END = "<!-- operators: written by `python -m tests.test_readme` -->", "<!-- end of operators -->"
#: language of a block -> the file that it is written to
_FILES = {"c": "main.c", "toml": "layers.toml"}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page, in its order."""
    return [Block(*match) for match in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]


def table_of(headings: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@dataclass
class Desk:
    """A folder in which the blocks of a page run as a reader would run them, with `qcompile` and `python` at hand.

    Args:
        folder: an empty folder.
        outputs: (command or program, what it printed), in the order of the page.
    """

    folder: Path
    outputs: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.folder / "examples").symlink_to(ROOT / "examples")
        programs = self.folder / "bin"
        programs.mkdir()
        for name, module in (("python", ""), ("qcompile", "-m qcompile ")):
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module}"$@"\n', encoding="utf-8")
            program.chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "100",
        }

    def run(self, block: Block) -> None:
        """Runs a block of Python or shell (a command a line), or writes the file that it is; others are not run."""
        if block.language == "python" and ">>>" not in block.text:
            self._run(block.text, [sys.executable, "-c", block.text])
        elif block.language == "sh":
            for line in block.text.splitlines():
                self._run(line, ["sh", "-c", line])
        elif block.language in _FILES:
            (self.folder / _FILES[block.language]).write_text(block.text, encoding="utf-8")

    def _run(self, what: str, words: list[str]) -> None:
        done = subprocess.run(
            words, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, f"{what}\n{done.stdout}{done.stderr}"
        self.outputs.append((what, done.stdout))


def operator_table() -> str:
    """Operators x targets, from the catalogue and the target files."""
    every = targets.load_all()
    rows = [
        [
            entry.operator.__name__,
            entry.title,
            entry.sources,
            "yes" if entry.operator in REFERENCES else "no",
            *("yes" if compiles(entry, target) else "not yet" for target in every),
        ]
        for entry in catalogue.CATALOGUE
    ]
    return table_of(["operator", "what it does", "defined by", "reference", *(f"`{t.name}`" for t in every)], rows)


def compiles(entry: catalogue.Entry, target: Hardware) -> bool:
    """Whether the target has a rule for each example of the operator."""
    try:
        for example in entry.examples:
            find(example, target)
    except NotApplicable:
        return False
    return True


def with_table(text: str) -> str:
    """The README with the generated table."""
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{operator_table()}\n\n{END}{after}"


def test_the_table_is_the_generated_one() -> None:
    text = README.read_text(encoding="utf-8")
    assert text.count(BEGIN) == text.count(END) == 1
    assert text == with_table(text), "run `python -m tests.test_readme`"


def test_the_code_runs(tmp_path: Path) -> None:
    """The first kernel, then all commands, in the order of the page."""
    desk = Desk(tmp_path)
    for block in blocks(README.read_text(encoding="utf-8")):
        desk.run(block)
    printed = dict(desk.outputs)
    assert "7 of 7 kernels exact" in printed["qcompile verify digits.qcb"]
    assert {"conv.qcb", "digits.qcb", "output.npz"} <= {path.name for path in tmp_path.iterdir()}
    assert len(printed) >= 7, "a block was not found"


@pytest.mark.parametrize("command", ["demo", "test", "bench"])
def test_the_commands_exist(command: str) -> None:
    assert f"`make {command}`" in README.read_text(encoding="utf-8")
    assert re.search(rf"^{command}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def test_versions_are_those_of_the_package() -> None:
    text = README.read_text(encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert "version 0.1" in text
    assert 'version = "0.1.' in project
    assert "apache-tvm 0.27.0.post1" in text
    assert '"apache-tvm==0.27.0.post1"' in project
    assert "Python 3.10 to 3.13" in text
    assert 'requires-python = ">=3.10"' in project


if __name__ == "__main__":
    README.write_text(with_table(README.read_text(encoding="utf-8")), encoding="utf-8")
