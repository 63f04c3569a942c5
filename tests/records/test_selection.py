"""Which records count, which are the best, and what is exported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import qcompile as qc
from qcompile import records
from qcompile.pipeline.codes import source_digest
from qcompile.planning import choose as choice
from qcompile.planning import find, is_current
from qcompile.system import resources

from .support import make


def times(found: list[records.Record]) -> list[float | None]:
    return [record.seconds for record in found]


def test_the_latest_of_a_point_counts() -> None:
    old, new = make(seconds=1.0), make(seconds=2.0, date="2026-02-01T00:00:00Z")
    assert records.latest([old, new]) == records.latest([new, old]) == [new]
    same_date = make(seconds=3.0, date=new.date)
    assert records.latest([new, same_date]) == [same_date], "of one second, the later in the file"
    other = [make(threads=2), make(cpu="another"), make(knobs={"tile": 5}), make(target="x86_64-avx2")]
    assert len(records.latest([old, *other])) == 5


def test_a_later_failure_takes_the_place_of_a_time() -> None:
    wrong = make(status="wrong result", date="2026-02-01T00:00:00Z")
    assert records.ranked([make(), wrong]) == []


def test_those_that_were_compared_come_first() -> None:
    lucky = make(seconds=1.0)
    compared = [
        make(seconds=3.0, stage="final", knobs={"tile": 3}),
        make(seconds=2.0, stage="final", knobs={"tile": 4}),
    ]
    assert times(records.ranked([lucky, *compared])) == [2.0, 3.0, 1.0]


def test_best_of_each() -> None:
    many = [make(seconds=3.0, knobs={"tile": 3}), make(seconds=2.0, knobs={"tile": 4}), make(threads=2, seconds=9.0)]
    assert times(records.best_of_each(many)) == [2.0, 9.0]
    assert times(records.best_of_each(many, 5)) == [2.0, 3.0, 9.0]


def test_merged_files_have_no_doubles() -> None:
    first, second = make(seconds=1.0), make(seconds=2.0)
    assert records.merged([[first, second], [second, first], [make(seconds=3.0)]]) == [first, second, make(seconds=3.0)]


def test_pruning() -> None:
    outdated = make(rule_version=99, seconds=0.1)
    unknown = make(rule="cpu_gone", seconds=0.1)
    knobless = make(knobs={"gone": 1}, seconds=0.1)
    good = [make(seconds=1.0 + number, knobs={"tile": 1 + number}) for number in range(4)]
    kept = records.pruned([outdated, unknown, knobless, *good, make(status="run error", knobs={})], 2, is_current)
    assert times(kept) == [1.0, 2.0]


def test_export(tmp_path: Path) -> None:
    found = [
        make(),
        make(seconds=2e-5, knobs={"tile": 5}),
        make(target="x86_64-avx2"),
        make(target="gone", rule_version=9),
    ]
    written = records.export(found, tmp_path, is_current)
    assert {str(path.relative_to(tmp_path)) for path in written} == {
        "x86_64/tuned/best.json",
        "x86_64-avx2/tuned/best.json",
    }
    assert records.read(tmp_path / "x86_64" / "tuned" / "best.json") == [make()]


def test_an_export_is_what_the_package_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records.export([make()], tmp_path, is_current)
    monkeypatch.setattr(resources, "_SCHEDULES", tmp_path)
    choice.tuned.cache_clear()
    try:
        (tuned,) = choice.tuned("x86_64")
        assert (tuned.origin, tuned.source) == ("schedules/x86_64/tuned/best.json", "tuned")
        assert tuned.records == (make(),)
        assert choice.tuned("x86_64-avx2") == ()
    finally:
        choice.tuned.cache_clear()


def test_an_export_that_is_not_possible(tmp_path: Path) -> None:
    with pytest.raises(qc.RecordsError, match="no record to export"):
        records.export([make(status="run error")], tmp_path, is_current)
    with pytest.raises(qc.RecordsError, match="no folder"):
        records.export([make()], tmp_path / "none", is_current)
    with pytest.raises(qc.RecordsError, match="unusable"):
        records.export([make()], tmp_path, is_current, "../x")
    (tmp_path / "x86_64").write_text("a file")
    with pytest.raises(qc.RecordsError, match="cannot be made"):
        records.export([make()], tmp_path, is_current)


def test_the_records_of_the_package_are_good() -> None:
    """Every tuned record is one that would be followed."""
    from qcompile.backends import targets
    from qcompile.spec import naming

    for target in targets.load_all():
        for file in choice.tuned_records(target):
            for record in file.records:
                assert record.target == target.name
                found = find(naming.parse(record.kernel), target, record.constants)
                assert (found.source, found.records_refused) == ("tuned", ()), record


def test_the_digest_of_sources_leaves_out_records_and_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new tuned record, or a word in --help, does not make the cache of compiled kernels useless."""
    read: list[Path] = []
    content = Path.read_bytes

    def noted(path: Path) -> bytes:
        read.append(path)
        return content(path)

    monkeypatch.setattr(Path, "read_bytes", noted)
    resources.source_digest.cache_clear()
    source_digest("cpu")
    parts = {part for path in read for part in path.parts}
    assert {"schedules", "compute", "spec", "intrinsics"} <= parts
    assert not {"cli", "tuning", "frontends", "tuned", "records"} & parts
    assert all(path.suffix == ".py" for path in read)


def test_json_of_a_record_is_one_object() -> None:
    assert json.loads(make().to_line())["format"] == 1
