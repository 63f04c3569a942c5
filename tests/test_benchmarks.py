"""The benchmarks run; their figures decide nothing here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from .records.support import KERNEL, make, write_file

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


def test_search(tmp_path: Path) -> None:
    lines = json.loads(run("benchmarks/search.py", "--rounds", "2", "--json"))["lines"]
    assert [line["space"] for line in lines] == ["register tile", "valley"]
    assert all(line["search_mean"] < line["random_mean"] for line in lines)
    path = tmp_path / "all.json"
    write_file(path, *(make(knobs={"tile": tile}, seconds=1e-5 * tile) for tile in range(1, 30)))
    table = run("benchmarks/search.py", str(path), "--rounds", "2")
    assert table.splitlines()[-1].endswith(f"{KERNEL}, 1 threads")
