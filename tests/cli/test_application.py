"""The program as a whole: help, start-up, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import click
import pytest

import qcompile
from qcompile.cli import application, output, targets
from qcompile.cli.application import COMMANDS
from qcompile.errors import AccumulatorOverflowWarning, QCompileError

from ..support import listen_to_interrupts
from .conftest import Cli, check_failure, check_width

PROGRAM = [sys.executable, "-m", "qcompile"]


def test_version(cli: Cli) -> None:
    result = cli("--version")
    assert (result.exit_code, result.stdout) == (0, f"qcompile {qcompile.__version__}\n")


def test_help_lists_all_commands(cli: Cli) -> None:
    result = cli("--help")
    assert result.exit_code == 0
    assert all(f"\n  {command} " in result.stdout for command in COMMANDS)
    assert "Examples:" in result.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command(cli: Cli, command: str) -> None:
    result = cli(command, "--help")
    assert result.exit_code == 0
    assert "Examples:" in result.stdout
    assert f"qcompile {command} " in result.stdout
    check_width(result.stdout)


def test_commands_without_an_implementation_are_unknown(cli: Cli) -> None:
    check_failure(cli("export"), "No such command")
    check_failure(cli("compile", "--frobnicate"), "No such option")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], *([command, "--help"] for command in COMMANDS),
                                       ["records", "show", "--help"]])  # fmt: skip
def test_help_needs_no_heavy_package(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        "from qcompile.cli import main\n"
        f"sys.argv = ['qcompile', *{arguments!r}]\n"
        "try:\n    main()\n"
        "finally:\n    print([name for name in ('numpy', 'rich', 'onnx', 'tvm') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\n[]\n")


def test_verify_and_run_need_no_compiler(bundle: Path) -> None:
    code = (
        "import sys\n"
        "from qcompile.cli import main\n"
        f"sys.argv = ['qcompile', 'verify', {str(bundle)!r}, '--rounds', '1']\n"
        "try:\n    main()\n"
        "finally:\n    print([name for name in ('onnx', 'tvm') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\n[]\n")


def test_as_a_process(bundle: Path, tmp_path: Path) -> None:
    done = subprocess.run([*PROGRAM, "verify", bundle], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "exact" in done.stdout
    assert done.stderr.splitlines() == ["verifying 1/2: conv"]
    done = subprocess.run([*PROGRAM, "verify", tmp_path / "none"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")


def test_closed_pipe() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*PROGRAM, "targets"], stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (130, "")


def fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def raise_it(**_: Any) -> None:
        raise error

    monkeypatch.setattr(targets.command, "callback", raise_it)


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(32, "Broken pipe"), 130, ""),
        (QCompileError("It is wrong.", remedy="do"), 2, "error: It is wrong.\n  remedy:   do\n"),
        (QCompileError("\x1b[2J\ud800"), 2, "error: \\x1b[2J\\ud800\n"),
        (OSError(28, "No space left on device"), 2, "error: [Errno 28] No space left on device\n"),
        (MemoryError(), 2, "error: There is not enough memory.\n"),
        (click.UsageError("no"), 2, "Usage: application targets [OPTIONS]\n"),
    ],
)
def test_ends(cli: Cli, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int, message: str) -> None:
    fail_with(monkeypatch, error)
    result = cli("targets")
    assert (result.exit_code, result.stdout) == (status, "")
    assert result.stderr.startswith(message)
    assert bool(result.stderr) == bool(message)


def test_a_fault_of_ours_is_not_hidden(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(monkeypatch, ZeroDivisionError())
    assert isinstance(cli("targets").exception, ZeroDivisionError)


def test_interrupt_of_a_process(operators: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.qcb"
    environment = {**os.environ, "QCOMPILE_CACHE": "off"}
    with subprocess.Popen(
        [*PROGRAM, "compile", operators, "-o", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment, preexec_fn=listen_to_interrupts,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        assert process.stderr.readline() == "compiling 1/2: conv\n"
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout, stderr) == (130, "", "")
    assert not list(tmp_path.iterdir())


def test_warnings_are_one_line(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def warn(**_: Any) -> None:
        warnings.warn("It may\noverflow.", AccumulatorOverflowWarning, stacklevel=2)

    monkeypatch.setattr(targets.command, "callback", warn)
    before = warnings.showwarning
    result = cli("targets")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "warning: It may overflow.\n")
    assert warnings.showwarning is before


def test_exit_status_of_errors() -> None:
    assert application.WRONG_INPUT == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("conv1", "conv1"),
        ("a\x1b[31m\rb\n", "a\\x1b[31m\\rb\\n"),
        ("gr\u00f6\u00dfe \u4e2d", "gr\u00f6\u00dfe \u4e2d"),
        ("\u202e", "\\u202e"),
    ],
)
def test_printable(text: str, expected: str) -> None:
    assert output.printable(text) == expected


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 << 20, "5.0 MiB"), (3 << 30, "3.0 GiB")]
)
def test_byte_size(count: int, text: str) -> None:
    assert output.byte_size(count) == text


def test_three_digits() -> None:
    assert [output.three_digits(number) for number in (12345.6, 12.345, 0.0012345)] == ["12346", "12.3", "0.00123"]


def test_progress_lines_are_few(capsys: pytest.CaptureFixture[str]) -> None:
    with output.progress("tasting") as progress:
        for number in range(50):
            progress(number, 50, f"soup {number}")
        progress(50, 50, "")
    assert capsys.readouterr().err == "tasting 1/50: soup 0\n"


def test_progress_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with output.progress("tasting") as progress:
        progress(0, 2, "[red]soup")
        progress(2, 2, "")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "2/2" in captured.err
