"""Records of tuning: what was measured, when and where, in files."""

from __future__ import annotations

from .export import export
from .file import RecordFile, append, load, load_each, parse_lines, read, rewrite, write
from .record import STATUSES, Key, Point, Record
from .selection import best_of_each, comparison, latest, merged, pruned, ranked, speed

__all__ = [
    "STATUSES",
    "Key",
    "Point",
    "Record",
    "RecordFile",
    "append",
    "best_of_each",
    "comparison",
    "export",
    "latest",
    "load",
    "load_each",
    "merged",
    "parse_lines",
    "pruned",
    "ranked",
    "read",
    "rewrite",
    "speed",
    "write",
]
