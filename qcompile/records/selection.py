"""Which of many records count: the latest of each point, the best of each key."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from .record import Key, Record

#: key, threads and machine: records of one comparison
Comparison = tuple[Key, int, str]


def comparison(record: Record) -> Comparison:
    """What a record can be compared within."""
    return record.key, record.threads, record.cpu


def latest(records: Iterable[Record]) -> list[Record]:
    """The latest record of each point of each comparison: a new measurement takes the place of the old one."""
    found: dict[object, Record] = {}
    for record in records:
        place = (*comparison(record), record.point)
        known = found.get(place)
        if known is None or record.date >= known.date:
            found[place] = record
    return list(found.values())


def speed(record: Record) -> tuple[bool, float]:
    """Sorts records of one comparison: those that were measured in turns first, then by time."""
    return record.stage != "final", record.seconds if record.seconds is not None else float("inf")


def order(record: Record, machine: str) -> tuple[bool, int, bool, float]:
    """Sorts the records of one key for use: of this machine first, then of the most threads, then by speed."""
    return (record.cpu != machine, -record.threads, *speed(record))


def ranked(records: Iterable[Record]) -> list[Record]:
    """The usable records of one comparison that count, the best first."""
    return sorted((record for record in latest(records) if record.is_ok), key=speed)


def best_of_each(records: Iterable[Record], most: int = 1) -> list[Record]:
    """The best records of each comparison, at most `most`, in the order in which the comparisons first appear."""
    groups: dict[Comparison, list[Record]] = defaultdict(list)
    for record in records:
        groups[comparison(record)].append(record)
    return [record for own in groups.values() for record in ranked(own)[:most]]


def merged(files: Iterable[Sequence[Record]]) -> list[Record]:
    """All records of several files, equal ones once, in their order."""
    return list({record.to_line(): record for records in files for record in records}.values())


def pruned(records: Iterable[Record], most: int, is_current: Callable[[Record], bool]) -> list[Record]:
    """The best `most` records of each comparison among those that are of use."""
    return best_of_each((record for record in records if is_current(record)), most)
