"""Files of records: torn and broken lines, several writers, rewriting."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import qcompile as qc
from qcompile import records
from qcompile.errors import RecordsWarning
from qcompile.records import file

from .support import make, write_file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tuned.json"


def test_appended_records_are_read(path: Path) -> None:
    records.append(path, [make()])
    records.append(path, [make(knobs={"tile": 3}), make(knobs={"tile": 4})])
    assert [record.knobs["tile"] for record in records.read(path)] == [2, 3, 4]


def test_appending_nothing_makes_the_file(path: Path) -> None:
    records.append(path, [])
    assert records.read(path) == []


@pytest.mark.parametrize("cut", [1, 5, 60, 300])
def test_a_torn_last_line(path: Path, cut: int) -> None:
    line = make().to_line()
    path.write_text(f"{line}\n{line[:-cut]}")
    with pytest.warns(RecordsWarning, match="the last line of .*tuned.json is torn"):
        assert len(records.read(path)) == 1
    records.append(path, [make(knobs={"tile": 5})])
    assert [record.knobs["tile"] for record in records.read(path)] == [2, 5]


def test_a_torn_only_line(path: Path) -> None:
    path.write_text(make().to_line()[:40])
    records.append(path, [make()])
    assert records.read(path) == [make()]


def test_zeros_after_a_power_failure(path: Path) -> None:
    path.write_bytes(make().to_line().encode() + b"\n" + b"\0" * 100)
    records.append(path, [make(knobs={"tile": 5})])
    assert [record.knobs["tile"] for record in records.read(path)] == [2, 5]


def test_a_whole_last_line_without_its_end_is_kept(path: Path) -> None:
    path.write_text(make().to_line())
    assert records.read(path) == [make()]
    records.append(path, [make(knobs={"tile": 5})])
    assert [record.knobs["tile"] for record in records.read(path)] == [2, 5]


def test_nothing_is_added_to_another_file(path: Path) -> None:
    path.write_text("my only notes")
    with pytest.raises(qc.RecordsError, match="is not a file of records; nothing is added"):
        records.append(path, [make()])
    path.write_bytes(b"x" * 100_000)
    with pytest.raises(qc.RecordsError, match="its last line is too long"):
        records.append(path, [make()])
    assert path.read_bytes() == b"x" * 100_000


def test_a_broken_line_is_named(path: Path) -> None:
    write_file(path, make(), "{}", make())
    with pytest.raises(qc.RecordsError, match=r"tuned\.json, line 2: Unknown format of records") as caught:
        records.read(path)
    assert caught.value.remedy == "take the line away, or use another file"
    write_file(path, make(), "", make())
    with pytest.raises(qc.RecordsError, match="line 2"):
        records.read(path)


@pytest.mark.parametrize("limit", ["MAXIMUM_BYTES", "MAXIMUM_LINES", "MAXIMUM_LINE"])
def test_limits(path: Path, limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(path, make(), make(), make())
    monkeypatch.setattr(file, limit, 2)
    with pytest.raises(qc.RecordsError, match=r"more than|too long"):
        records.read(path)


def test_what_cannot_be_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, problem in (("none", "No such file"), (".", "it is a folder"), ("pipe", "not a regular file")):
        with pytest.raises(qc.RecordsError, match=problem):
            records.read(tmp_path / name)
        with pytest.raises(qc.RecordsError, match=problem):
            records.load(tmp_path / name)
    with pytest.raises(qc.RecordsError, match="null"):
        records.read("a\0b")


def test_what_cannot_be_written(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("missing/tuned.json", ".", "pipe"):
        with pytest.raises(qc.RecordsError, match="cannot be written"):
            records.append(tmp_path / name, [make()])


def test_a_changed_file_is_read_again(path: Path) -> None:
    records.append(path, [make()])
    first = records.load(path)
    assert records.load(path) is first
    records.append(path, [make(knobs={"tile": 5})])
    assert len(records.load(path).records) == 2


WRITER = """
import sys
from pathlib import Path
from qcompile import records
line = records.read(sys.argv[1])[0]
from dataclasses import replace
for number in range(int(sys.argv[3])):
    records.append(sys.argv[1], [replace(line, knobs={"writer": int(sys.argv[2]), "number": number})])
"""


def test_two_processes_append(path: Path) -> None:
    records.append(path, [make()])
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(number), "60"]) for number in range(2)]
    rewritten = 0
    while any(writer.poll() is None for writer in writers):
        records.rewrite(path, list)  # puts another file in place meanwhile
        rewritten += 1
        time.sleep(0.002)
    assert [writer.wait() for writer in writers] == [0, 0]
    found = [dict(record.knobs) for record in records.read(path)[1:]]
    for writer in range(2):
        assert [entry["number"] for entry in found if entry["writer"] == writer] == list(range(60))
    assert rewritten > 3


@pytest.mark.parametrize("seconds", [0.02, 0.05, 0.1])
def test_a_killed_writer_leaves_whole_records(path: Path, seconds: float) -> None:
    records.append(path, [make()])
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path), "0", "1000000"]) as writer:
        while len(path.read_bytes().splitlines()) < 3:
            time.sleep(0.005)
        time.sleep(seconds)
        before = path.read_bytes().rpartition(b"\n")[0]
        writer.send_signal(signal.SIGKILL)
    assert path.read_bytes().startswith(before)
    records.append(path, [make()])
    found = [record.knobs.get("number") for record in records.read(path)]
    assert found[1:-1] == list(range(len(found) - 2))


def test_readers_see_whole_lines(path: Path) -> None:
    """No torn line while another process appends; the warning would be an error here."""
    records.append(path, [make()])
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path), "0", "80"]) as writer:
        while writer.poll() is None:
            records.read(path)
            time.sleep(0.001)
    assert len(records.read(path)) == 81


def test_rewriting(path: Path) -> None:
    write_file(path, make(), make(knobs={"tile": 3}))
    records.rewrite(path, lambda found: found[1:])
    assert [record.knobs["tile"] for record in records.read(path)] == [3]
    with pytest.raises(qc.RecordsError, match="No such file"):
        records.rewrite(path.parent / "none", list)


def test_what_cannot_be_rewritten(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root every file can be opened; the error is made here."""
    write_file(path, make())

    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(qc.RecordsError, match=r"cannot be written: Permission denied\."):
        records.rewrite(path, list)
    with pytest.raises(qc.RecordsError, match=r"cannot be written: Permission denied\."):
        records.append(path, [make()])


def test_a_rewrite_that_fails_changes_nothing(path: Path) -> None:
    write_file(path, make(), "broken", make())
    before = path.read_bytes()
    with pytest.raises(qc.RecordsError, match="line 2"):
        records.rewrite(path, list)
    assert path.read_bytes() == before


def test_a_lock_is_waited_for(path: Path) -> None:
    """Appending stands back while the file is rewritten."""
    records.append(path, [make()])
    entered, leave = threading.Event(), threading.Event()

    def slow(found: object) -> list[records.Record]:
        entered.set()
        leave.wait(10)
        return [make(knobs={"tile": 7})]

    rewriting = threading.Thread(target=records.rewrite, args=(path, slow))
    rewriting.start()
    entered.wait(10)
    appending = threading.Thread(target=records.append, args=(path, [make(knobs={"tile": 8})]))
    appending.start()
    appending.join(0.1)
    assert appending.is_alive()
    leave.set()
    rewriting.join(10)
    appending.join(10)
    assert [record.knobs["tile"] for record in records.read(path)] == [7, 8]
