"""Records check themselves, and are read as untrusted data."""

from __future__ import annotations

import json
import warnings
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import qcompile as qc
from qcompile import records
from qcompile.backends.cpu import features as cpu_features
from qcompile.records import record

from .support import KERNEL, line_with, make


def test_a_line_is_read_back() -> None:
    for original in (make(), make(status="time-out", cause="no answer within 5 s"), make(stage="final", knobs={})):
        assert record.parse(original.to_line()) == original
        assert "\n" not in original.to_line()


def test_key_and_point() -> None:
    assert make().key == (KERNEL, make().constants, "x86_64")
    assert make(knobs={"b": 1, "a": 2}).point == ("cpu_plain", make().rule_version, (("a", 2), ("b", 1)))
    assert make(knobs={"b": 1, "a": 2}) == make(knobs={"a": 2, "b": 1})
    with pytest.raises(FrozenInstanceError):
        make().seconds = 3  # type: ignore[misc]


def test_now_is_a_date() -> None:
    assert make(date=record.now()).date.endswith("Z")


def test_the_cpu_has_a_name() -> None:
    assert 0 < len(cpu_features.model()) <= 200
    assert cpu_features.model() == " ".join(cpu_features.model().split())


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"kernel": "qconv_nonsense"}, "kernel is invalid"),
    ({"kernel": 3}, "kernel is invalid"),
    ({"kernel": "x" * 5000}, "kernel is invalid"),
    ({"constants": "filter"}, "constants is invalid"),
    ({"constants": ["filter", "bias"]}, "constants is invalid"),
    ({"constants": ["bias", "bias"]}, "constants is invalid"),
    ({"constants": ["pool"]}, "constants is invalid"),
    ({"constants": [1]}, "constants is invalid"),
    ({"target": "../../etc"}, "target is invalid"),
    ({"target": ""}, "target is invalid"),
    ({"rule": "os.path"}, "rule is invalid"),
    ({"rule": "r\u00e4gel"}, "rule is invalid"),
    ({"rule_version": -1}, "rule_version is invalid"),
    ({"rule_version": True}, "rule_version is invalid"),
    ({"rule_version": 1.0}, "rule_version is invalid"),
    ({"knobs": [1]}, "knobs is invalid"),
    ({"knobs": {"tile": "2"}}, "knobs.tile is invalid"),
    ({"knobs": {"tile": 2**70}}, "knobs.tile is invalid"),
    ({"knobs": {"a b": 2}}, "knobs is invalid"),
    ({"knobs": {f"k{number}": 1 for number in range(100)}}, "knobs is invalid"),
    ({"status": "fine"}, "status is invalid"),
    ({"stage": "semi"}, "stage is invalid"),
    ({"threads": 0}, "threads is invalid"),
    ({"threads": 257}, "threads is invalid"),
    ({"seconds": None}, "seconds is invalid"),
    ({"seconds": -1.0}, "seconds is invalid"),
    ({"seconds": "1"}, "seconds is invalid"),
    ({"seconds": 0}, "calls is invalid"),
    ({"seconds": True}, "seconds is invalid"),
    ({"spread": None}, "spread is invalid"),
    ({"calls": 0}, "calls is invalid"),
    ({"status": "run error"}, "seconds is invalid"),
    ({"status": "run error", "seconds": None, "spread": None}, "calls is invalid"),
    ({"status": "run error", "seconds": None, "spread": None, "calls": 0}, "cause is invalid"),
    ({"cause": "for fun"}, "cause is invalid"),
    ({"cause": "x" * 2000}, "cause is invalid"),
    ({"code": "XYZ"}, "code is invalid"),
    ({"versions": {"a": 1}}, "versions is invalid"),
    ({"versions": []}, "versions is invalid"),
    ({"date": "yesterday"}, "date is invalid"),
    ({"date": "2026-02-30T00:00:00Z"}, "date is invalid"),
    ({"date": "2026-1-3T00:00:00Z"}, "date is invalid"),
    ({"cpu": None}, "cpu is invalid"),
    ({"format": 2}, "Unknown format of records"),
    ({"format": "1"}, "Unknown format of records"),
    ({"format": True}, "Unknown format of records"),
    ({"extra": 1}, "A field is unknown"),
]


@pytest.mark.parametrize(("fields", "problem"), WRONG)
def test_wrong_fields(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(qc.RecordsError) as caught:
        record.parse(line_with(**fields))
    assert caught.value.problem.startswith(problem)


def test_a_newer_format_says_what_to_do() -> None:
    with pytest.raises(qc.RecordsError, match="install the version of qcompile that wrote it"):
        record.parse(line_with(format=2))
    with pytest.raises(qc.RecordsError, match="Unknown") as caught:
        record.parse(line_with(format=0))
    assert caught.value.remedy is None


@pytest.mark.parametrize("name", sorted(json.loads(make().to_line())))
def test_missing_fields(name: str) -> None:
    values = json.loads(make().to_line())
    del values[name]
    with pytest.raises(qc.RecordsError):
        record.parse(json.dumps(values))


@pytest.mark.parametrize(
    "line",
    ["", "null", "[]", "3", "{", "[" * 30000, '{"a":' * 20000, "1" * 6000, "NaN", line_with().replace("1e-05", "NaN"),
     line_with().replace("1e-05", "1e999"), line_with()[:-1] + ',"format":1}', "\x00" * 50],
)  # fmt: skip
def test_lines_that_are_no_records(line: str) -> None:
    with pytest.raises(qc.RecordsError):
        record.parse(line)


@settings(deadline=None)
@given(st.binary(max_size=300))
@example(b"")
@example(b"\n")
@example(b"\xff\n")
@example(make().to_line().encode())
def test_any_bytes(content: bytes) -> None:
    """Nothing but records, or one kind of error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = records.parse_lines(content, "fuzz")
        except qc.RecordsError:
            return
    assert all(isinstance(entry, records.Record) for entry in found)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.sampled_from(sorted(json.loads(make().to_line()))), JSON)
def test_any_value_of_a_field(name: str, value: Any) -> None:
    try:
        parsed = record.parse(line_with(**{name: value}))
    except qc.RecordsError:
        return
    assert record.parse(parsed.to_line()) == parsed


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_damage(data: st.DataObject) -> None:
    """A record with a few characters changed is an error or another good record, which is written as it was read."""
    characters = list(make().to_line())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(characters) - 1))
        characters[place] = data.draw(st.sampled_from('0123456789abcdefnqx_{}[]",:.-eE\\ '))
    try:
        parsed = record.parse("".join(characters))
    except qc.RecordsError:
        return
    assert record.parse(parsed.to_line()) == parsed
