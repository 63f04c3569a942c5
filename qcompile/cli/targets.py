"""`qcompile targets`."""

from __future__ import annotations

from typing import Any

import click

from . import output
from .arguments import json_option


@click.command(epilog=output.examples("qcompile targets", "qcompile targets --json"))
@json_option()
def command(as_json: bool) -> None:
    """List the targets, and what this machine can do with them."""
    from ..backends import compiler_of, executor_of, targets
    from ..errors import UnknownNameError

    try:
        host = targets.host().name
    except UnknownNameError:
        host = None
    rows: list[dict[str, Any]] = []
    for entry in targets.load_all():
        executor, needs = executor_of(entry.kind), entry.facts.needs
        missing = executor.missing(needs)
        obstacles = [str(error) for error in compiler_of(entry.kind).obstacles(entry)]
        rows.append(
            {
                "name": entry.name,
                "description": entry.description,
                "kind": entry.kind,
                "needs": dict(needs),
                "requirements": executor.requirements(needs),
                "is_host": entry.name == host,
                "runs_here": not missing,
                "missing": missing,
                "emulated_device": executor.emulated_device(needs),
                "compiles_here": not obstacles,
                "obstacles": obstacles,
            }
        )
    if as_json:
        output.print_json({"host": host, "targets": rows})
    else:
        _print(rows)


def _lacks(row: dict[str, Any]) -> str:
    emulated = f" (emulated: {row['emulated_device']})" if row["emulated_device"] else ""
    return f"no, lacks {', '.join(row['missing'])}{emulated}"


def _print(rows: list[dict[str, Any]]) -> None:
    output.print_table(
        {"target": "whole", "description": "left", "needs": "left", "runs here": "left", "compiles here": "left"},
        [
            (
                row["name"] + (" (host)" if row["is_host"] else ""),
                row["description"],
                " ".join(row["requirements"]),
                "yes" if row["runs_here"] else _lacks(row),
                "yes" if row["compiles_here"] else "no",
            )
            for row in rows
        ],
    )  # fmt: skip
    for obstacle in dict.fromkeys(obstacle for row in rows for obstacle in row["obstacles"]):
        output.print_line()
        for line in obstacle.splitlines():
            output.print_line(line)
