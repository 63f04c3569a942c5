"""The C compiler: what it has made is used again by the same compiler alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qcompile.system import toolchain

COMPILER = """#!/bin/sh
case "$1" in
  --version) echo "toy {version}";;
  *) echo run >> {log}; for last in "$@"; do out="$last"; done; cp {source} output;;
esac
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QCOMPILE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "source.c").write_text("int one;\n")
    install(tmp_path, monkeypatch, 1)
    return tmp_path / "log"


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    compiler = folder / "toycc"
    compiler.write_text(COMPILER.format(version=version, log=folder / "log", source=folder / "source.c"))
    compiler.chmod(0o755)
    os.utime(compiler, ns=(version, version))
    monkeypatch.setenv("CC", str(compiler))


def runs(log: Path) -> int:
    return len(log.read_text().splitlines())


def test_another_version_at_the_same_path_compiles_anew(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source.c"
    for _ in range(2):
        assert toolchain.compiled(source, ("-c",), "compile it") == source.read_bytes()
    assert runs(log) == 1
    install(tmp_path, monkeypatch, 2)
    toolchain.compiled(source, ("-c",), "compile it")
    assert runs(log) == 2


def test_other_flags_headers_and_sources_compile_anew(tmp_path: Path, log: Path) -> None:
    source, header = tmp_path / "source.c", tmp_path / "header.h"
    header.write_text("1")
    toolchain.compiled(source, ("-c",), "compile it", headers=[header])
    toolchain.compiled(source, ("-c", "-O1"), "compile it", headers=[header])
    header.write_text("2")
    toolchain.compiled(source, ("-c",), "compile it", headers=[header])
    source.write_text("int two;\n")
    toolchain.compiled(source, ("-c",), "compile it", headers=[header])
    assert runs(log) == 4
