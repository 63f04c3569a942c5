"""Records of tuning, and what follows from them: which rule and which numbers schedule an operator, and why."""

from __future__ import annotations

from .choice import Choice, check_knobs, find, is_current, load_rule
from .export import export
from .file import RecordFile, append, load, parse_lines, read, rewrite, write
from .record import STATUSES, Key, Point, Record
from .selection import best_of_each, comparison, latest, merged, pruned, ranked, speed

__all__ = [
    "STATUSES",
    "Choice",
    "Key",
    "Point",
    "Record",
    "RecordFile",
    "append",
    "best_of_each",
    "check_knobs",
    "comparison",
    "export",
    "find",
    "is_current",
    "latest",
    "load",
    "load_rule",
    "merged",
    "parse_lines",
    "pruned",
    "ranked",
    "read",
    "rewrite",
    "speed",
    "write",
]
