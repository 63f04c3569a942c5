"""`qcompile tune`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import qcompile as qc
from qcompile import records
from qcompile.cli.tuning import tuning_progress
from qcompile.tuning import laboratory
from qcompile.tuning.report import Progress

from ..support import listen_to_interrupts
from .conftest import Cli, check_failure, check_width

PRODUCT = qc.MatrixMultiplyInteger(qc.Tensor((8, 16), "uint8"), qc.Tensor((16, 32), "int8"))


@pytest.fixture(autouse=True)
def short_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laboratory, "_SECONDS", 0.01)
    monkeypatch.setattr(laboratory, "_FINAL_SECONDS", 0.02)


def test_kernels_of_a_file(cli: Cli, operators: Path, tmp_path: Path) -> None:
    path = tmp_path / "tuned.json"
    result = cli("tune", operators, "--target", "x86_64", "--records", path, "--trials", "3")
    assert result.exit_code == 0, result.output
    assert "conv\n" in result.stdout
    assert "[bold]sums\n" in result.stdout
    assert "3 new, 0 of earlier runs" in result.stdout
    assert "the budget is spent" in result.stdout
    check_width(result.stdout.replace(str(tmp_path), ""))
    lines = result.stderr.splitlines()
    assert lines[0] == "tuning 1/2 conv: starting, 0 of 3 trials"
    assert lines[-1].startswith("tuning 2/2 [bold]sums: done, 3 of 3 trials, best ")
    assert " x default" in lines[-1]
    # compile follows the records, and explain says so
    document = json.loads(
        cli("compile", operators, "--target", "x86_64", "--records", path, "-o", tmp_path / "o.qcb", "--json").stdout
    )
    assert [kernel["sources"] for kernel in document["kernels"]] == [{"x86_64": "records"}] * 2
    text = cli("explain", operators, "--target", "x86_64", "--records", path, "--kernel", "conv").stdout
    assert "from records record" in " ".join(text.split())
    assert "measured" in text
    assert "1 thread on" in text
    document = json.loads(cli("explain", operators, "--target", "x86_64", "--records", path, "--json").stdout)
    choice = document["kernels"][0]["choices"][0]
    assert choice["source"] == "records"
    assert choice["record"]["file"] == str(path)
    assert choice["record"]["seconds"] > 0
    assert choice["records_refused"] == []


def test_json(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "tuned.json"
    words = ["tune", PRODUCT.name, "--target", "x86_64", "--records", path, "--constants", "parameters", "--json"]
    document = json.loads(cli(*words, "--trials", "2").stdout)
    (kernel,) = document["kernels"]
    assert (document["target"], document["interrupted"], kernel["name"]) == ("x86_64", False, PRODUCT.name)
    assert kernel["constants"] == ["a_zero_point", "b", "b_zero_point"]
    assert kernel["statuses"] == {"ok": 2}
    assert kernel["best"]["seconds"] > 0
    assert kernel["speed_up"] >= 1


def test_one_kernel(cli: Cli, operators: Path, tmp_path: Path) -> None:
    words = ["tune", operators, "--records", tmp_path / "tuned.json", "--trials", "1", "--kernel", "conv", "--json"]
    document = json.loads(cli(*words, "--threads", "2", "--time", "60").stdout)
    assert [(kernel["name"], kernel["threads"]) for kernel in document["kernels"]] == [("conv", 2)]


def test_no_exact_candidate_is_a_failure(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = laboratory.Outcome("wrong result", "it is wrong")
    monkeypatch.setattr(
        laboratory.Laboratory, "measure", lambda self, some, best: ((i, measured) for i in range(len(some)))
    )
    result = cli("tune", PRODUCT.name, "--records", tmp_path / "tuned.json")
    assert result.exit_code == 1
    assert "no exact result" in result.stdout
    assert "failed" in result.stdout
    assert "with wrong result: it is" in " ".join(result.stdout.split())


def test_interrupted(operators: Path, tmp_path: Path) -> None:
    path = tmp_path / "tuned.json"
    words = [sys.executable, "-m", "qcompile", "tune", str(operators), "--records", str(path), "--trials", "1000"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=listen_to_interrupts
    ) as process:
        end = time.monotonic() + 60
        while not path.exists() or path.read_bytes().count(b"\n") < 3:
            assert time.monotonic() < end
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "it was interrupted" in stdout
    assert "Traceback" not in stderr
    assert len(records.read(path)) >= 3


def test_wrong_words(cli: Cli, operators: Path, tmp_path: Path) -> None:
    path = tmp_path / "tuned.json"
    tune = ["tune", operators, "--records", path]
    check_failure(cli("tune", operators), "--records")
    check_failure(cli(*tune, "--kernel", "pool"), "'pool'", "conv, [bold]sums")
    check_failure(cli(*tune, "--target", "pdp11"), "'pdp11'", "accepted")
    check_failure(cli(*tune, "--trials", "0"), "--trials")
    check_failure(cli(*tune, "--time", "0"), "--time")
    check_failure(cli(*tune, "--constants", "some"), "--constants")
    check_failure(cli("tune", "qconv__x1", "--records", path), "no kernel name", "'qconv__x1'")
    check_failure(cli("tune", "none.toml", "--records", path), "No such file")
    check_failure(cli("tune", operators, "--records", tmp_path / "no" / "t.json"), "cannot be written", "remedy")
    assert not path.exists()
    path.write_text("{}\nx\n")
    check_failure(cli(*tune), "tuned.json, line 1", "remedy")


def test_an_unsteady_machine_is_named(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compare = laboratory.Laboratory.compare

    def slower(own: laboratory.Laboratory, candidates: Any) -> list[laboratory.Outcome]:
        outcomes = compare(own, candidates)
        return [replace(outcome, seconds=10 * (outcome.seconds or 0)) for outcome in outcomes]

    monkeypatch.setattr(laboratory.Laboratory, "compare", slower)
    result = cli("tune", PRODUCT.name, "--records", tmp_path / "tuned.json", "--trials", "4")
    assert result.exit_code == 0
    assert "is the machine quiet?" in " ".join(result.stdout.split())


PROGRESS = Progress(1, 2, "[red]conv", 10**6, "MAC", 0, 8, None, None, {}, None, "starting")


def test_plain_lines_are_few(capsys: pytest.CaptureFixture[str]) -> None:
    with tuning_progress() as tell:
        tell(PROGRESS)
        for trial in range(1, 8):
            tell(replace(PROGRESS, trials=trial, step="searching"))
        tell(
            replace(
                PROGRESS, trials=8, step="done", best=1e-4, default=2e-4, statuses={"ok": 7, "time-out": 1}, remaining=3
            )
        )
    assert capsys.readouterr().err.splitlines() == [
        "tuning 1/2 [red]conv: starting, 0 of 8 trials",
        "tuning 1/2 [red]conv: done, 8 of 8 trials, best 10 GMAC/s, 2.00 x default, 1 time-out, 3 s left",
    ]


def test_a_live_line_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    with tuning_progress() as tell:
        tell(replace(PROGRESS, trials=5, best=1e-4, default=2e-4, statuses={"ok": 4, "build error": 1}))
    captured = capsys.readouterr()
    assert captured.out == ""
    for words in ("tuning 1/2 [red]conv", "5/8", "best 10 GMAC/s, 2.00 x default", "1 build error"):
        assert words in captured.err


def test_a_model(cli: Cli, model: Path, tmp_path: Path) -> None:
    result: Any = cli(
        "tune", model, "--input-shape", "x=2,4", "--records", tmp_path / "tuned.json", "--trials", "1", "--json"
    )
    (kernel,) = json.loads(result.stdout)["kernels"]
    assert kernel["name"] == "product"
    assert kernel["constants"] == ["b"]
