"""`qcompile records`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qcompile import records
from qcompile.cli.records import command

from ..records.support import KERNEL, make, write_file
from .conftest import Cli, check_failure, check_width

FAST, SLOW = make(), make(seconds=3e-5, knobs={"tile": 7})
FAILED = make(status="build error", cause="it has [red] no loop", knobs={"tile": 8})
OTHER = make(target="x86_64-avx2", seconds=5e-6)
OUTDATED = make(rule_version=99, knobs={"tile": 1})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_file(tmp_path / "tuned.json", SLOW, FAILED, FAST, OTHER, OUTDATED)


@pytest.mark.parametrize("name", sorted(command.commands))
def test_help_of_each(cli: Cli, name: str) -> None:
    result = cli("records", name, "--help")
    assert result.exit_code == 0
    assert f"qcompile records {name} " in result.stdout
    assert "Examples:" in result.stdout
    check_width(result.stdout)


def test_show(cli: Cli, file: Path) -> None:
    result = cli("records", "show", file)
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert text.index("tile=2") < text.index("tile=7") < text.index("build error: it has [red] no loop")
    assert result.stdout.count(KERNEL) == 2, "a heading for each target"
    assert "x86_64, 1 thread, on" in text
    assert "GMAC/s" in text
    check_width(result.stdout)


def test_show_some(cli: Cli, file: Path) -> None:
    document = json.loads(cli("records", "show", file, "--target", "x86_64-avx2", "--json").stdout)
    assert [record["target"] for record in document["records"]] == ["x86_64-avx2"]
    document = json.loads(cli("records", "show", file, "--kernel", KERNEL, "--json").stdout)
    assert len(document["records"]) == 5
    assert document["records"][0]["constants"] == list(FAST.constants)
    assert cli("records", "show", file, "--kernel", "none").stdout == "no records\n"


def test_best(cli: Cli, file: Path) -> None:
    document = json.loads(cli("records", "best", file, "--json").stdout)
    assert [(record["target"], record["seconds"]) for record in document["records"]] == [
        ("x86_64", 1e-5),
        ("x86_64-avx2", 5e-6),
    ]
    text = cli("records", "best", file).stdout
    assert "10.0" in text
    assert "cpu_plain" in text
    check_width(text)


def test_merge(cli: Cli, file: Path, tmp_path: Path) -> None:
    second = write_file(tmp_path / "second.json", FAST, make(seconds=1.0, knobs={"tile": 5}))
    out = tmp_path / "all.json"
    document = json.loads(cli("records", "merge", file, second, "-o", out, "--json").stdout)
    assert document == {"output": str(out), "records": 6, "doubles": 1}
    assert len(records.read(out)) == 6
    result = cli("records", "merge", file, second, "-o", out)
    assert result.stdout == f"{out}: 6 records, 1 left out that were there twice\n"
    check_failure(cli("records", "merge", file, second, "-o", file), "an input of the same command")
    check_failure(cli("records", "merge", file, second, "-o", tmp_path / "none" / "x"), "no folder", "remedy")
    check_failure(cli("records", "merge", file), "--output")


def test_prune(cli: Cli, file: Path, tmp_path: Path) -> None:
    out = tmp_path / "pruned.json"
    before = file.read_bytes()
    document = json.loads(cli("records", "prune", file, "--keep", "1", "-o", out, "--json").stdout)
    assert document == {"output": str(out), "kept": 2, "dropped": 3}
    assert records.read(out) == [FAST, OTHER]
    assert file.read_bytes() == before
    assert cli("records", "prune", file).stdout == f"{file}: 3 records kept, 2 dropped\n"
    assert records.read(file) == [FAST, SLOW, OTHER]
    check_failure(cli("records", "prune", file, "-o", file), "an input of the same command")
    check_failure(cli("records", "prune", file, "--keep", "0"), "--keep")


def test_export(cli: Cli, file: Path, tmp_path: Path) -> None:
    document = json.loads(cli("records", "export", file, "-o", tmp_path, "--json").stdout)
    place = tmp_path / "x86_64" / "tuned" / "best.json"
    assert document["files"][0] == {"path": str(place), "target": "x86_64", "records": 1}
    assert records.read(place) == [FAST]
    result = cli("records", "export", file, "-o", tmp_path, "--name", "mine")
    assert f"{place.with_name('mine.json')}: 1 record\n" in result.stdout
    check_failure(cli("records", "export", file, "-o", tmp_path / "none"), "no folder", "remedy")
    check_failure(cli("records", "export", file, "-o", tmp_path, "--name", "a/b"), "unusable")


@pytest.mark.parametrize("words", [["show"], ["best"], ["merge", "-o", "x"], ["prune"], ["export", "-o", "."]])
def test_files_that_are_no_records(cli: Cli, tmp_path: Path, words: list[str]) -> None:
    check_failure(cli("records", *words, tmp_path / "none"), "No such file", "remedy")
    broken = write_file(tmp_path / "broken.json", FAST, "{}", FAST)
    check_failure(cli("records", *words, broken), "broken.json, line 2", "remedy")
    check_failure(cli("records", *words), "Missing argument")


def test_a_torn_line_is_a_warning(cli: Cli, file: Path) -> None:
    file.write_text(file.read_text() + '{"format":1')
    result = cli("records", "best", file)
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: the last line of ")


def test_unknown_words(cli: Cli) -> None:
    check_failure(cli("records", "eat"), "No such command")
    check_failure(cli("records", "show", "--frobnicate"), "No such option")
