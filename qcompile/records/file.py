"""Files of records: JSON lines that several processes may append to, read as untrusted data.

A record that was appended is on the disk. If the machine stops in the middle of one, its line has no end: reading
leaves it out with a warning, and the next append takes it away. A wrong line anywhere else is an error, since nothing
that qcompile does leaves one behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import stat
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..errors import RecordsError, RecordsWarning
from ..system.files import check_writable, write_atomically
from .record import Key, Record, parse
from .selection import latest, order

PathLike = str | os.PathLike[str]
#: the path of a file of records, or several
Paths = PathLike | Sequence[PathLike]

MAXIMUM_BYTES = 256 << 20
MAXIMUM_LINE = 64 << 10
MAXIMUM_LINES = 500_000


@dataclass(frozen=True)
class RecordFile:
    """The records of one file that count, by what they are for.

    Args:
        origin: the file.
        source: what choices call it: "records", or "tuned" for those of the package.
        records: all of them, in the file's order.
    """

    origin: str
    source: str
    records: tuple[Record, ...]

    @functools.cached_property
    def _by_key(self) -> dict[Key, list[Record]]:
        found: dict[Key, list[Record]] = defaultdict(list)
        for record in latest(self.records):
            found[record.key].append(record)
        return dict(found)

    @functools.cached_property
    def _constants(self) -> dict[tuple[str, str], set[tuple[str, ...]]]:
        found: dict[tuple[str, str], set[tuple[str, ...]]] = defaultdict(set)
        for kernel, constants, target in self._by_key:
            found[kernel, target].add(constants)
        return dict(found)

    def best_first(self, key: Key, machine: str) -> list[Record]:
        """The usable records of a key: of this machine first, then of the most threads, then the fastest.

        Args:
            key: kernel, constants and target.
            machine: what records call the machine (`interface.Executor.identity`).
        """
        own = [record for record in self._by_key.get(key, []) if record.is_ok]
        return sorted(own, key=lambda record: order(record, machine))

    def constants_of(self, kernel: str, target: str) -> list[tuple[str, ...]]:
        """The sets of constants for which there are records of a kernel."""
        return sorted(self._constants.get((kernel, target), ()))


def load(path: PathLike) -> RecordFile:
    """The records of a user's file, indexed; read again only when it has changed.

    Raises:
        RecordsError: as `read`.
    """
    state = _stat(path)
    return _load(os.fspath(path), state.st_mtime_ns, state.st_size, state.st_ino)


def load_each(paths: Paths | None) -> list[RecordFile]:
    """The files of records of a path, or of several.

    Raises:
        RecordsError: one cannot be read.
    """
    if paths is None:
        return []
    several = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    if not isinstance(several, Sequence) or not all(isinstance(path, (str, os.PathLike)) for path in several):
        raise RecordsError(
            "Invalid value for records=.", given=repr(paths)[:200], accepted="the path of a file, or several"
        )
    return [load(path) for path in several]


@functools.lru_cache(maxsize=8)
def _load(path: str, *_: int) -> RecordFile:
    return RecordFile(path, "records", tuple(read(path)))


def read(path: PathLike) -> list[Record]:
    """All records of a file, in its order.

    Raises:
        RecordsError: the file cannot be read or is too large, or a line is not a record; file and line are named.
    """
    _stat(path)
    try:
        with open(path, "rb") as stream, _locked(stream.fileno(), fcntl.LOCK_SH):
            content = stream.read(MAXIMUM_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    return parse_lines(content, os.fspath(path))


def parse_lines(content: bytes, origin: str) -> list[Record]:
    """The records of a file's content; `origin` names it in messages.

    Raises:
        RecordsError: it is too large, or a line other than a torn last one is not a record.
    """
    if len(content) > MAXIMUM_BYTES:
        raise _unreadable(origin, f"it has more than {MAXIMUM_BYTES >> 20} MiB")
    lines = content.split(b"\n")
    if len(lines) > MAXIMUM_LINES:
        raise _unreadable(origin, f"it has more than {MAXIMUM_LINES} lines")
    records = []
    for number, line in enumerate(lines, 1):
        is_last = number == len(lines)
        if is_last and not line:
            break
        try:
            records.append(_parse_line(line))
        except RecordsError as error:
            if is_last:
                warnings.warn(
                    f"the last line of {origin} is torn and left out: {error.problem}", RecordsWarning, stacklevel=3
                )
                break
            raise RecordsError(
                f"{origin}, line {number}: {error.problem}",
                given=error.given,
                accepted=error.accepted,
                remedy=error.remedy or "take the line away, or use another file",
            ) from error
    return records


def _parse_line(line: bytes) -> Record:
    if len(line) > MAXIMUM_LINE:
        raise RecordsError("The line is too long.", given=f"{len(line)} bytes", accepted=f"at most {MAXIMUM_LINE}")
    try:
        return parse(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise RecordsError("Not valid UTF-8.", given=repr(line[:40])) from error


def append(path: PathLike, records: Iterable[Record]) -> None:
    """Adds records to a file, which is made where it is missing. They are on the disk when this returns.

    Raises:
        RecordsError: the file cannot be written, or does not end like a file of records.
    """
    with _opened_for_appending(path) as descriptor:
        _mend_end(descriptor, path)
        for record in records:
            line = record.to_line().encode() + b"\n"
            if os.write(descriptor, line) != len(line):
                raise OSError("the disk is full")
        os.fsync(descriptor)


@contextlib.contextmanager
def _opened_for_appending(path: PathLike) -> Iterator[int]:
    """A locked descriptor of the file that stands at `path` while it is locked: `rewrite` puts another one there.

    Raises:
        RecordsError: the file cannot be opened, or what is done with the descriptor fails with an OSError.
    """
    try:
        with _locked_in_place(path) as descriptor:
            yield descriptor
    except OSError as error:
        raise RecordsError(
            f"The file of records {os.fspath(path)} cannot be written: {error.strerror or error}.",
            remedy="choose another path, in an existing, writable folder",
        ) from error


@contextlib.contextmanager
def _locked_in_place(path: PathLike) -> Iterator[int]:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError("it is not a regular file")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_at(descriptor, path):
                yield descriptor
                return
        finally:
            os.close(descriptor)


def _is_at(descriptor: int, path: PathLike) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _mend_end(descriptor: int, path: PathLike) -> None:
    """Ends the last line where it is a whole record, and takes it away where it is not."""
    size = os.fstat(descriptor).st_size
    start = max(0, size - MAXIMUM_LINE - 1)
    tail = os.pread(descriptor, size - start, start)
    if not tail or tail.endswith(b"\n"):
        return
    before, newline, line = tail.rpartition(b"\n")
    if not newline and start > 0:
        raise RecordsError(f"{os.fspath(path)} is not a file of records: its last line is too long.")
    try:
        _parse_line(line)
    except RecordsError:
        if not newline and not line.lstrip().startswith(b'{"format"'[: len(line.lstrip())]):
            raise RecordsError(
                f"{os.fspath(path)} is not a file of records; nothing is added to it.", given=repr(line[:40])
            ) from None
        os.ftruncate(descriptor, start + len(before) + len(newline))
    else:
        os.write(descriptor, b"\n")


def rewrite(path: PathLike, change: Callable[[Sequence[Record]], Sequence[Record]]) -> None:
    """Puts what `change` makes of the records of a file in their place; processes that append wait meanwhile.

    Raises:
        RecordsError: as `read` and `append`.
        FileWriteError: the file cannot be replaced.
    """
    check_writable(path, "The file of records")
    _stat(path)
    with _opened_for_appending(path) as descriptor:
        content = os.pread(descriptor, MAXIMUM_BYTES + 1, 0)
        write(path, change(parse_lines(content, os.fspath(path))))


def write(path: PathLike, records: Iterable[Record]) -> None:
    """Writes a file of these records, whole or not at all."""
    content = "".join(record.to_line() + "\n" for record in records)
    write_atomically(path, content.encode(), "The file of records")


def _stat(path: PathLike) -> os.stat_result:
    try:
        state = os.stat(path)
    except (OSError, ValueError) as error:
        raise _unreadable(path, getattr(error, "strerror", None) or str(error)) from error
    if not stat.S_ISREG(state.st_mode):
        raise _unreadable(path, "it is a folder" if stat.S_ISDIR(state.st_mode) else "it is not a regular file")
    return state


@contextlib.contextmanager
def _locked(descriptor: int, kind: int) -> Iterator[None]:
    with contextlib.suppress(OSError):  # a file system without locks: a torn end is only a warning
        fcntl.flock(descriptor, kind)
    yield


def _unreadable(path: PathLike, problem: str) -> RecordsError:
    return RecordsError(
        f"The file of records {os.fspath(path)} cannot be read: {problem}.", remedy="`qcompile tune` writes such files"
    )
