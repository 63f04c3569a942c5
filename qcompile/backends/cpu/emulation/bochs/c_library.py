"""The functions of the C library that kernel libraries import, done outside the emulated CPU.

There is one thread and no environment: locks are always free, and none can be waited for.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from typing import Any, Protocol

from .....errors import BundleError, EmulationError
from ...struct_layout import read_text
from .memory import READ, WRITE, Memory, MemoryFault, Region

_MAXIMUM_TEXT = 65536
_TRY_AGAIN = 11
_FAILED = (1 << 64) - 1


class Call(Protocol):
    """A call of a function by emulated code."""

    memory: Memory
    heap: dict[int, Region]
    thread_local: int

    def argument(self, position: int) -> int:
        """An integer or pointer argument, as 64 bits."""

    def float_argument(self, size: int) -> float:
        """The first argument that is a float (4 bytes) or a double (8 bytes)."""

    def return_float(self, value: float, size: int) -> None:
        """Sets the result of a function that returns a float or a double."""

    def call_first(self, function: int) -> None:
        """Lets emulated code run a function without arguments before this one returns 0."""


def _text(call: Call, address: int) -> str:
    try:
        return read_text(address, call.memory.read)
    except BundleError:
        raise MemoryFault(address, False) from None


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


# --- memory -----------------------------------------------------------------------------------------------------------


def _allocate(call: Call, size: int, alignment: int) -> int:
    if alignment < 1 or alignment & (alignment - 1) or alignment > 4096:
        return 0
    try:
        region = call.memory.allocate("a block of the heap", size, READ | WRITE, alignment=alignment)
    except EmulationError:
        return 0  # as malloc does; the kernel says what it wanted the memory for
    call.heap[region.address] = region
    return region.address


def _free(call: Call) -> int:
    address = call.argument(0)
    if address:
        region = call.heap.pop(address, None)
        if region is None:
            raise MemoryFault(address, True)
        call.memory.release(region)
    return 0


def _mmap(call: Call) -> int:
    size, anonymous = call.argument(1), call.argument(3) & 0x20
    address = _allocate(call, -(-size // 4096) * 4096, 4096) if size and anonymous else 0
    return address or _FAILED


def _munmap(call: Call) -> int:
    region = call.heap.pop(call.argument(0), None)
    if region is None:
        return _FAILED
    call.memory.release(region)
    return 0


def _memcpy(call: Call) -> int:
    target, source, size = call.argument(0), call.argument(1), call.argument(2)
    if size:
        call.memory.write(target, call.memory.read(source, size))
    return target


def _memset(call: Call) -> int:
    target, size = call.argument(0), call.argument(2)
    if size:
        call.memory.read(target, size)  # before as many bytes are made
        call.memory.write(target, bytes([call.argument(1) & 255]) * size)
    return target


def _memcmp(call: Call) -> int:
    size = call.argument(2)
    first, second = (call.memory.read(call.argument(position), size) if size else b"" for position in (0, 1))
    return (first > second) - (first < second)


# --- text -------------------------------------------------------------------------------------------------------------


def _strcmp(call: Call) -> int:
    first, second = (_text(call, call.argument(position)).encode() for position in (0, 1))
    return (first > second) - (first < second)


def _strlen(call: Call) -> int:
    return len(_text(call, call.argument(0)).encode())


def _strtol(call: Call) -> int:
    text, end, base = _text(call, call.argument(0)), call.argument(1), _signed(call.argument(2), 32)
    if base != 10:
        raise EmulationError("Emulated code converts text in another base than 10.", given=f"strtol(..., {base})")
    found = re.match(r"[ \t\n\v\f\r]*([+-]?[0-9]{1,30})", text)
    if end:
        call.memory.write(end, struct.pack("<Q", call.argument(0) + (found.end() if found else 0)))
    return max(-(1 << 63), min(int(found[1]), (1 << 63) - 1)) if found else 0


_CONVERSION = re.compile(r"%(?:(?P<percent>%)|(?P<size>hh|h|ll|l|z|j|t)?(?P<kind>[sdiuxc]))")


def _snprintf(call: Call) -> int:
    target, room, template = call.argument(0), call.argument(1), _text(call, call.argument(2))
    position, printed = 2, 0

    def text_of(address: int) -> str:
        nonlocal printed
        text = _text(call, address)
        printed += len(text)
        if printed > _MAXIMUM_TEXT:
            raise EmulationError(
                "Emulated code prints a text that is too long.", accepted=f"{_MAXIMUM_TEXT} characters"
            )
        return text

    def converted(found: re.Match[str]) -> str:
        nonlocal position
        if found["percent"]:
            return "%"
        position += 1
        value = call.argument(position)
        if found["kind"] == "s":
            return text_of(value)
        bits = {"hh": 8, "h": 16, None: 32}.get(found["size"], 64)
        if found["kind"] == "c":
            return chr(value & 127)
        if found["kind"] in "di":
            return str(_signed(value, bits))
        return f"{value & ((1 << bits) - 1):{'x' if found['kind'] == 'x' else 'd'}}"

    if "%" in _CONVERSION.sub("", template):
        raise EmulationError("Emulated code prints in a way that is not known here.", given=repr(template[:80]))
    content = _CONVERSION.sub(converted, template).encode()[:_MAXIMUM_TEXT]
    if room:
        call.memory.write(target, content[: room - 1] + b"\0")
    return len(content)


# --- threads ----------------------------------------------------------------------------------------------------------


def _pthread_once(call: Call) -> int:
    control = call.argument(0)
    if struct.unpack("<i", call.memory.read(control, 4))[0] == 0:
        call.memory.write(control, struct.pack("<i", 1))
        call.call_first(call.argument(1))
    return 0


def _sched_getaffinity(call: Call) -> int:
    size, mask = call.argument(1), call.argument(2)
    call.memory.read(mask, size)
    call.memory.write(mask, (b"\1" + bytes(size))[:size])
    return 0


def _sched_cpucount(call: Call) -> int:
    size, mask = call.argument(0), call.argument(1)
    return sum(byte.bit_count() for byte in call.memory.read(mask, size))


def _tls_get_addr(call: Call) -> int:
    _, offset = struct.unpack("<QQ", call.memory.read(call.argument(0), 16))
    return call.thread_local + int(offset)


def _stack_check_failed(call: Call) -> int:
    raise EmulationError("Emulated code has written beyond a variable on its stack.")


# --- numbers ----------------------------------------------------------------------------------------------------------


def _rounding(function: Callable[[float], float], size: int) -> Callable[[Call], int]:
    def call_it(call: Call) -> int:
        value = call.float_argument(size)
        if math.isfinite(value):  # others, as they are
            value = math.copysign(function(value), value)
        call.return_float(value, size)
        return 0

    return call_it


def _half_away(value: float) -> float:
    below = math.floor(abs(value))
    return below + (abs(value) - below >= 0.5)


_ROUNDINGS: dict[str, Callable[[float], Any]] = {
    "floor": math.floor, "ceil": math.ceil, "trunc": math.trunc, "round": _half_away,
    "rint": round, "nearbyint": round, "roundeven": round,
}  # fmt: skip


def _zero(call: Call) -> int:
    return 0


#: name -> what is returned; one that is missing is an error when it is called
FUNCTIONS: dict[str, Callable[[Call], int]] = {
    "aligned_alloc": lambda call: _allocate(call, call.argument(1), call.argument(0)),
    "malloc": lambda call: _allocate(call, call.argument(0), 16),
    "free": _free,
    "mmap": _mmap,
    "munmap": _munmap,
    "madvise": lambda call: _FAILED,  # constants stay where they are, in memory that is read-only
    "mprotect": _zero,
    "memcpy": _memcpy,
    "memmove": _memcpy,
    "memset": _memset,
    "memcmp": _memcmp,
    "strcmp": _strcmp,
    "strlen": _strlen,
    "strtol": _strtol,
    "snprintf": _snprintf,
    "getenv": _zero,
    "pthread_once": _pthread_once,
    "pthread_create": lambda call: _TRY_AGAIN,
    "pthread_self": lambda call: 1,
    "sched_getaffinity": _sched_getaffinity,
    "__sched_cpucount": _sched_cpucount,
    "__tls_get_addr": _tls_get_addr,
    "__stack_chk_fail": _stack_check_failed,
    **dict.fromkeys(
        (
            "__cxa_finalize", "__register_atfork", "pthread_atfork", "pthread_cond_broadcast", "pthread_cond_init",
            "pthread_cond_signal", "pthread_mutex_init", "pthread_mutex_lock", "pthread_mutex_unlock",
            "pthread_setaffinity_np", "sched_getcpu",
        ),
        _zero,
    ),
    **{
        f"{name}{suffix}": _rounding(function, size)
        for name, function in _ROUNDINGS.items()
        for suffix, size in (("f", 4), ("", 8))
    },
}  # fmt: skip
