"""`python -m qcompile.cli`."""

from . import main

main()
