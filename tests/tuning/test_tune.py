"""tune(): what it accepts, its budget, its records, and that it survives being killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qcompile as qc
from qcompile import records
from qcompile.backends import targets
from qcompile.backends.cpu import features as cpu_features
from qcompile.pipeline import compile as pipeline
from qcompile.planning import find
from qcompile.tuning import laboratory

from ..records.support import make
from ..support import constant_names, small_constants, small_convolution, small_input

PRODUCT = qc.MatrixMultiplyInteger(qc.Tensor((8, 16), "uint8"), qc.Tensor((16, 32), "int8"))


@pytest.fixture(autouse=True)
def short_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laboratory, "_SECONDS", 0.01)
    monkeypatch.setattr(laboratory, "_FINAL_SECONDS", 0.02)


def test_tuned_records_are_followed(tmp_path: Path) -> None:
    path = tmp_path / "tuned.json"
    operator = small_convolution()
    report = qc.tune(operator, "x86_64", small_constants(), records=path, trials=5)
    (kernel,) = report.kernels
    assert (report.target, report.records, report.interrupted) == ("x86_64", str(path), False)
    assert (kernel.name, kernel.kernel, kernel.unit) == (operator.name, operator.name, "MAC")
    assert kernel.constants == tuple(sorted(constant_names(operator)))
    assert kernel.statuses == {"ok": 5}
    assert kernel.stopped == "the budget is spent"
    assert kernel.best is not None
    compiled = qc.compile(operator, "x86_64", small_constants(), records=path)
    assert compiled.variant.knobs_source == "records"
    assert (compiled.variant.rule, compiled.variant.knobs) == (kernel.best.rule, kernel.best.knobs)
    x = small_input()
    assert np.array_equal(compiled(input=x), qc.reference(operator, input=x, **small_constants()))
    for record in records.read(path):
        assert record.cpu == cpu_features.model()
        assert set(record.versions) == {"qcompile", "apache-tvm"}
        assert record.threads == 1
    json.dumps(report.to_dictionary())


def test_it_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "tuned.json"
    budgets = [(2, 2, 0), (4, 2, 2), (4, 0, 4), (3, 0, 4)]
    for trials, new, resumed in budgets:
        (kernel,) = qc.tune(PRODUCT, "x86_64", "parameters", records=path, trials=trials).kernels
        assert (kernel.trials_new, kernel.trials_resumed) == (new, resumed)
        assert kernel.stopped == "the budget is spent"
    searched = [record for record in records.read(path) if record.stage == "search"]
    assert len({record.point for record in searched}) == len(searched) == 4
    # another number of threads, another CPU and other constants are other comparisons
    (kernel,) = qc.tune(PRODUCT, "x86_64", "parameters", records=path, trials=1, threads=2).kernels
    assert (kernel.trials_new, kernel.trials_resumed, kernel.threads) == (1, 0, 2)
    (kernel,) = qc.tune(PRODUCT, "x86_64", records=path, trials=1).kernels
    assert (kernel.trials_new, kernel.trials_resumed, kernel.constants) == (1, 0, ())


def test_records_of_old_rules_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "tuned.json"
    old = make(kernel=PRODUCT.name, constants=(), rule="cpu_widen16", rule_version=99, seconds=1e-12, knobs={})
    records.append(path, [old])
    (kernel,) = qc.tune(PRODUCT, "x86_64", records=path, trials=1).kernels
    assert (kernel.trials_new, kernel.trials_resumed) == (1, 0)
    assert kernel.best is not None
    assert kernel.best.seconds != old.seconds


def test_knobs_that_came_later_have_their_default(tmp_path: Path) -> None:
    path = tmp_path / "tuned.json"
    target = targets.load("x86_64")
    default = find(PRODUCT, target)
    part = {knob: value for knob, value in default.knobs.items() if knob != "serial_operations"}
    old = make(kernel=PRODUCT.name, constants=(), rule=default.rule, rule_version=default.version, knobs=part)
    records.append(path, [old])
    (kernel,) = qc.tune(PRODUCT, "x86_64", records=path, trials=1).kernels
    assert (kernel.trials_new, kernel.trials_resumed) == (0, 1), "it is the default, which is not tried again"
    assert kernel.default is not None
    assert kernel.default.knobs == default.knobs


def test_equal_kernels_are_tuned_once(tmp_path: Path) -> None:
    operators = {"first": PRODUCT, "same": PRODUCT, "fixed": PRODUCT}
    constants = {"fixed": {"b": np.zeros((16, 32), np.int8)}}
    report = qc.tune(operators, "x86_64", constants, records=tmp_path / "tuned.json", trials=1)
    assert [(kernel.name, kernel.constants) for kernel in report.kernels] == [("first", ()), ("fixed", ("b",))]


def test_a_limit_of_time(tmp_path: Path) -> None:
    start = time.monotonic()
    operators = {"first": PRODUCT, "second": small_convolution()}
    report = qc.tune(operators, "x86_64", records=tmp_path / "tuned.json", trials=10_000, seconds=4)
    assert time.monotonic() - start < 20
    assert [kernel.stopped for kernel in report.kernels] == ["the time is over"] * 2
    assert all(kernel.trials_new < 1000 for kernel in report.kernels)


def test_files_of_operators_and_models(tmp_path: Path) -> None:
    path = tmp_path / "ops.toml"
    path.write_text(
        '[[kernel]]\nname = "product"\noperator = "MatrixMultiplyInteger"\na = {shape = [8, 16], dtype = "uint8"}\n'
        'b = {shape = [16, 32], dtype = "int8"}\n[kernel.values]\nb_zero_point = 3\n'
    )
    tuned = tmp_path / "tuned.json"
    (kernel,) = qc.tune(path, "x86_64", records=tuned, trials=1).kernels
    assert (kernel.name, kernel.constants) == ("product", ("b_zero_point",))
    (kernel,) = qc.tune(path, "x86_64", "parameters", records=tuned, trials=1).kernels
    assert kernel.constants == ("a_zero_point", "b", "b_zero_point")
    assert qc.compile(path, "x86_64", records=tuned)["product"].variant.knobs_source == "records"


def test_wrong_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tuned.json"

    def fails(error: type[Exception], words: str, *arguments: Any, **named: Any) -> None:
        with pytest.raises(error, match=words):
            qc.tune(*arguments, **{"records": path, **named})
        assert not path.exists()

    fails(qc.InvalidTensorError, "Invalid value for constants=", PRODUCT, "x86_64", "everything")
    fails(qc.InvalidTensorError, "do not fit", PRODUCT, "x86_64", {"c": 1})
    fails(
        qc.InvalidTensorError,
        "do not fit",
        PRODUCT,
        "x86_64",
        dict.fromkeys(["a", "b", "a_zero_point", "b_zero_point"]),
    )
    fails(qc.InvalidTensorError, "input_shapes", PRODUCT, input_shapes={"x": (1,)})
    fails(qc.InvalidTensorError, "a model brings its own", "model.onnx", constants={"b": 1})
    fails(qc.InvalidOperatorError, "nothing to compile", [])
    fails(qc.InvalidTensorError, "one target", PRODUCT, ["x86_64", "x86_64-avx2"])
    fails(qc.UnknownNameError, "Unknown target", PRODUCT, "pdp11")
    numbers: list[tuple[str, Any]] = [("trials", 0), ("trials", 1.5), ("threads", 300), ("threads", True), ("seed", -1)]
    numbers += [("seconds", 0), ("seconds", "3"), ("time_limit", -1), ("time_limit", None)]
    for name, value in numbers:
        fails(qc.InvalidTensorError, f"{name}=", PRODUCT, **{name: value})
    fails(qc.RecordsError, "cannot be written", PRODUCT, records=tmp_path / "none" / "tuned.json")
    fails(qc.RecordsError, "Invalid value for records=", PRODUCT, records=3)
    monkeypatch.setattr(cpu_features, "features", lambda: frozenset({"sse2"}))
    fails(qc.IncompatibleMachineError, "do not run on this machine", PRODUCT, "x86_64-avx2")


def test_broken_records_are_not_tuned_over(tmp_path: Path) -> None:
    path = tmp_path / "tuned.json"
    path.write_text("{}\n")
    with pytest.raises(qc.RecordsError, match="line 1"):
        qc.tune(PRODUCT, records=path)
    assert path.read_text() == "{}\n"


def test_a_candidate_is_compiled_as_it_will_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code that is measured is the code that compile makes."""
    from qcompile.frontends.requests import Request
    from qcompile.spec.values import canonical_values

    operator = small_convolution()
    target = targets.load("x86_64")
    values = canonical_values(operator, small_constants())
    plan = find(operator, target, values.keys())
    bundle, code = pipeline.compile_candidate(Request("kernel", operator, values), plan)
    assert len(code) == 64
    candidate = next(iter(bundle))
    compiled = qc.compile(operator, "x86_64", small_constants())
    assert (candidate.variant.rule, candidate.variant.knobs) == (compiled.variant.rule, compiled.variant.knobs)
    assert candidate.workspace_bytes == compiled.workspace_bytes
    assert np.array_equal(candidate(input=small_input()), compiled(input=small_input()))


COMMAND = [sys.executable, "-m", "qcompile", "tune", PRODUCT.name, "--target", "x86_64", "--trials", "14"]


def start(path: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*COMMAND, "--records", str(path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(path.parent)},  # what is left of a killed process goes with the test
    )


def children(process: int) -> set[int]:
    text = Path(f"/proc/{process}/task/{process}/children").read_text()
    return set(map(int, text.split()))


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_killed_at_any_moment(tmp_path: Path) -> None:
    """No record is lost, none is doubled, and no worker is left."""
    path = tmp_path / "tuned.json"
    generator = random.Random(0)
    for count in (1, 6):
        with start(path) as running:
            end = time.monotonic() + 60
            while not path.exists() or path.read_bytes().count(b"\n") < count:
                assert time.monotonic() < end
                time.sleep(0.01)
            time.sleep(generator.uniform(0, 0.2))
            workers = children(running.pid)
            before = path.read_bytes().rpartition(b"\n")[0]
            running.send_signal(signal.SIGKILL)
        assert workers
        assert path.read_bytes().startswith(before)
        end = time.monotonic() + 10
        while any(map(is_running, workers)):
            assert time.monotonic() < end, "a worker outlives its parent"
            time.sleep(0.02)
    with start(path) as running:
        assert running.wait(120) == 0
    found = records.read(path)
    searched = [record for record in found if record.stage == "search"]
    assert len(searched) == 14
    assert len({record.point for record in searched}) == 14
    assert [record.stage for record in found[14:]] == ["final"] * (len(found) - 14)


def test_workers_find_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where only this program was told where it is."""
    root = Path(qc.__file__).resolve().parent.parent
    program = (
        f"import sys; sys.path.insert(0, {str(root)!r})\n"
        "import qcompile as qc\n"
        "operator = qc.Requantize(qc.Tensor((5,), 'int32'))\n"
        "report = qc.tune(operator, 'x86_64', records='tuned.json', trials=1)\n"
        "assert report.kernels[0].statuses == {'ok': 1}, report\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
