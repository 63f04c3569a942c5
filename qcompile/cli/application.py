"""The program: its commands, loaded when they are needed, and how it ends."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import click

from ..errors import QCompileError
from ..version import __version__
from .output import examples, printable

#: command -> module of this package, in the order of --help
COMMANDS = {
    "compile": "compile",
    "run": "run",
    "verify": "verify",
    "bench": "bench",
    "explain": "explain",
    "tune": "tune",
    "records": "records",
    "targets": "targets",
}
INTERRUPTED = 130
WRONG_INPUT = QCompileError.exit_status


class Application(click.Group):
    """A group whose commands are the objects `command` of the modules in `COMMANDS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, or None."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f".{COMMANDS[cmd_name]}", __package__).command
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses the program's own options; --help and --version print and end here."""
        with _orderly(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs a command."""
        with _orderly(ctx):
            return super().invoke(ctx)


@contextlib.contextmanager
def _orderly(ctx: click.Context) -> Iterator[None]:
    """Turns every way to end into a message and an exit status, and warnings into lines."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal without UTF-8
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            yield
            sys.stdout.flush()
        except QCompileError as error:
            _fail(ctx, str(error), error.exit_status)
        except MemoryError:
            _fail(ctx, "There is not enough memory.", WRONG_INPUT)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            # what is still buffered must not raise again when the interpreter ends
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(INTERRUPTED)
        except OSError as error:
            _fail(ctx, str(error), WRONG_INPUT)


def _fail(ctx: click.Context, message: str, status: int) -> None:
    click.echo(f"error: {printable(message, keep_lines=True)}", err=True)
    ctx.exit(status)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    click.echo(f"warning: {printable(' '.join(str(message).split()))}", err=True)


@click.group(
    cls=Application,
    epilog=examples(
        "qcompile compile model.onnx -o model.qcb",
        "qcompile verify model.qcb",
        "qcompile bench model.qcb --threads 1 --threads 8",
        "qcompile COMMAND --help",
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="qcompile %(version)s")
def application() -> None:
    """Compiles quantized int8 operators into exact, fast native modules.

    Exit status: 0 success, 1 a check failed, 2 wrong usage or input, 130 interrupted.
    """
