"""The benchmarks run; their figures decide nothing here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from qcompile.backends.cpu import features as cpu_features

from ..conftest import needs_binutils
from ..records.support import KERNEL, make, write_file

ROOT = Path(__file__).parents[2]
LATER_FEATURES = {"avx512f", "avx512vnni", "avxvnni"}
TINY = """# one of each
conv 8x9 8->16 3x3 stride=2 pad=1
conv 8x9 8->8 3x3 pad=same groups=8 count=3
product 5x64x32 count=2
product 1x64x32
"""


def run(*arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return done


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    path = tmp_path / "tiny.txt"
    path.write_text(TINY)
    return str(path)


def test_a_suite_of_ones_own(tiny: str, tmp_path: Path) -> None:
    """ONNX Runtime is exact for these types, in both layouts; the second run is compared with the first."""
    command = ["benchmarks/run.py", "--suite", tiny, "--types", "u8u8,s8s8", "--rounds", "1", "--peers", "onnxruntime"]
    done = run(*command, "--threads", "1", "--json")
    document = json.loads(done.stdout)
    lines = document["lines"]
    assert [(line["types"], line["layout"]) for line in lines[::4]] == [
        ("u8u8", "NCHW"), ("u8u8", "NHWC"), ("s8s8", "NCHW"), ("s8s8", "NHWC"),
    ]  # fmt: skip
    assert [line["name"] for line in lines[:4]] == ["3x3 s2 8x9 8->16", "dw 3x3 8x9 8", "5x64x32", "1x64x32"]
    assert {line["peers"]["onnxruntime"]["verdict"] for line in lines} == {"exact"}
    assert all(line["best_right_peer"] == "onnxruntime" and line["ratio_to_best_right_peer"] > 0 for line in lines)
    if "avx2" in cpu_features.features():
        assert all(line["port_share"] > 0 and (line["read_share"] is not None) == ("1x64" in line["name"])
                   for line in lines)  # fmt: skip
    assert "[1/16] tiny 3x3 s2 8x9 8->16 u8u8 NCHW threads 1" in done.stderr

    (tmp_path / "old.json").write_text(done.stdout)
    table = run(*command, "--layout", "NHWC", "--compare", str(tmp_path / "old.json")).stdout
    assert "x before" in table
    assert "tiny, u8u8, NHWC, 1 thread" in table
    assert "onnxruntime" in table
    assert "4 exact" in table
    assert all(len(line) <= 100 for line in table.splitlines())


def test_operators_on_single_elements() -> None:
    """TensorFlow is absent where the tests run, which is said."""
    done = run(
        "benchmarks/run.py", "--suite", "quantize", "--peers", "onnxruntime,tensorflow", "--rounds", "1", "--json"
    )
    document = json.loads(done.stdout)
    assert len(document["lines"]) == 10
    assert all(line["microseconds"] > 0 and line["copy_share"] > 0 for line in document["lines"])
    verdicts = [line["peers"]["onnxruntime"]["verdict"] for line in document["lines"][:4]]
    assert verdicts == ["exact"] * 4
    absent = document["versions"]["tensorflow"] is None
    assert ("absent: tensorflow (no module tensorflow is installed)" in done.stderr) == absent


@needs_binutils
@pytest.mark.skipif(not LATER_FEATURES & cpu_features.features(), reason="this CPU has nothing later than AVX2 to hide")
def test_peers_that_see_avx2_only(tmp_path: Path) -> None:
    """Without VNNI, ONNX Runtime adds uint8 x int8 products with saturation: proof that the mask works."""
    (tmp_path / "one.txt").write_text("product 16x256x64\n")
    command = ["benchmarks/run.py", "--suite", str(tmp_path / "one.txt"), "--peers", "onnxruntime", "--rounds", "1"]
    command.append("--json")
    masked = json.loads(run(*command, "--peers-isa", "avx2").stdout)
    assert [name[:27] for name in masked["masked"]] == ["onnxruntime_pybind11_state."]
    result = masked["lines"][0]["peers"]["onnxruntime"]
    assert result["verdict"] == "wrong"
    assert result["wrong_share"] > 0.02
    assert {entry["is_right"] for entry in masked["evidence"]} == {False}
    if {"avx512vnni", "avxvnni"} & cpu_features.features():
        native = json.loads(run(*command).stdout)
        assert native["masked"] == []
        assert native["lines"][0]["peers"]["onnxruntime"]["verdict"] == "exact"
        assert (native["not_held"], native["evidence"]) == ({}, [])


@pytest.mark.skipif(bool(LATER_FEATURES & cpu_features.features()), reason="this CPU has something to hide")
def test_nothing_to_hide(tiny: str) -> None:
    done = run("benchmarks/run.py", "--suite", tiny, "--peers-isa", "avx2", "--peers", "onnxruntime", "--rounds", "1")
    assert "--peers-isa avx2 changes nothing" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--suite", "nonsense"], "there is no suite 'nonsense'; accepted: layers, resnet50"),
        (["--types", "u8s9"], "unknown 'u8s9'; accepted: u8s8, u8u8, s8s8, u8s7"),
        (["--threads", "0"], "'0' is no integer of at least 1"),
        (["--compare", "README.md"], "This is no result of run.py --json."),
        (["--peers", "cudnn"], "unknown 'cudnn'; accepted: onnxruntime, onnxruntime-precise"),
    ],
)
def test_wrong_arguments(arguments: list[str], words: str) -> None:
    assert words in run("benchmarks/run.py", *arguments, status=2).stderr


def test_compile_time() -> None:
    assert "--json" in run("benchmarks/compile_time.py", "--help").stdout


def line(name: str, verdict: str) -> dict[str, Any]:
    peer = {"microseconds": 20.0, "verdict": verdict, "wrong_share": 0.0, "largest_difference": 0}
    return {
        "suite": "layers", "types": "u8s8", "layout": "NHWC", "threads": 1, "name": name, "microseconds": 10.0,
        "rate": 80.0, "peers": {"onnxruntime": peer}, "limits": {"port_share": 9e10},
    }  # fmt: skip


def test_chart(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, which draws the chart, is not installed")
    lines = [line("3x3", "exact"), line("1x64x32", "wrong")]
    lines[0]["peers"]["torch-fbgemm"] = {**lines[0]["peers"]["onnxruntime"], "is_held": False}
    document = {
        "cpu": "a CPU", "target": "x86_64-avx2", "peers_isa": "avx2", "lines": lines,
        "not_held": {"torch-fbgemm": "a sentence"},
    }  # fmt: skip
    results = tmp_path / "results.json"
    results.write_text(json.dumps(document))
    charts = [tmp_path / "one.svg", tmp_path / "two.svg"]
    for chart in charts:
        run("benchmarks/chart.py", str(results), "-o", str(chart))
    text = charts[0].read_text()
    assert charts[1].read_text() == text
    for words in ("1x64x32", "ONNX Runtime", "results are wrong", "a CPU, target x86_64-avx2", "peers restricted"):
        assert words in text
    assert text.count("PyTorch fbgemm") == text.count("(without PyTorch fbgemm: not held)") == 1
    failed = run("benchmarks/chart.py", str(results), "-o", str(charts[0]), "--suite", "resnet50", status=1)
    assert "no line of the suite 'resnet50'" in failed.stderr


def test_search(tmp_path: Path) -> None:
    lines = json.loads(run("benchmarks/search.py", "--rounds", "2", "--json").stdout)["lines"]
    assert [line["space"] for line in lines] == ["register tile", "valley"]
    assert all(line["search_mean"] < line["random_mean"] for line in lines)
    path = tmp_path / "all.json"
    write_file(path, *(make(knobs={"tile": tile}, seconds=1e-5 * tile) for tile in range(1, 30)))
    table = run("benchmarks/search.py", str(path), "--rounds", "2").stdout
    assert table.splitlines()[-1].endswith(f"{KERNEL}, 1 threads")
