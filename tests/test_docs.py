"""The pages say what is true: examples run, tables equal the code, and what they point to exists."""

from __future__ import annotations

import dataclasses
import doctest
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import click
import pytest

import qcompile as qc
from qcompile.backends.cpu.emulation.bochs.models import MODELS
from qcompile.bundle import container, manifest
from qcompile.cli.application import COMMANDS, application
from qcompile.frontends.onnx.qdq import _MAIN
from qcompile.frontends.onnx.qoperator import QUANTIZED_OPERATORS
from qcompile.records import STATUSES, Record, file
from qcompile.runtime.loader import load_bundle
from qcompile.spec import tensor
from qcompile.tuning import laboratory, search, session, space

from .test_architecture import ALLOWED
from .test_readme import ROOT, Desk, blocks

DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.glob("*.md"))]
FOLDERS = ("qcompile", "schedules", "targets", "tests", "docs", "examples", "benchmarks")


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def prose(text: str) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def section(text: str, heading: str) -> str:
    """The part of a page under a heading, up to the next one of the same or a higher level."""
    level = heading.split()[0]
    body = text.split(f"\n{heading}\n", 1)[1]
    return re.split(rf"^#{{1,{len(level)}}} ", body, maxsplit=1, flags=re.MULTILINE)[0]


def tables(text: str) -> list[list[list[str]]]:
    """The tables of a text: rows of cells, the headings first."""
    found = []
    for match in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in match.splitlines()]
        found.append([rows[0], *rows[2:]])
    return found


def table(text: str, first_heading: str) -> list[list[str]]:
    """The rows of the only table whose first column has that heading."""
    (rows,) = [rows[1:] for rows in tables(text) if rows[0][0] == first_heading]
    return rows


def code(cell: str) -> list[str]:
    """The code spans of a cell."""
    return re.findall(r"`([^`]+)`", cell)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def run_page(desk: Desk, name: str) -> str:
    """Runs the blocks of a page and returns its text."""
    text = read(DOCS / name)
    for block in blocks(text):
        desk.run(block)
    return text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"`[^`\n]+`", "", prose(read(page)))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"https?://", target):
            assert (page.parent / target.split("#")[0]).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_exist(page: Path) -> None:
    for span in re.findall(r"`([^`\n]+)`", prose(read(page))):
        for word in span.split():
            if word.split("/")[0] in FOLDERS and "/" in word:
                assert (ROOT / word).exists(), word


def test_the_readme_lists_all_pages() -> None:
    text = read(ROOT / "README.md")
    for page in PAGES:
        if page.name != "README.md":
            assert f"]({page.relative_to(ROOT)})" in text


@pytest.mark.filterwarnings("ignore::qcompile.errors.AccumulatorOverflowWarning")
@pytest.mark.parametrize("computed_by", ["reference", "kernels"])
def test_the_arithmetic(computed_by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every example of the page; once more with kernels of this machine in place of the reference."""

    def kernel(operator: Any, **tensors: Any) -> Any:
        return qc.compile(operator)(**tensors)

    if computed_by == "kernels":
        monkeypatch.setattr(qc, "reference", kernel)
    failed, attempted = doctest.testfile(
        str(DOCS / "numerics.md"), module_relative=False, optionflags=doctest.IGNORE_EXCEPTION_DETAIL, encoding="utf-8"
    )
    assert failed == 0
    assert attempted > 50


def test_the_bundle_and_the_c_program(desk: Desk) -> None:
    text = run_page(desk, "bundle.md")
    (expected,) = [block.text for block in blocks(text) if block.language == "text"]
    command, printed = desk.outputs[-1]
    assert command == "./main"
    assert printed == expected
    result = load_bundle(desk.folder / "dense.qcb")["dense"](a=[[1, 2, 3, 200]], a_zero_point=1)
    assert " ".join(map(str, result.ravel())) == printed.splitlines()[-1]


def test_the_manifest_has_the_fields_of_the_page() -> None:
    text = read(DOCS / "bundle.md")
    bundle = qc.compile(
        {"quantize": qc.QuantizeLinear(qc.Tensor((4,), "float32"))}, "x86_64", {"quantize": {"scale": 1}}
    )
    content = bundle.to_bytes()
    size = int.from_bytes(content[16:24], "little")
    fields = json.loads(content[64 : 64 + size])
    documented = {name for row in table(text, "key") for name in code(row[0])}
    documented -= {"libraries", "kernels", "kernels[].variants"}  # lists, of which the entries' fields follow
    assert paths(fields, documented) == documented


def test_the_header_has_the_fields_of_the_page() -> None:
    rows = table(read(DOCS / "bundle.md"), "offset")
    sizes = [int(row[1]) for row in rows if row[1]]
    assert sum(sizes) == int(rows[-2][0]) == container._HEADER.size
    assert [int(row[0]) for row in rows[:-1]] == [sum(sizes[:number]) for number in range(len(rows) - 1)]
    assert f"version of the format: {container.FORMAT_VERSION}" in rows[1][2]


def test_the_limits_are_those_of_the_page() -> None:
    text = section(read(DOCS / "bundle.md"), "## Limits").replace(" 000", "000")
    assert container.MAXIMUM_MANIFEST_BYTES == 64 << 20
    for words in (
        "64 MiB",
        f"{container.MAXIMUM_BLOBS} blobs",
        f"{manifest.MAXIMUM_KERNELS} kernels",
        f"{manifest.MAXIMUM_TEXT} characters",
        f"{tensor.MAXIMUM_RANK} axes",
    ):
        assert words in text


def test_the_c_interface_has_the_functions_of_the_page() -> None:
    exported = re.findall(r"\bqc_\w+", read(ROOT / "qcompile" / "backends" / "cpu" / "native" / "exports.map"))
    assert [code(row[0])[0] for row in table(read(DOCS / "bundle.md"), "function")] == exported


def test_emulation(desk: Desk) -> None:
    text = read(DOCS / "emulation.md")
    assert table(text, "CPU") == [[f"`{name}`", model.description] for name, model in MODELS.items()]
    if importlib.util.find_spec("bochscpu") is None:
        pytest.skip("the emulator (package bochscpu-python) is not installed")
    for block in blocks(text):
        if block.language == "python":
            desk.run(block)
    ((_, printed),) = desk.outputs
    assert [line.split()[:2] for line in printed.splitlines()] == [["x86_64-avx2", "haswell"], ["x86_64", "clawhammer"]]


def test_onnx_models(desk: Desk) -> None:
    run_page(desk, "onnx.md")
    printed = desk.outputs[0][1]
    assert "flatten Flatten not one of qcompile's operators" in printed
    assert "(8, 10)" in printed
    assert "{'flatten': 'onnxruntime'}" in printed


def test_onnx_nodes_are_those_of_the_page() -> None:
    text = read(DOCS / "onnx.md")
    documented = set()
    for row in table(text, "node"):
        name = code(row[0])[0]
        documented |= {(domain, name) for domain in ("", "com.microsoft") if domain in row[0]}
        documented -= {("", name)} if "(com.microsoft)" in row[0] else set()
    assert documented == set(QUANTIZED_OPERATORS)
    assert f"-> {' | '.join(_MAIN)} " in text


@pytest.fixture(scope="module")
def command_line(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """All commands of the page, run."""
    desk = Desk(tmp_path_factory.mktemp("command-line"))
    run_page(desk, "command-line.md")
    return desk


def test_all_commands_are_described_and_shown(command_line: Desk) -> None:
    text = read(DOCS / "command-line.md")
    headings = re.findall(r"^## (\w+)$", text, re.MULTILINE)
    assert set(headings) == set(COMMANDS)
    shown = {what.split()[1] for what, _ in command_line.outputs if what.startswith("qcompile ")}
    assert shown == set(COMMANDS)


def command_of(name: str) -> click.Command:
    """The command of a name such as `run` or `records show`."""
    command: click.Command | None = application
    for word in name.split():
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
    assert command is not None
    return command


def all_commands() -> list[str]:
    """All commands; of groups their own ones."""
    names = []
    for name in COMMANDS:
        command = command_of(name)
        names += [f"{name} {own}" for own in command.commands] if isinstance(command, click.Group) else [name]
    return names


def described(name: str) -> str:
    """The part of the page that is about a command."""
    return section(read(DOCS / "command-line.md"), f"{'###' if ' ' in name else '##'} {name}")


@pytest.mark.parametrize("name", all_commands())
def test_options_are_those_of_the_page(name: str) -> None:
    options = {option for entry in command_of(name).params if isinstance(entry, click.Option) for option in entry.opts}
    rows = table(described(name), "option")
    assert {span.split()[0] for row in rows for span in code(row[0])} == options


@pytest.mark.parametrize("name", all_commands())
def test_json_fields_are_those_of_the_page(name: str, command_line: Desk) -> None:
    printed = [out for what, out in command_line.outputs if what.startswith(f"qcompile {name} ") and "--json" in what]
    documents = [json.loads(out) for out in printed]
    if name == "run":
        assert not documents
        return
    fields = {path for row in table(described(name), "field") for path in code(row[0])}
    assert set().union(*(paths(document, fields) for document in documents)) == fields


def test_tuning(desk: Desk) -> None:
    text = run_page(desk, "tuning.md")
    explained = next(printed for what, printed in desk.outputs if what.startswith("qcompile explain"))
    assert "from records record tuned.json" in " ".join(explained.split())
    documented = {name for row in table(text, "field") for name in code(row[0]) if row[0].startswith("`")}
    fields = {field.name for field in dataclasses.fields(Record)}
    assert {"format", *fields} <= documented
    for status in STATUSES:
        assert f"`{status}`" in text
    for words in (
        f"{file.MAXIMUM_BYTES >> 20} MiB",
        f"{file.MAXIMUM_LINES} lines",
        f"{file.MAXIMUM_LINE} bytes a line",
        f"at\n   most {space.MAXIMUM_POINTS} of a rule",
        f"for {search._SPREAD}\n   points",
        f"calls for {laboratory._SECONDS} s",
        f"the first {session.HOPELESS} candidates",
    ):
        assert words in text, words


def paths(value: Any, known: set[str], path: str = "") -> set[str]:
    """The fields of a JSON document: `a.b`, `a[].b`; what is inside a field without known ones is not a field."""
    found = {path} if path in known else set()
    inner = not path or any(entry.startswith((f"{path}.", f"{path}[]")) for entry in known)
    if isinstance(value, list) and inner:
        return found.union(*(paths(entry, known, f"{path}[]") for entry in value))
    if isinstance(value, dict) and inner:
        return found.union(*(paths(entry, known, f"{path}.{name}" if path else name) for name, entry in value.items()))
    return {path} if value is not None or path in known else set()


def test_the_tree_is_that_of_the_page() -> None:
    tree = blocks(section(read(DOCS / "architecture.md"), "## The tree"))[0].text
    named, parents = set(), [""]
    for line in tree.splitlines():
        name = line.split()[0]
        depth = (len(line) - len(line.lstrip())) // 2
        parents[depth + 1 :] = [parents[depth] + name]
        named.add(parents[depth] + name)
        assert (ROOT / parents[depth] / name).exists(), line
    for top in FOLDERS[:3]:
        for path in (ROOT / top).rglob("*"):
            relative = path.relative_to(ROOT).as_posix()
            links = ("qcompile/schedules/", "qcompile/targets/")
            if path.suffix in (".py", ".c", ".h", ".map") and not relative.startswith(links):
                assert relative in named, f"{relative} is not in the tree of docs/architecture.md"


def test_the_imports_are_those_of_the_page() -> None:
    documented = {}
    for row in table(section(read(DOCS / "architecture.md"), "## Imports point one way"), "part"):
        needs = set() if row[1] == "nothing" else set(row[1].split(", "))
        documented.update(dict.fromkeys(row[0].split(", "), needs))
    del documented["cli"]
    assert documented == {part: needs - {"__init__"} for part, needs in ALLOWED.items()}


def test_golden_data_are_those_of_the_page() -> None:
    documented = {
        suite for row in table(section(read(ROOT / "CONTRIBUTING.md"), "## Golden data"), "suite")
        for suite in code(row[0])
    }  # fmt: skip
    suites = {path.stem: json.loads(read(path)) for path in (ROOT / "tests/data/conformance").glob("*.json")}
    assert documented == set(suites)
    text = read(ROOT / "CONTRIBUTING.md")
    for suite in suites.values():
        assert suite["producer"]["version"] in text


def test_the_licence_is_apache_2() -> None:
    text = read(ROOT / "LICENSE")
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert len(text.splitlines()) == 202
