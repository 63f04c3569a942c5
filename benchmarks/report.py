"""Prints measurements as tables of at most 100 columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from measure import RIGHT, Line, geometric_mean
from rich.console import Console
from rich.table import Table

WIDTH = 100
#: A spread from which on a line is doubtful: something else ran on the machine.
UNSTEADY = 0.1
#: peer -> how tables call it
_SHORT = {
    "onnxruntime": "ort",
    "onnxruntime-precise": "precise",
    "torch-fbgemm": "fbgemm",
    "torch-onednn": "onednn",
    "tensorflow": "tf",
}

Before = Mapping[tuple[str, str, str, str, int], float]


def print_report(lines: Sequence[Line], before: Before, not_held: Mapping[str, str]) -> None:
    """A table for each suite, types, layout and number of threads, and a summary under each.

    Args:
        lines: in the order in which they were measured.
        before: key of a line -> microseconds of an earlier run.
        not_held: peer -> sentence, as held.not_held returns them.
    """
    console = Console(width=WIDTH)
    ordered = sorted(lines, key=lambda line: (line.suite, line.types, line.layout, line.threads))
    groups = {key: list(group) for key, group in groupby(ordered, key=_group)}
    for key in dict.fromkeys(map(_group, lines)):
        console.print(_table(groups[key], before))
        console.print(_summary(groups[key]))
    for sentence in not_held.values():
        console.print(sentence, markup=False, highlight=False)


def _group(line: Line) -> tuple[str, str, str, int]:
    return line.suite, line.types, line.layout, line.threads


def speed_up(line: Line, before: Before) -> float | None:
    """Time of the earlier run / time now, or None."""
    return before[line.key] / line.microseconds if line.key in before else None


def _table(lines: Sequence[Line], before: Before) -> Table:
    first = lines[0]
    threads = f"{first.threads} thread{'s' if first.threads > 1 else ''}"
    title = ", ".join(word for word in (first.suite, first.types, first.layout, threads) if word)
    is_elementwise = any(line.copy_share is not None for line in lines)
    headings = ["operator", "µs", "G/s", "x right peer", "x any peer", "wrong"]
    headings += ["copy"] if is_elementwise else ["port", "read"]
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    for position, heading in enumerate((*headings, *(["x before"] if before else []))):
        is_text = position == 0 or heading == "wrong"
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=heading != "wrong")
    for line in lines:
        held = {name: result for name, result in line.peers.items() if result.is_held}
        wrong = [_short(name) for name, result in held.items() if result.verdict == "wrong"]
        shares = [line.copy_share] if is_elementwise else [line.port_share, line.read_share]
        table.add_row(
            line.name,
            f"{line.microseconds:.0f}",
            f"{line.rate:.1f}",
            _named(line.best((*RIGHT, None))),
            _named(line.best()),
            "all" if wrong and len(wrong) == len(held) else " ".join(wrong),
            *map(_percent, shares),
            *([_number(speed_up(line, before))] if before else []),
        )
    return table


def _summary(lines: Sequence[Line]) -> str:
    """Means over the operators; and, where a network has some more than once, over the network's time."""
    rows = [
        f"geometric means: x best right peer {_number(_mean_of_best(lines, (*RIGHT, None)))}, x best peer of any kind "
        f"{_number(geometric_mean(best[1] if (best := line.best()) else None for line in lines))}"
    ]
    for name in dict.fromkeys(name for line in lines for name in line.peers):
        present = [line for line in lines if name in line.peers]
        words = [line.peers[name].verdict for line in present]
        counts = ", ".join(f"{words.count(word)} {word}" for word in (*RIGHT, "wrong") if word in words)
        mean = _number(geometric_mean(line.ratio(name) for line in present))
        time = sum(line.count * line.peers[name].microseconds for line in present)
        whole = _number(time / sum(line.count * line.microseconds for line in present))
        left_out = "" if all(line.peers[name].is_held for line in present) else "; not held, left out above"
        rows.append(
            f"  {name:19} x {mean:>5}, all layers by their counts x {whole:>5}; {counts or 'not compared'}{left_out}"
        )
    for name in dict.fromkeys(name for line in lines for name in line.failures):
        texts = [line.failures[name] for line in lines if name in line.failures]
        rows.append(f"  {name} failed at {len(texts)} of {len(lines)}, with {texts[0].splitlines()[0][:60]!r}")
    unsteady = sum(line.spread > UNSTEADY for line in lines)
    if unsteady:
        rows.append(f"  unsteady: in {unsteady} of {len(lines)}, our turns differ by more than {UNSTEADY * 100:.0f} %")
    return "\n".join([*rows, ""])


def _mean_of_best(lines: Iterable[Line], verdicts: Sequence[str | None]) -> float | None:
    return geometric_mean(best[1] if (best := line.best(verdicts)) else None for line in lines)


def _named(best: tuple[str, float] | None) -> str:
    return f"{best[1]:.2f} {_short(best[0])}" if best else "-"


def _short(name: str) -> str:
    return _SHORT.get(name, name)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value * 100:.0f} %"


def as_json(lines: Sequence[Line], before: Before, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The document of `--json`."""
    return {**facts, "lines": [{**line.as_json(), "speed_up": speed_up(line, before)} for line in lines]}
