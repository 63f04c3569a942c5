"""How records decide the schedule, and what is said about it."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

import qcompile as qc
from qcompile import records
from qcompile.backends import targets
from qcompile.planning import Plan, is_current
from qcompile.planning import choose as choice
from qcompile.planning import find as planned
from qcompile.records import RecordFile
from qcompile.schedules import cpu_plain
from qcompile.system import resources

from ..records.support import make, write_file
from ..support import constant_names, small_constants, small_convolution, small_input

OPERATOR = small_convolution()
X86 = targets.load("x86_64")
VERSION = cpu_plain.version
DEFAULT = planned(OPERATOR, X86)


def chosen(*files: list[records.Record], constants: set[str] | None = None) -> Plan:
    indexed = [RecordFile(f"file{number}", "records", tuple(own)) for number, own in enumerate(files)]
    known = constant_names(OPERATOR) if constants is None else constants
    return planned(OPERATOR, X86, known, indexed)


def test_a_record_is_followed() -> None:
    found = chosen([make()])
    assert (found.rule, found.version, found.source, found.record_file) == ("cpu_plain", VERSION, "records", "file0")
    assert found.knobs == {**{knob: default for knob, (default, _, _) in cpu_plain.knobs.items()}, "tile": 2}
    assert found.record == make()
    assert found.records_refused == ()


def test_without_records_the_defaults_are_taken() -> None:
    found = chosen()
    assert (found.rule, found.source, found.record) == (DEFAULT.rule, DEFAULT.source, None)
    assert found.records_refused == ()
    found = chosen([])
    assert found.source == DEFAULT.source
    assert found.records_refused == ("file0: no record of this kernel for x86_64",)


@pytest.mark.parametrize(
    "better",
    [
        (make(seconds=1e-6), make(seconds=1e-5, knobs={"tile": 5})),
        (make(seconds=1e-4), make(seconds=1e-6, cpu="another", knobs={"tile": 5})),
        (make(seconds=1e-4, threads=4), make(seconds=1e-6, knobs={"tile": 5})),
        (make(seconds=1e-4, stage="final"), make(seconds=1e-6, knobs={"tile": 5})),
        (make(seconds=1e-4), make(seconds=1e-6, cpu="another", threads=8, knobs={"tile": 5})),
    ],
)
def test_which_of_two_records_decides(better: tuple[records.Record, records.Record]) -> None:
    assert chosen(list(better)).record == better[0]
    assert chosen(list(better)[::-1]).record == better[0]


def test_earlier_files_decide_first() -> None:
    slow, fast = make(seconds=1.0), make(seconds=1e-9, knobs={"tile": 5})
    assert chosen([slow], [fast]).record == slow
    assert chosen([], [fast]).record == fast


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (make(rule_version=99), f"it is of cpu_plain version 99, the present one is {VERSION}"),
        (make(rule="cpu_gone"), "there is no rule cpu_gone"),
        (make(knobs={"tyle": 1}), "cpu_plain has no such knob (tyle)"),
        (make(knobs={"tile": 99}), "cpu_plain.tile is out of range (99)"),
    ],
)
def test_records_that_are_refused(record: records.Record, reason: str) -> None:
    found = chosen([record])
    assert found.source == DEFAULT.source
    (said,) = found.records_refused
    assert said == f"file0, record of {record.date}: {reason}"
    good = make(seconds=1.0, knobs={"tile": 5})
    assert chosen([record, good]).record == good
    assert chosen([record, good]).records_refused == found.records_refused


def test_a_rule_that_does_not_apply() -> None:
    requantize = qc.Requantize(qc.Tensor((5,), "int32"))
    wrong = make(kernel=requantize.name, constants=(), rule="cpu_widen16", knobs={})
    found = planned(requantize, X86, (), [RecordFile("mine", "records", (wrong,))])
    assert found.rule == "cpu_plain"
    assert found.records_refused == (f"mine, record of {wrong.date}: its rule cpu_widen16 does not apply",)


def test_constants_have_to_be_the_same() -> None:
    found = chosen([make()], constants={"filter"})
    assert found.source == DEFAULT.source
    assert "have other constants (bias, filter, filter_scale" in found.records_refused[0]


def test_failures_are_no_choice() -> None:
    found = chosen([make(status="time-out")])
    assert found.source == DEFAULT.source
    assert found.records_refused == ("file0: all records of this kernel are of failures",)


def test_many_reasons_are_cut_short() -> None:
    found = chosen([make(rule_version=100 + number) for number in range(9)])
    assert len(found.records_refused) == 5
    assert found.records_refused[-1] == "and 5 more"


def test_preferred_rules_that_do_not_apply_stay_named() -> None:
    requantize = qc.Requantize(qc.Tensor((5,), "int32"))
    record = make(kernel=requantize.name, constants=(), knobs={"vectors_per_chunk": 64})
    found = planned(requantize, X86, (), [RecordFile("mine", "records", (record,))])
    assert found.record == record
    assert [rule for rule, _ in found.refused] == list(X86.rules[: X86.rules.index("cpu_plain")])


def test_records_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records.export([make()], tmp_path, is_current)
    monkeypatch.setattr(resources, "_SCHEDULES", tmp_path)
    choice.tuned.cache_clear()
    try:
        assert chosen().source == "tuned"
        assert chosen().record_file == "schedules/x86_64/tuned/best.json"
        mine = make(seconds=1.0, knobs={"tile": 7})
        assert chosen([mine]).record == mine, "the user's records come first"
        (tmp_path / "x86_64" / "tuned" / "best.json").write_text("{}\n")
        choice.tuned.cache_clear()
        with pytest.raises(qc.RecordsError, match=r"schedules/x86_64/tuned/best\.json, line 1"):
            chosen()
    finally:
        choice.tuned.cache_clear()


def test_thousands_of_records_are_searched_fast() -> None:
    many = [
        make(knobs={"tile": 1 + number % 8, "accumulators": 1 + number // 8 % 16}, cpu=f"cpu {number // 128}")
        for number in range(5000)
    ]
    file = RecordFile("many", "records", tuple(many))
    start = time.perf_counter()
    for _ in range(100):
        planned(OPERATOR, X86, constant_names(OPERATOR), [file])
    assert time.perf_counter() - start < 1


def test_compile_follows_records(tmp_path: Path) -> None:
    path = write_file(tmp_path / "tuned.json", make(knobs={"tile": 3}))
    kernel = qc.compile(OPERATOR, "x86_64", small_constants(), records=path)
    assert (kernel.variant.rule, kernel.variant.knobs["tile"]) == ("cpu_plain", 3)
    assert kernel.variant.knobs_source == "records"
    x = small_input()
    assert np.array_equal(kernel(input=x), qc.reference(OPERATOR, input=x, **small_constants()))
    default = qc.compile(OPERATOR, "x86_64", small_constants())
    assert (default.variant.rule, default.variant.knobs_source) == (DEFAULT.rule, DEFAULT.source)
    others = qc.compile(OPERATOR, "x86_64", {"filter_scale": 1.0}, records=[path])
    assert others.variant.rule == DEFAULT.rule


def test_the_place_of_a_file_is_no_part_of_a_bundle(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    paths = [write_file(tmp_path / name, make()) for name in ("a.json", "deep/b.json")]
    contents = [
        qc.compile({"conv": OPERATOR}, "x86_64", {"conv": small_constants()}, records=path).to_bytes() for path in paths
    ]
    assert contents[0] == contents[1]
    assert str(tmp_path).encode() not in contents[0]


def test_records_that_compile_cannot_use(tmp_path: Path) -> None:
    with pytest.raises(qc.RecordsError, match="No such file"):
        qc.compile(OPERATOR, "x86_64", records=tmp_path / "none")
    with pytest.raises(qc.RecordsError, match="Invalid value for records="):
        qc.compile(OPERATOR, "x86_64", records=3)  # type: ignore[call-overload]
