"""How `qcompile tune` shows its progress: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import click

from . import output

if TYPE_CHECKING:
    from ..tuning.report import Progress

Tell = Callable[["Progress"], None]

#: Plain lines of one kernel are at least this far apart.
_SECONDS_BETWEEN_LINES = 10.0
_NAME_WIDTH = 24


@contextlib.contextmanager
def tuning_progress() -> Iterator[Tell]:
    """A callback for `tuning.tune`."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}", markup=False),
    )
    # it is drawn when there is news, and not by a thread of its own, which would disturb what is measured
    with Bars(*columns, console=output.console(sys.stderr), transient=True, auto_refresh=False) as bars:
        task = bars.add_task("tuning", total=None, state="")

        def update(progress: Progress) -> None:
            name = output.shortened(output.printable(progress.name), _NAME_WIDTH)
            description = f"tuning {progress.number}/{progress.count} {name}"
            state = ", ".join(_state(progress))
            bars.update(task, completed=progress.trials, total=progress.budget, description=description, state=state)
            bars.refresh()

        yield update


def _lines() -> Tell:
    last = 0.0

    def update(progress: Progress) -> None:
        nonlocal last
        now = time.monotonic()
        if progress.step == "searching" and now - last < _SECONDS_BETWEEN_LINES:
            return
        last = now
        parts = [progress.step, f"{progress.trials} of {output.counted(progress.budget, 'trial')}", *_state(progress)]
        click.echo(
            f"tuning {progress.number}/{progress.count} {output.printable(progress.name)}: {', '.join(parts)}", err=True
        )

    return update


def _state(progress: Progress) -> list[str]:
    """Best so far, how much faster than the default, failures, time left."""
    parts = []
    if progress.best is not None:
        parts.append(f"best {output.rate(progress.operations / progress.best / 1e9, progress.unit)}")
        if progress.default is not None:
            parts.append(f"{progress.default / progress.best:.2f} x default")
    parts += [f"{count} {status}" for status, count in failures(progress.statuses)]
    if progress.remaining is not None:
        parts.append(f"{progress.remaining:.0f} s left")
    return parts


def failures(statuses: Mapping[str, int]) -> list[tuple[str, int]]:
    """(status, how many), of those that are no success."""
    return [(status, count) for status, count in statuses.items() if status != "ok" and count]
