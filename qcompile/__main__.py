"""`python -m qcompile`."""

from .cli import main

main()
