"""Whatever a candidate does, it is recorded with its cause, counted, and never the end of tuning."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import qcompile as qc
from qcompile import records
from qcompile.system.processes import Worker, WorkerFailure
from qcompile.tuning import laboratory, session
from qcompile.tuning.report import Progress

from . import faulty_rule
from .faulty_rule import FaultyRule

OPERATOR = qc.Requantize(qc.Tensor((400,), "int32"))
#: fault -> status and a part of the cause
EXPECTED = {
    faulty_rule.FINE: ("ok", ""),
    faulty_rule.BUILD_ERROR: ("build error", "ValueError: there is no such loop"),
    faulty_rule.BUILD_CRASH: ("build error", "while it was built: the process was ended by SIGSEGV"),
    faulty_rule.BUILD_HANG: ("time-out", "while it was built: no answer within 4 s"),
    faulty_rule.RUN_ERROR: ("run error", "The kernel failed: out of memory."),
    faulty_rule.RUN_CRASH: ("run error", "while it ran: the process was ended by SIGSEGV"),
    faulty_rule.RUN_HANG: ("time-out", "while it ran: no answer within 4 s"),
    faulty_rule.WRONG_RESULT: ("wrong result", "; along axis 0: only 399 (the last)"),
}


@pytest.fixture(autouse=True)
def short_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laboratory, "_SECONDS", 0.01)
    monkeypatch.setattr(laboratory, "_FINAL_SECONDS", 0.02)


def test_every_fault_is_recorded(faulty_target: str, tmp_path: Path) -> None:
    path = tmp_path / "tuned.json"
    seen: list[Progress] = []
    report = qc.tune(OPERATOR, faulty_target, records=path, time_limit=4, progress=seen.append)
    found = {record.knobs["fault"]: record for record in records.read(path)}
    assert set(found) == set(EXPECTED)
    for fault, (status, cause) in EXPECTED.items():
        assert found[fault].status == status, found[fault]
        assert cause in found[fault].cause
    (kernel,) = report.kernels
    assert kernel.statuses == Counter(status for status, _ in EXPECTED.values())
    assert kernel.best == kernel.default == found[faulty_rule.FINE]
    assert (kernel.trials_new, kernel.trials_resumed, kernel.space) == (8, 0, 8)
    assert kernel.stopped == "every candidate was tried"
    assert seen[0].step == "starting"
    assert seen[-1].step == "done"
    assert [progress.trials for progress in seen if progress.step == "searching"] == list(range(1, 9))
    assert seen[-1].statuses == kernel.statuses
    # once more: nothing is left to do, and nothing is repeated
    before = path.read_bytes()
    again = qc.tune(OPERATOR, faulty_target, records=path, time_limit=4).kernels[0]
    assert (again.trials_new, again.trials_resumed) == (0, 8)
    assert path.read_bytes() == before


def test_a_hopeless_search_ends_early(faulty_target: str, rule: FaultyRule, tmp_path: Path) -> None:
    rule.knobs = {**rule.knobs, "fault": (faulty_rule.BUILD_ERROR, 0, 7)}
    rule.values = {"fault": (faulty_rule.BUILD_ERROR,), "serial_operations": tuple(range(100))}
    path = tmp_path / "tuned.json"
    kernel = qc.tune(OPERATOR, faulty_target, records=path).kernels[0]
    assert kernel.best is None
    assert kernel.speed_up is None
    assert session.HOPELESS <= kernel.trials_new <= session.HOPELESS + 2 * (os.cpu_count() or 1)
    assert kernel.stopped == (
        f"all of the first {kernel.trials_new} candidates failed, {kernel.trials_new} of them with build error: "
        "ValueError: there is no such loop; to try them again, let `qcompile records prune` forget failures, or use "
        "another file"
    )
    again = qc.tune(OPERATOR, faulty_target, records=path).kernels[0]
    assert (again.trials_new, again.stopped) == (0, kernel.stopped)


def test_equal_code_is_measured_once(faulty_target: str, rule: FaultyRule, tmp_path: Path) -> None:
    """The operator is too small for threads, whose knob then changes nothing."""
    rule.values = {"serial_operations": tuple(range(10**6, 10**6 + 6))}
    path = tmp_path / "tuned.json"
    kernel = qc.tune(OPERATOR, faulty_target, records=path).kernels[0]
    assert kernel.statuses == {"ok": 7}
    found = records.read(path)
    assert len({record.code for record in found}) == 1
    assert len({record.seconds for record in found}) == 1
    assert kernel.best == kernel.default, "the default stands for all of its code"
    assert kernel.stopped == "every candidate was tried"


def test_the_best_are_compared(faulty_target: str, rule: FaultyRule, tmp_path: Path) -> None:
    rule.values = {"vectors_per_chunk": (1, 2), "serial_operations": (0, 10**9)}
    path = tmp_path / "tuned.json"
    operator = qc.Requantize(qc.Tensor((4096,), "int32"))
    kernel = qc.tune(operator, faulty_target, records=path).kernels[0]
    final = [record for record in records.read(path) if record.stage == "final"]
    assert len(final) == 3, "there are three kinds of code: chunks of one and of two vectors, and no threads"
    assert kernel.best in final
    assert kernel.default in final
    assert kernel.statuses == {"ok": 5}, "a comparison is no trial"
    assert kernel.speed_up is not None
    assert kernel.speed_up >= 1
    first = {record.point: record.seconds for record in records.read(path) if record.stage == "search"}
    ratios = sorted((record.seconds or 0) / (first[record.point] or 1) for record in final)
    assert kernel.drift == ratios[1]


def test_a_worker_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import sys; sys.exit('there is no TVM')"
    monkeypatch.setattr(laboratory, "COMMAND", (sys.executable, "-c", code))
    with pytest.raises(qc.TuningError, match=r"builder for requantize_s32_s8__400 does not start: .*there is no TVM"):
        qc.tune(OPERATOR, records=tmp_path / "tuned.json")


def worker(tmp_path: Path, code: str) -> Worker:
    made = Worker((sys.executable, "-c", code), tmp_path, "tester")
    made.start()
    return made


ECHO = """
import sys
for line in sys.stdin:
    print(line * 2, end="", flush=True)
"""


def test_questions_and_answers(tmp_path: Path) -> None:
    echo = worker(tmp_path, ECHO)
    echo.ask({"a": 1})
    echo.ask({"b": "\u00e4\n"})
    assert [echo.answer(10) for _ in range(4)] == [{"a": 1}, {"a": 1}, {"b": "\u00e4\n"}, {"b": "\u00e4\n"}]
    with pytest.raises(WorkerFailure, match=r"no answer within 0\.01 s"):
        echo.answer(0.01)
    assert not echo.is_running


def test_temporary_files_lie_in_the_folder(tmp_path: Path) -> None:
    """So that those of a worker that is killed go with it."""
    code = (
        "import json, sys, tempfile; sys.stdin.readline(); print(json.dumps({'at': tempfile.gettempdir()}), flush=True)"
    )
    made = worker(tmp_path, code)
    made.ask({})
    assert made.answer(30) == {"at": str(tmp_path)}
    made.stop()


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("import sys; sys.stdin.readline(); sys.exit('worse')", "the process ended with status 1: worse"),
        ("import sys; sys.stdin.readline()", "the process ended with status 0"),
        ("import os, sys; sys.stdin.readline(); os.abort()", "the process was ended by SIGABRT"),
        ("import os, sys; sys.stdin.readline(); os.kill(os.getpid(), 9)", "SIGKILL: perhaps too little memory"),
        ("import sys; sys.stdin.readline(); print('no json', flush=True)", "the answer is not a JSON object"),
        ("import sys; sys.stdin.readline(); print('[1]', flush=True)", "the answer is not a JSON object"),
        ("import sys; sys.stdin.readline()\nwhile True: print('x' * 10000, end='')", "the answer is too long"),
    ],
)
def test_how_workers_die(tmp_path: Path, code: str, cause: str) -> None:
    made = worker(tmp_path, code)
    made.ask({})
    with pytest.raises(WorkerFailure) as caught:
        made.answer(30)
    assert cause in caught.value.cause
    assert not made.is_running


def test_a_dead_worker_is_noticed_when_it_is_asked(tmp_path: Path) -> None:
    made = worker(tmp_path, "import sys; sys.exit(3)")
    assert made._process is not None
    made._process.wait(30)
    with pytest.raises(WorkerFailure, match="status 3"):
        made.ask({"text": "x" * 1000})


def test_what_a_worker_prints_is_no_answer(tmp_path: Path) -> None:
    """Standard output of compilers and kernels goes elsewhere."""
    made = Worker((*laboratory.COMMAND, "runner"), tmp_path, "runner")
    made.start()
    made.ask({"do": "open", "kernel": OPERATOR.name, "constants": [], "facts": {}, "seed": 0})
    assert made.answer(60) == {}
    made.ask({"do": "measure", "path": str(tmp_path / "none"), "threads": 1, "seconds": 0.01, "best": None})
    assert made.answer(60)["status"] == "run error"
    made.stop()


def test_candidates_stay_out_of_the_cache(
    faulty_target: str, rule: FaultyRule, tmp_path: Path, cache_folder: Path
) -> None:
    rule.values = {"vectors_per_chunk": (64, 128)}
    qc.compile(OPERATOR)  # what every library needs is there
    before = sorted(cache_folder.rglob("*"))
    qc.tune(OPERATOR, faulty_target, records=tmp_path / "tuned.json")
    assert sorted(cache_folder.rglob("*")) == before


def test_nothing_is_left_behind(
    faulty_target: str, rule: FaultyRule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    rule.values = {"vectors_per_chunk": (64,)}
    qc.tune(OPERATOR, faulty_target, records=tmp_path / "tuned.json")
    assert list(folder.iterdir()) == []


def test_an_interrupt_keeps_what_was_found(faulty_target: str, tmp_path: Path) -> None:
    path = tmp_path / "tuned.json"

    def interrupt(progress: Progress) -> None:
        if progress.trials == 1:
            raise KeyboardInterrupt

    report = qc.tune(
        [OPERATOR, qc.Requantize(qc.Tensor((41,), "int32"))], faulty_target, records=path, progress=interrupt
    )
    assert report.interrupted
    (kernel,) = report.kernels
    assert kernel.stopped == "it was interrupted"
    assert len(records.read(path)) == kernel.trials_new == 1


def test_outputs_of_the_last_candidate_do_not_pass_for_the_next_one(tmp_path: Path) -> None:
    """A kernel that writes nothing is wrong even where the right result stands in memory already."""
    from qcompile.tuning.runner import Runner

    class Idle:
        variant = SimpleNamespace(knobs={})

        def __init__(self, operator: qc.Requantize | qc.DequantizeLinear):
            self.operator = operator

        def __call__(self, **_: object) -> None:
            pass

    for operator in (OPERATOR, qc.DequantizeLinear(qc.Tensor((9,), "int8"))):
        runner = Runner()
        assert list(
            runner.answers({"do": "open", "kernel": operator.name, "constants": [], "facts": {}, "seed": 0})
        ) == [{}]
        detail = runner._check(Idle(operator), 1)  # type: ignore[arg-type]
        size = operator.outputs[0].shape[0]
        assert f"{size} of {size} elements" in detail
        assert detail.endswith("; along axis 0: every index")
        for draw in runner._draws:
            assert all(array.ctypes.data % 64 == 0 for array in (*draw.inputs.values(), *draw.outputs))
            assert np.dtype(draw.outputs[0].dtype) == operator.outputs[0].dtype
