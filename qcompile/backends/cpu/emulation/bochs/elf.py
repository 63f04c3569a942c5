"""Reads a 64-bit x86 shared object as untrusted data: every offset is checked before it is used."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from .....errors import EmulationError

PAGE = 4096
#: memory may exceed the file by so much: zeros, and gaps between segments
_MAXIMUM_EXTRA = 64 << 20
_MAXIMUM_SEGMENTS = 64
_MAXIMUM_DYNAMIC = 1024
_MAXIMUM_NAME = 4096
_MAXIMUM_RELOCATIONS = 1 << 24

_HEADER = struct.Struct("<4sBBB9xHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")

_LOAD, _DYNAMIC, _TLS = 1, 2, 7
EXECUTE, WRITE, READ = 1, 2, 4
_HASH, _STRTAB, _SYMTAB, _RELA, _RELASZ, _STRSZ, _INIT, _JMPREL, _PLTRELSZ = 4, 5, 6, 7, 8, 10, 12, 23, 2
_INIT_ARRAY, _INIT_ARRAYSZ, _RELRSZ, _RELR, _GNU_HASH = 25, 27, 35, 36, 0x6FFFFEF5

#: type of a packed relative relocation, which has no number of its own
RELATIVE = 8


@dataclass(frozen=True)
class Segment:
    """A part of the file that lies in memory at an address, zeros behind it; `access` are bits."""

    address: int
    content: memoryview
    size: int
    access: int


@dataclass(frozen=True)
class Symbol:
    """A dynamic symbol; `value` is None where another library has to define it."""

    name: str
    value: int | None
    is_weak: bool


@dataclass(frozen=True)
class Relocation:
    """A place that has to be filled in; `addend` is None where it stands in that place."""

    address: int
    kind: int
    symbol: Symbol | None
    addend: int | None


@dataclass(frozen=True)
class SharedObject:
    """What a loader needs of a shared object. Addresses count from the beginning of its memory.

    Args:
        size: bytes of memory, from address 0.
        segments: what lies in memory.
        relocations: in the order in which they are applied.
        exports: name -> address of what it defines.
        initializer: address of its first constructor; 0 where there is none.
        initializers: (address, count) of the table of further constructors.
        thread_local: the segment that each thread has a copy of, and its alignment.
    """

    size: int
    segments: tuple[Segment, ...]
    relocations: tuple[Relocation, ...]
    exports: dict[str, int]
    initializer: int
    initializers: tuple[int, int]
    thread_local: tuple[Segment, int]


def read(content: bytes | memoryview, name: str) -> SharedObject:
    """The shared object in these bytes; messages call it `name`.

    Raises:
        EmulationError: it is none for x86-64, or damaged.
    """
    try:
        return _Reader(memoryview(content)).read()
    except (_DamageError, struct.error) as error:
        raise EmulationError(
            f"The library of {name} cannot be emulated: it is no shared object for x86-64, or damaged.",
            given=str(error),
            remedy="compile the bundle again",
        ) from error


class _DamageError(Exception):
    """What is wrong with the file."""


class _Reader:
    def __init__(self, content: memoryview):
        self._content = content
        self._segments: list[Segment] = []

    def read(self) -> SharedObject:
        if len(self._content) < _HEADER.size:
            raise _DamageError(f"{len(self._content)} bytes")
        magic, bits, order, _, kind, machine, _, _, table, _, _, _, entry_size, count, *_ = _HEADER.unpack_from(
            self._content
        )
        if (magic, bits, order, kind, machine, entry_size) != (b"\x7fELF", 2, 1, 3, 62, _SEGMENT.size):
            raise _DamageError("another kind of file")
        if count > _MAXIMUM_SEGMENTS:
            raise _DamageError(f"{count} segments")
        dynamic: memoryview | None = None
        thread_local = (Segment(0, self._content[:0], 0, 0), 1)
        for position in range(count):
            row = self._bytes(table + position * _SEGMENT.size, _SEGMENT.size)
            kind, access, offset, address, _, stored, size, alignment = _SEGMENT.unpack(row)
            if kind not in (_LOAD, _DYNAMIC, _TLS):
                continue
            segment = Segment(address, self._bytes(offset, stored), size, access & 7)
            if size < stored or address + size > len(self._content) + _MAXIMUM_EXTRA:
                raise _DamageError(f"a segment of {size} bytes at address {address:#x}")
            if kind == _LOAD:
                self._add(segment)
            elif kind == _DYNAMIC:
                dynamic = segment.content
            else:
                if not 1 <= max(1, alignment) <= PAGE or alignment & (alignment - 1):
                    raise _DamageError(f"thread-local memory aligned to {alignment}")
                thread_local = segment, max(1, alignment)
        if not self._segments or dynamic is None:
            raise _DamageError("no segments to load, or no dynamic section")
        tags = self._tags(dynamic)
        return SharedObject(
            size=-(-max(segment.address + segment.size for segment in self._segments) // PAGE) * PAGE,
            segments=tuple(self._segments),
            relocations=tuple(itertools.islice(self._relocations(tags), _MAXIMUM_RELOCATIONS)),
            exports=self._exports(tags),
            initializer=tags.get(_INIT, 0),
            initializers=(tags.get(_INIT_ARRAY, 0), self._length(tags, _INIT_ARRAYSZ) // 8),
            thread_local=thread_local,
        )

    def _add(self, segment: Segment) -> None:
        """Segments come in order and share no page, which has one kind of access."""
        if self._segments:
            last = self._segments[-1]
            if segment.address // PAGE < -(-(last.address + last.size) // PAGE):
                raise _DamageError("segments overlap, or are out of order")
        if segment.size:
            self._segments.append(segment)

    def _tags(self, dynamic: memoryview) -> dict[int, int]:
        tags: dict[int, int] = {}
        for position in range(min(len(dynamic) // 16, _MAXIMUM_DYNAMIC)):
            tag, value = struct.unpack_from("<QQ", dynamic, 16 * position)
            if tag == 0:
                break
            tags[tag] = value
        return tags

    def _length(self, tags: dict[int, int], tag: int) -> int:
        length = tags.get(tag, 0)
        if length > len(self._content):
            raise _DamageError(f"a table of {length} bytes")
        return length

    def _bytes(self, offset: int, size: int) -> memoryview:
        if offset + size > len(self._content):
            raise _DamageError(f"{size} bytes at {offset:#x} are outside of the file")
        return self._content[offset : offset + size]

    def _at(self, address: int, size: int) -> memoryview:
        """Bytes of the file by their address in memory."""
        for segment in self._segments:
            start = address - segment.address
            if start >= 0 and start + size <= len(segment.content):
                return segment.content[start : start + size]
        raise _DamageError(f"{size} bytes at address {address:#x} are in no segment")

    def _relocations(self, tags: dict[int, int]) -> Iterator[Relocation]:
        if _RELR in tags:
            yield from self._packed(self._at(tags[_RELR], self._length(tags, _RELRSZ)))
        known: dict[int, Symbol] = {}
        for start, length in ((_RELA, _RELASZ), (_JMPREL, _PLTRELSZ)):
            size = self._length(tags, length)
            if size == 0:
                continue
            table = self._at(tags.get(start, 0), size - size % _RELOCATION.size)
            for address, info, addend in _RELOCATION.iter_unpack(table):
                number = info >> 32
                if number and number not in known:
                    known[number] = self._symbol(tags, number)
                yield Relocation(address, info & 0xFFFFFFFF, known.get(number), addend)

    @staticmethod
    def _packed(table: memoryview) -> Iterator[Relocation]:
        """An even word is an address; the bits of an odd one say which of the next 63 words are to be relocated too."""
        address = 0
        for (word,) in struct.iter_unpack("<Q", table[: len(table) // 8 * 8]):
            if word & 1:
                for bit in range(63):
                    if word >> (bit + 1) & 1:
                        yield Relocation(address + 8 * bit, RELATIVE, None, None)
                address += 8 * 63
            else:
                yield Relocation(word, RELATIVE, None, None)
                address = word + 8

    def _symbol(self, tags: dict[int, int], number: int) -> Symbol:
        row = self._at(tags.get(_SYMTAB, 0) + number * _SYMBOL.size, _SYMBOL.size)
        offset, info, _, section, value, _ = _SYMBOL.unpack(row)
        table = self._at(tags.get(_STRTAB, 0), self._length(tags, _STRSZ))
        name = bytes(table[offset : offset + _MAXIMUM_NAME]).partition(b"\0")[0]
        return Symbol(name.decode(errors="replace"), value if section else None, info >> 4 == 2)

    def _exports(self, tags: dict[int, int]) -> dict[str, int]:
        symbols = (self._symbol(tags, number) for number in range(1, self._symbol_count(tags)))
        return {symbol.name: symbol.value for symbol in symbols if symbol.value is not None}

    def _symbol_count(self, tags: dict[int, int]) -> int:
        """No header says it; the hash table, which looks names up, implies it."""
        if _HASH in tags:
            buckets, count = struct.unpack("<II", self._at(tags[_HASH], 8))
            return min(int(count), len(self._content) // _SYMBOL.size)
        if _GNU_HASH not in tags:
            return 0
        start = tags[_GNU_HASH]
        buckets, first, bloom, _ = struct.unpack("<IIII", self._at(start, 16))
        row = start + 16 + 8 * bloom
        largest = max(struct.unpack(f"<{buckets}I", self._at(row, 4 * buckets)), default=0)
        if largest < first:
            return int(first)
        chain = row + 4 * buckets - 4 * first
        while struct.unpack("<I", self._at(chain + 4 * largest, 4))[0] & 1 == 0:
            largest += 1
        return int(largest) + 1
