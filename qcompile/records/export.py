"""Writes the best records as the package keeps them: one file a target."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

from ..errors import RecordsError
from .file import write
from .record import Record
from .selection import best_of_each


def export(
    records: Iterable[Record],
    folder: str | os.PathLike[str],
    is_current: Callable[[Record], bool],
    name: str = "best",
) -> dict[Path, list[Record]]:
    """Writes FOLDER/<target>/tuned/<name>.json with the best record of each comparison, where its rule is current.

    Args:
        records: of any targets.
        folder: an existing folder; those below it are made.
        is_current: whether a record's rule is there, in the same version.
        name: of the files, without suffix.

    Returns:
        The files and what they hold.

    Raises:
        RecordsError: nothing is to be written, or the name is unusable.
        FileWriteError: a file cannot be written.
    """
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", name) is None:
        raise RecordsError("The name of the files is unusable.", given=repr(name)[:80], accepted="letters and digits")
    targets: dict[str, list[Record]] = defaultdict(list)
    for record in best_of_each(filter(is_current, records)):
        targets[record.target].append(record)
    if not targets:
        raise RecordsError("There is no record to export.", accepted="records with times, of rules of this version")
    root = Path(folder)
    if not root.is_dir():
        raise RecordsError(f"There is no folder {root}.", remedy="make it, or choose another one")
    written = {}
    for target, own in sorted(targets.items()):
        path = root / target / "tuned" / f"{name}.json"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RecordsError(f"The folder {path.parent} cannot be made: {error.strerror}.") from error
        write(path, own)
        written[path] = own
    return written
