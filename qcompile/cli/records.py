"""`qcompile records`: looks at files of records, and makes new ones of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from . import output
from .arguments import json_option

if TYPE_CHECKING:
    from ..records import Record


@click.group(
    epilog=output.examples(
        "qcompile records show tuned.json",
        "qcompile records best tuned.json --json",
        "qcompile records merge here.json there.json -o all.json",
        "qcompile records prune tuned.json --keep 3",
        "qcompile records export tuned.json -o schedules",
    )
)
def command() -> None:
    """Show, merge, prune and export the records of `qcompile tune`.

    Of several records of one schedule, on the same CPU and with as many threads, the latest counts.
    """


@command.command(epilog=output.examples("qcompile records show tuned.json --json"))
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--kernel", metavar="NAME", help="Only this operator, by its name.")
@click.option("--target", metavar="NAME", help="Only this target.")
@json_option()
def show(files: tuple[str, ...], kernel: str | None, target: str | None, as_json: bool) -> None:
    """List records, the best of each kernel first, and failures with their causes."""
    from .. import records

    latest = [
        record
        for record in records.latest(_read(files))
        if kernel in (None, record.kernel) and target in (None, record.target)
    ]
    latest.sort(key=lambda record: (*records.comparison(record), not record.is_ok, records.speed(record)))
    if as_json:
        output.print_json({"records": [_plain(record) for record in latest]})
        return
    groups: dict[object, list[Record]] = {}
    for record in latest:
        groups.setdefault(records.comparison(record), []).append(record)
    for number, own in enumerate(groups.values()):
        if number:
            output.print_line()
        _print_group(own)
    if not latest:
        output.print_line("no records")


@command.command(
    epilog=output.examples("qcompile records best tuned.json", "qcompile records best a.json b.json --json")
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@json_option()
def best(files: tuple[str, ...], as_json: bool) -> None:
    """List the best record of each kernel, target, number of threads and CPU."""
    from .. import records

    found = records.best_of_each(_read(files))
    if as_json:
        output.print_json({"records": [_plain(record) for record in found]})
        return
    output.print_table(
        {"kernel": "left", "target": "left", "threads": "right", "median µs": "right", "rate": "right", "rule": "left"},
        [
            (record.kernel, record.target, record.threads, _microseconds(record), _rate(record), record.rule)
            for record in found
        ],
    )


@command.command(epilog=output.examples("qcompile records merge here.json there.json -o all.json"))
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("-o", "--output", "path", required=True, metavar="OUT", help="The file to write.")
@json_option()
def merge(files: tuple[str, ...], path: str, as_json: bool) -> None:
    """Write the records of several files into one, equal ones once."""
    from .. import records
    from ..system.files import check_writable

    check_writable(path, "The file of records", files)
    read = [records.read(file) for file in files]
    merged = records.merged(read)
    records.write(path, merged)
    doubles = sum(map(len, read)) - len(merged)
    if as_json:
        output.print_json({"output": path, "records": len(merged), "doubles": doubles})
    else:
        count = output.counted(len(merged), "record")
        output.print_line(f"{path}: {count}, {doubles} left out that were there twice")


@command.command(
    epilog=output.examples(
        "qcompile records prune tuned.json", "qcompile records prune tuned.json --keep 1 -o best.json"
    )
)
@click.argument("file", metavar="FILE")
@click.option(
    "--keep",
    type=click.IntRange(1, 1_000_000),
    default=5,
    show_default=True,
    metavar="N",
    help="Records to keep of each kernel, target, number of threads and CPU.",
)
@click.option("-o", "--output", "path", metavar="OUT", help="The file to write.  [default: FILE itself]")
@json_option()
def prune(file: str, keep: int, path: str | None, as_json: bool) -> None:
    """Keep the best records; drop failures, and those of rules that have changed.

    What is dropped is forgotten: `qcompile tune` would try it again.
    """
    from .. import records
    from ..planning import is_current
    from ..system.files import check_writable

    counts = [0, 0]

    def change(found: Sequence[Record]) -> list[Record]:
        kept = records.pruned(found, keep, is_current)
        counts[:] = [len(kept), len(found) - len(kept)]
        return kept

    if path is None:
        records.rewrite(file, change)
    else:
        check_writable(path, "The file of records", (file,))
        records.write(path, change(records.read(file)))
    if as_json:
        output.print_json({"output": path or file, "kept": counts[0], "dropped": counts[1]})
    else:
        output.print_line(f"{path or file}: {output.counted(counts[0], 'record')} kept, {counts[1]} dropped")


@command.command(epilog=output.examples("qcompile records export tuned.json -o schedules"))
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("-o", "--output", "folder", required=True, metavar="FOLDER", help="An existing folder.")
@click.option("--name", default="best", show_default=True, metavar="NAME", help="Name of the files, without suffix.")
@json_option()
def export(files: tuple[str, ...], folder: str, name: str, as_json: bool) -> None:
    """Write the best records to FOLDER/TARGET/tuned/NAME.json, as the package keeps them."""
    from .. import records
    from ..planning import is_current

    written = records.export(_read(files), folder, is_current, name)
    rows = [{"path": str(path), "target": own[0].target, "records": len(own)} for path, own in written.items()]
    if as_json:
        output.print_json({"files": rows})
        return
    for path, own in written.items():
        output.print_line(f"{path}: {output.counted(len(own), 'record')}")


def _read(files: Sequence[str]) -> list[Record]:
    from .. import records

    return records.merged(records.read(file) for file in files)


def _plain(record: Record) -> dict[str, Any]:
    return {**asdict(record), "constants": list(record.constants)}


def _print_group(own: Sequence[Record]) -> None:
    first = own[0]
    output.print_line(first.kernel)
    fields = [
        ("constants", ", ".join(first.constants) or "none"),
        ("measured for", f"{first.target}, {output.counted(first.threads, 'thread')}, on {first.cpu}"),
    ]
    output.print_fields(fields, indent=2)
    output.print_table(
        {"rule": "left", "knobs": "left", "median µs": "right", "rate": "right", "result": "left"},
        [
            (
                f"{record.rule} {record.rule_version}",
                _knobs(record),
                _microseconds(record),
                _rate(record),
                record.stage if record.is_ok else f"{record.status}: {record.cause}",
            )
            for record in own
        ],
    )


def _knobs(record: Record) -> str:
    return " ".join(f"{knob}={value}" for knob, value in record.knobs.items())


def _microseconds(record: Record) -> str:
    return "" if record.seconds is None else f"{record.seconds * 1e6:.1f}"


def _rate(record: Record) -> str:
    from ..checks.timing import unit_of
    from ..spec import naming

    if record.seconds is None:
        return ""
    operator = naming.parse(record.kernel)
    return output.rate(operator.operations / record.seconds / 1e9, unit_of(operator))
