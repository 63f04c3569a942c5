"""Records to test with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from qcompile.backends.cpu import features as cpu_features
from qcompile.records import Record
from qcompile.schedules.rule import load_rule

from ..support import constant_names, small_convolution

KERNEL = small_convolution().name
CONSTANTS = tuple(sorted(constant_names(small_convolution())))


def make(**fields: Any) -> Record:
    """A good record of `small_convolution` with its constants; fields replace its own."""
    values: dict[str, Any] = {
        "kernel": KERNEL,
        "constants": CONSTANTS,
        "target": "x86_64",
        "rule": "cpu_plain",
        "rule_version": load_rule("cpu_plain").version,
        "knobs": {"tile": 2},
        "status": "ok",
        "threads": 1,
        "versions": {"qcompile": "0.1.0", "apache-tvm": "0.27.0.post1"},
        "cpu": cpu_features.model(),
        "date": "2026-01-31T12:00:00Z",
        "seconds": 1e-5,
        "spread": 0.01,
        "calls": 100,
        "code": "0123456789abcdef",
        **fields,
    }
    if values["status"] != "ok":
        values |= {"seconds": None, "spread": None, "calls": 0, "cause": values.get("cause") or "it broke"}
    return Record(**values)


def line_with(**fields: Any) -> str:
    """A line whose fields are replaced, whatever they are."""
    return json.dumps({**json.loads(make().to_line()), **fields})


def write_file(path: Path, *lines: Record | str) -> Path:
    """A file of these records and texts, a line each."""
    texts = [line.to_line() if isinstance(line, Record) else line for line in lines]
    path.write_text("".join(text + "\n" for text in texts), encoding="utf-8")
    return path
