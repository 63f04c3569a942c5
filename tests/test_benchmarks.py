"""The benchmarks run; their figures decide nothing here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def run(*arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_speed(tmp_path: Path) -> None:
    text = run("benchmarks/run.py", "--suite", "quantize", "--rounds", "1", "--json")
    lines = json.loads(text)["lines"]
    assert len(lines) == 10
    assert all(line["microseconds"] > 0 and line["bandwidth"] > 0 for line in lines)
    assert [line["peer_exact"] for line in lines[:4]] == [True] * 4
    (tmp_path / "old.json").write_text(text)
    old = str(tmp_path / "old.json")
    table = run("benchmarks/run.py", "--suite", "quantize", "--rounds", "1", "--compare", old)
    assert "x before" in table
    assert all(len(line) <= 80 for line in table.splitlines())


def test_compile_time() -> None:
    text = run("benchmarks/compile_time.py", "--help")
    assert "--json" in text
