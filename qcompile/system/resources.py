"""The only reader of the data files in schedules/ and targets/."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

from ..errors import TargetFileError
from .hashing import digest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_PACKAGE = Path(__file__).resolve().parents[1]
_TARGETS = _PACKAGE / "targets"
_SCHEDULES = _PACKAGE / "schedules"
_MAXIMUM_BYTES = 1 << 20
#: modules beside the rules that are not rules
_SHARED_SCHEDULES = ("cpu_accumulate", "cpu_moves", "cpu_tile")


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Parses a TOML file.

    Raises:
        TargetFileError: it cannot be read, is too large, or is not TOML; `what` names it in the message.
    """
    try:
        if path.stat().st_size > _MAXIMUM_BYTES:
            raise TargetFileError(f"{what} {path} is too large.", accepted=f"at most {_MAXIMUM_BYTES} bytes")
        content: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        return content
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise TargetFileError(f"{what} {path} cannot be read: {error}.") from error


def target_names() -> list[str]:
    """Names of the targets that come with the package."""
    return sorted(path.stem for path in _TARGETS.glob("*.toml"))


def rule_names() -> list[str]:
    """Names of the modules that schedule for CPUs."""
    return sorted(path.stem for path in _SCHEDULES.glob("cpu_*.py") if path.stem not in _SHARED_SCHEDULES)


def read_target(name: str) -> dict[str, Any]:
    """The content of a target's file."""
    return read_toml(_TARGETS / f"{name}.toml", "The target file")


def read_defaults(target: str) -> dict[str, dict[str, Any]]:
    """Rule -> knob -> value, as reviewed for a target; empty where there are none."""
    path = _SCHEDULES / target / "defaults.toml"
    return read_toml(path, "The file of default knobs") if path.is_file() else {}


def read_tuned(target: str) -> list[tuple[str, bytes]]:
    """(name, content) of the files of reviewed records of a target.

    Raises:
        TargetFileError: one cannot be read.
    """
    files = sorted((_SCHEDULES / target / "tuned").glob("*.json"))
    try:
        return [(f"schedules/{target}/tuned/{path.name}", path.read_bytes()) for path in files]
    except OSError as error:
        raise TargetFileError(f"The tuned records of {target} cannot be read: {error}.") from error


@functools.cache
def source_digest(places: tuple[str, ...]) -> str:
    """A digest of the Python sources in files and folders of the package.

    Not of the tuned records: a record changes code only through the rule and the knobs that it leads to.

    Args:
        places: paths relative to the package.
    """
    paths = sorted({path for place in places for path in _sources_in((_PACKAGE / place).resolve())})
    return digest(*(part for path in paths for part in (path.name, path.read_bytes())))


def _sources_in(place: Path) -> list[Path]:
    return list(place.rglob("*.py")) if place.is_dir() else [place]
