"""The command line: it parses and prints; what it prints is computed elsewhere."""

from __future__ import annotations


def main() -> None:
    """The program `qcompile`."""
    from .application import application

    application(prog_name="qcompile")
