"""The memory of the emulated machine: regions apart from each other, and the page tables of x86-64.

Between two regions lie pages that do not exist, so that what runs over the end of one is noticed.
"""

from __future__ import annotations

import bisect
import ctypes
import mmap
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field

from .....errors import EmulationError

PAGE = 4096
EXECUTE, WRITE, READ = 1, 2, 4
#: bytes between two regions, and at most in all of them
GAP = 1 << 20
LIMIT = 4 << 30

#: what Bochs can tell apart
_PHYSICAL_ADDRESSES = 1 << 40
_TABLE_ENTRIES = 512
_TABLES_AT_ONCE = 64
#: where a window of addresses begins; what is fetched again for every call has one of its own
_WINDOWS = {"lasting": 1 << 36, "call": 1 << 37}
#: bits of an entry: present, for users too, accessed, dirty; writable; not executable
_PRESENT, _WRITABLE, _NOT_EXECUTABLE = 0x65, 0x02, 1 << 63


class MemoryFault(Exception):  # noqa: N818 - an event in the emulated machine
    """Something outside the emulated CPU would touch memory that does not exist, or must not be written."""

    def __init__(self, address: int, writes: bool):
        self.address = address
        self.writes = writes
        super().__init__(address, writes)


@dataclass
class Region:
    """Some pages one after the other.

    Args:
        name: what messages call it.
        start: address of the first page.
        size: bytes of all pages.
        address: where the content begins; it ends with the last page.
        physical: address that the emulated CPU knows in place of the process's.
        memory: the bytes.
        spans: (start, end, access) of the pages that exist, in order.
        may_execute: whether one of them ever was executable.
    """

    name: str
    start: int
    size: int
    address: int
    physical: int
    memory: mmap.mmap
    spans: list[tuple[int, int, int]] = field(default_factory=list)
    may_execute: bool = False

    @property
    def end(self) -> int:
        """Address behind the last page."""
        return self.start + self.size


class Memory:
    """All regions.

    Args:
        insert: called with the physical address of a page and its address in this process.
        remove: called with the physical address of a page that goes.
    """

    def __init__(self, insert: Callable[[int, int], None], remove: Callable[[int], None]):
        self._insert = insert
        self._remove = remove
        self._regions: list[Region] = []
        self._starts: list[int] = []
        self._next = dict(_WINDOWS)
        self._next_physical = PAGE
        self._free_physical: dict[int, list[int]] = {}
        self._used = 0
        self._tables: dict[tuple[int, int], memoryview] = {}
        self._table_physical: dict[tuple[int, int], int] = {}
        self._spare_tables: list[tuple[int, memoryview]] = []
        #: whether entries have changed that the CPU may remember
        self.is_stale = False
        self.root = self._table(4, 0)[0]

    @property
    def needs_restart(self) -> bool:
        """Whether the physical addresses, which code does not give back, come to their end."""
        return self._next_physical > _PHYSICAL_ADDRESSES // 2

    def allocate(
        self, name: str, size: int, access: int, window: str = "lasting", alignment: int = 1, is_low: bool = False
    ) -> Region:
        """A new region whose content ends with its last page, or begins with its first one if `is_low`.

        Raises:
            EmulationError: there is too little memory.
        """
        region = self.reserve(name, size, window)
        if not is_low:
            region.address = (region.end - size) // alignment * alignment
        self.open(region, region.start, region.end, access)
        return region

    def reserve(self, name: str, size: int, window: str = "lasting") -> Region:
        """A new region none of whose pages exists.

        Raises:
            EmulationError: there is too little memory.
        """
        whole = -(-max(size, 1) // PAGE) * PAGE
        memory = self._host_memory(whole, name)
        start = self._next[window]
        self._next[window] = start + whole + GAP // PAGE * PAGE
        region = Region(name, start, whole, start, self._physical(whole), memory)
        position = bisect.bisect(self._starts, start)
        self._regions.insert(position, region)
        self._starts.insert(position, start)
        return region

    def open(self, region: Region, start: int, end: int, access: int) -> None:
        """Makes pages of a region exist; start and end are multiples of the page size."""
        region.spans.append((start, end, access))
        region.may_execute |= bool(access & EXECUTE)
        bits = _PRESENT | (_WRITABLE if access & WRITE else 0) | (0 if access & EXECUTE else _NOT_EXECUTABLE)
        host = _address_of(region.memory)
        physical = region.physical + start - region.start
        for offset in range(0, end - start, PAGE):
            self._insert(physical + offset, host + start - region.start + offset)
        self._set(start, array("Q", range(physical | bits, (physical | bits) + end - start, PAGE)))

    def release(self, region: Region) -> None:
        """Takes a region away."""
        position = self._starts.index(region.start)
        del self._starts[position], self._regions[position]
        for start, end, _ in region.spans:
            self._set(start, array("Q", bytes((end - start) // PAGE * 8)))
            for address in range(start, end, PAGE):
                self._remove(region.physical + address - region.start)
        self.is_stale = True
        self._used -= region.size
        region.memory.close()
        if not region.may_execute:  # the emulator remembers code by its physical address
            self._free_physical.setdefault(region.size, []).append(region.physical)

    def end_call(self) -> None:
        """Takes away all regions of the window "call"."""
        first = _WINDOWS["call"]
        for region in [region for region in self._regions if region.start >= first]:
            self.release(region)
        self._next["call"] = first

    def read(self, address: int, size: int) -> bytes:
        """Bytes of one region.

        Raises:
            MemoryFault: they are not there.
        """
        region = self._region(address, size, READ)
        return region.memory[address - region.start : address - region.start + size]

    def write(self, address: int, content: bytes | memoryview) -> None:
        """Writes within one region.

        Raises:
            MemoryFault: that memory is not there, or read-only.
        """
        region = self._region(address, len(content), WRITE)
        region.memory[address - region.start : address - region.start + len(content)] = bytes(content)

    def readable(self, address: int, most: int) -> bytes:
        """Up to so many bytes, as far as they are there."""
        size = most
        while size:
            try:
                return self.read(address, size)
            except MemoryFault:
                size -= 1
        return b""

    def describe(self, address: int) -> str:
        """Where an address lies, in words."""
        position = bisect.bisect(self._starts, address) - 1
        before = self._regions[position] if position >= 0 else None
        after = self._regions[position + 1] if position + 1 < len(self._regions) else None
        if before is not None and address < before.end:
            return f"in {before.name}"
        past = address - before.end if before is not None else GAP
        ahead = after.address - address if after is not None else GAP
        if past < GAP and past <= ahead and before is not None:
            return f"{past} bytes past the end of {before.name}" if past else f"just past the end of {before.name}"
        if ahead < GAP and after is not None:
            return f"{ahead} bytes before {after.name}"
        return "where nothing is"

    def _region(self, address: int, size: int, access: int) -> Region:
        position = bisect.bisect(self._starts, address) - 1
        if position >= 0 and size >= 0:
            region = self._regions[position]
            for start, end, allowed in region.spans:
                if start <= address and address + size <= end and allowed & access:
                    return region
        raise MemoryFault(address, access == WRITE)

    def _host_memory(self, size: int, name: str) -> mmap.mmap:
        if self._used + size > LIMIT:
            raise EmulationError(
                f"There is too little memory to emulate {name}.",
                given=f"{self._used + size} bytes in all",
                accepted=f"at most {LIMIT} bytes",
            )
        try:
            memory = mmap.mmap(-1, size)
        except (OSError, MemoryError) as error:
            raise EmulationError(f"There is too little memory to emulate {name}.", given=f"{size} bytes") from error
        self._used += size
        return memory

    def _physical(self, size: int) -> int:
        free = self._free_physical.get(size)
        if free:
            return free.pop()
        self._next_physical += size
        return self._next_physical - size

    def _set(self, start: int, entries: array[int]) -> None:
        """Puts entries of pages one after the other into the tables."""
        done = 0
        while done < len(entries):
            number = start // PAGE + done
            first = number % _TABLE_ENTRIES
            count = min(len(entries) - done, _TABLE_ENTRIES - first)
            _, table = self._table(1, number // _TABLE_ENTRIES)
            table[first : first + count] = memoryview(entries)[done : done + count]
            done += count

    def _table(self, level: int, number: int) -> tuple[int, memoryview]:
        """(physical address, entries) of a table, made and entered where it is missing."""
        key = (level, number)
        if key not in self._tables:
            if not self._spare_tables:
                size = _TABLES_AT_ONCE * PAGE
                memory = self._host_memory(size, "page tables")
                first, host, entries = self._physical(size), _address_of(memory), memoryview(memory).cast("Q")
                for offset in range(0, size, PAGE):
                    self._insert(first + offset, host + offset)
                    self._spare_tables.append((first + offset, entries[offset // 8 : (offset + PAGE) // 8]))
            self._table_physical[key], self._tables[key] = self._spare_tables.pop()
            if level < 4:
                _, above = self._table(level + 1, number // _TABLE_ENTRIES)
                above[number % _TABLE_ENTRIES] = self._table_physical[key] | _PRESENT | _WRITABLE
        return self._table_physical[key], self._tables[key]


def _address_of(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))
