"""What all commands print with: tables, JSON, progress, and text from files made harmless."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

Progress = Callable[[int, int, str], None]

#: Plain progress lines are at least this far apart.
_SECONDS_BETWEEN_LINES = 1.0


def examples(*lines: str) -> str:
    """The end of a help text."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def printable(text: str, keep_lines: bool = False) -> str:
    """The text with escapes in place of what a terminal could take for a command: names come from foreign files."""
    return "".join(
        character
        if character.isprintable() or (keep_lines and character in "\n\t")
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def print_json(document: Any) -> None:
    """Prints one JSON document."""
    click.echo(json.dumps(document, indent=2))


def print_line(text: str = "") -> None:
    """Prints a line on stdout."""
    click.echo(printable(text))


def print_table(columns: Mapping[str, str], rows: Sequence[Sequence[object]]) -> None:
    """Prints a table that fits into the terminal; cells that are too long go on in the next line.

    Args:
        columns: heading -> "left", "right" or "whole", which is on the left; only cells of "left" are broken.
        rows: a cell for each column.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for heading, side in columns.items():
        table.add_column(
            Text(heading), justify="right" if side == "right" else "left", overflow="fold", no_wrap=side != "left"
        )
    for row in rows:
        table.add_row(*(Text(printable(str(cell))) for cell in row))
    _print_rich(table)


def print_fields(fields: Sequence[tuple[str, str]], indent: int) -> None:
    """Prints labels and texts in two columns."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in fields:
        grid.add_row(Text(label, style="dim"), Text(printable(text)))
    _print_rich(Padding(grid, (0, 0, 0, indent)))


def _print_rich(renderable: Any) -> None:
    # rich catches a closed pipe and ends the program itself, so it only makes the text
    stdout = console(sys.stdout)
    with stdout.capture() as capture:
        stdout.print(renderable)
    lines = capture.get().splitlines()
    click.echo("\n".join(line.rstrip() for line in lines), color=stdout.is_terminal or None)


def console(stream: Any) -> Console:
    """A console of rich on a stream, which takes text as it is."""
    from rich.console import Console

    return Console(file=stream, markup=False, highlight=False, emoji=False)


@contextlib.contextmanager
def progress(action: str) -> Iterator[Progress]:
    """A callback (done, in all, name of the next): a bar on stderr where that is a terminal, else lines.

    Args:
        action: a word for what is done, such as "compiling".
    """
    if not sys.stderr.isatty():
        yield _line_progress(action)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console(sys.stderr), transient=True) as bar:
        task = bar.add_task(action, total=None)

        def update(done: int, total: int, name: str) -> None:
            bar.update(task, completed=done, total=total, description=f"{action} {shortened(printable(name), 30)}")

        yield update


def _line_progress(action: str) -> Progress:
    last = -_SECONDS_BETWEEN_LINES

    def update(done: int, total: int, name: str) -> None:
        nonlocal last
        now = time.monotonic()
        if name and now - last >= _SECONDS_BETWEEN_LINES:
            last = now
            click.echo(f"{action} {done + 1}/{total}: {printable(name)}", err=True)

    return update


def shortened(text: str, width: int) -> str:
    """The text, its middle left out where it is longer than `width`."""
    half = (width - 3) // 2
    return text if len(text) <= width else f"{text[:half]}...{text[-half:]}"


def byte_size(count: int) -> str:
    """A number of bytes for people."""
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def three_digits(number: float) -> str:
    """A number with three significant digits, without an exponent where it is large."""
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"


def rate(billions: float, unit: str) -> str:
    """A rate in the prefix that suits it: `12.3 GMAC/s`, `7.43 Melement/s`."""
    if billions < 0.1:
        return f"{three_digits(1000 * billions)} M{unit}/s"
    return f"{three_digits(billions)} G{unit}/s"


def counted(count: int, noun: str) -> str:
    """A count with its noun: `1 node`, `2 nodes`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
