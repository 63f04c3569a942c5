"""Damaged shared objects: an error, whatever is damaged."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import qcompile as qc
from qcompile.backends.cpu.emulation.bochs import elf

from .support import tiny_library

REFUSED = "no shared object for x86-64, or damaged"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return tiny_library(tmp_path_factory.mktemp("tiny"), "static __thread int n; output[0] = n++ + getpid();")


def test_what_is_read(library: bytes) -> None:
    file = elf.read(library, "it")
    assert {"qc_run", "qc_kernel", "qc_abi_version"} <= set(file.exports)
    names = {relocation.symbol.name for relocation in file.relocations if relocation.symbol is not None}
    assert "getpid" in names
    assert file.size % elf.PAGE == 0
    assert sum(len(segment.content) for segment in file.segments) <= len(library)


@pytest.mark.parametrize("flags", [["-Wl,--hash-style=sysv"], ["-Wl,--hash-style=gnu"]])
def test_both_kinds_of_hash_tables(tmp_path: Path, flags: list[str]) -> None:
    assert "qc_run" in elf.read(tiny_library(tmp_path, "", *flags), "it").exports


def test_packed_relocations() -> None:
    """As some linkers write them, for the first, second and fourth of some words, and for one far behind."""
    table = struct.pack("<QQQ", 0x1000, 0b1011, 0x9000)
    found = [relocation.address for relocation in elf._Reader._packed(memoryview(table))]
    assert found == [0x1000, 0x1008, 0x1018, 0x9000]


@pytest.mark.parametrize("size", [0, 1, 16, 63, 64, 100, 500, 1000, 5000])
def test_truncated(library: bytes, size: int) -> None:
    with pytest.raises(qc.EmulationError, match=REFUSED):
        elf.read(library[:size], "it")


@pytest.mark.parametrize(
    ("offset", "content"),
    [
        (0, b"\x7fELG"),
        (4, b"\1"),
        (5, b"\2"),
        (16, b"\2\0"),
        (18, b"\xb7\0"),
        (32, b"\xff" * 8),
        (54, b"\0\0"),
        (56, b"\xff\xff"),
        (56, b"\0\0"),
    ],
)
def test_wrong_headers(library: bytes, offset: int, content: bytes) -> None:
    damaged = library[:offset] + content + library[offset + len(content) :]
    with pytest.raises(qc.EmulationError, match=REFUSED):
        elf.read(damaged, "it")


@pytest.mark.parametrize("field", range(1, 7))
@pytest.mark.parametrize("value", [0, 1, 4095, 1 << 31, (1 << 63) - 1, (1 << 64) - 1])
def test_wrong_segments(library: bytes, field: int, value: int) -> None:
    table, count = struct.unpack_from("<Q", library, 32)[0], struct.unpack_from("<H", library, 56)[0]
    for number in range(count):
        damaged = bytearray(library)
        struct.pack_into("<Q", damaged, table + 56 * number + 8 * field, value)
        check(bytes(damaged))


def check(content: bytes) -> None:
    """Either it can be read, within its limits, or the error says what is wrong."""
    try:
        file = elf.read(content, "it")
    except qc.EmulationError:
        return
    assert file.size <= len(content) + (64 << 20) + elf.PAGE
    assert len(file.relocations) <= 8 * len(content)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damaged_anywhere(library: bytes, data: st.DataObject) -> None:
    damaged = bytearray(library)
    ends = st.sampled_from([0, 1, 0x7F, 0x80, 0xFF])
    # most of what is interesting stands in the headers, the dynamic section and its tables at the beginning
    for position in data.draw(st.lists(st.integers(0, 2000) | st.integers(0, len(library) - 1), max_size=12)):
        damaged[position] = data.draw(ends)
    check(bytes(damaged))


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_wrong_dynamic_sections(library: bytes, data: st.DataObject) -> None:
    damaged = bytearray(library)
    table, count = struct.unpack_from("<Q", library, 32)[0], struct.unpack_from("<H", library, 56)[0]
    rows = [struct.unpack_from("<IIQQQQQQ", library, table + 56 * number) for number in range(count)]
    (start, size) = next((row[2], row[5]) for row in rows if row[0] == 2)
    numbers = st.sampled_from([0, 1, 7, 23, 24, 4096, 1 << 31, (1 << 64) - 1]) | st.integers(0, 1 << 14)
    for _ in range(data.draw(st.integers(1, 4))):
        entry = data.draw(st.integers(0, size // 16 - 1))
        struct.pack_into("<Q", damaged, start + 16 * entry + 8, data.draw(numbers))
    check(bytes(damaged))


@settings(max_examples=200, deadline=None)
@given(content=st.binary(max_size=600))
def test_anything(content: bytes) -> None:
    for start in (
        b"",
        b"\x7fELF\2\1\1" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 3, 64, 0, 0),
    ):
        check(start + content)
