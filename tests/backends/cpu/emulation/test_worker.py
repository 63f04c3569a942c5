"""The process that emulates: it is shared, replaced when it dies, and never left behind."""

from __future__ import annotations

import importlib.util
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qcompile as qc
from qcompile.backends.cpu.emulation.bochs import client
from qcompile.backends.cpu.emulation.interface import open_library
from qcompile.backends.interface import RunOptions
from qcompile.system.processes import Worker

from .support import needs_emulator, open_tiny, run_tiny, tiny_library, worker_process

pytestmark = needs_emulator

ADD = "for (int i = 0; i < 5; i++) output[i] = input[i] + 1;"
ENDLESS = "while (input[0] != 9) output[0] = 1;"
RIGHT = b"\2\3\4\5\6"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> client.EmulatedLibrary:
    return open_tiny(tmp_path_factory.mktemp("tiny"), ADD)


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> client.EmulatedLibrary:
    """Its kernel does not end unless the input begins with 9."""
    return open_tiny(tmp_path_factory.mktemp("endless"), ENDLESS)


@pytest.fixture
def no_worker() -> Iterator[None]:
    """No process runs when the test begins, so that one has to be started."""
    client.stop_all()
    yield
    client.stop_all()


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_one_process_serves_all_libraries(tmp_path: Path, library: client.EmulatedLibrary) -> None:
    assert run_tiny(library) == RIGHT
    before = worker_process("haswell")
    other = open_tiny(tmp_path, "output[0] = 77;")
    again = client.open_library(library._content, "haswell", "again")
    assert run_tiny(other)[0] == 77
    assert run_tiny(again) == RIGHT
    assert worker_process("haswell") == before


def test_killed_between_calls(library: client.EmulatedLibrary) -> None:
    run_tiny(library)
    before, worker = worker_process("haswell"), client._emulators["haswell"]._worker
    assert worker is not None
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: not worker.is_alive)
    assert run_tiny(library) == RIGHT
    assert worker_process("haswell") != before


def test_killed_during_a_call(library: client.EmulatedLibrary, endless: client.EmulatedLibrary) -> None:
    run_tiny(endless, b"\11\0\0\0\0")
    killer = threading.Timer(0.3, os.kill, (worker_process("haswell"), signal.SIGKILL))
    killer.start()
    with pytest.raises(qc.EmulationError, match="emulator of haswell has died: the process was ended by SIGKILL"):
        run_tiny(endless)
    killer.join()
    assert run_tiny(library) == RIGHT


class Interrupt(Exception):  # noqa: N818
    pass


def test_interrupted(
    library: client.EmulatedLibrary, endless: client.EmulatedLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer that nobody waits for any more is not taken for the next one."""

    def interrupt(number: int, frame: Any) -> None:
        raise Interrupt

    run_tiny(library)
    process = worker_process("haswell")
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(Interrupt):
            run_tiny(endless)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not is_running(process)
    assert run_tiny(library) == RIGHT


def test_much_memory(library: client.EmulatedLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    run_tiny(library)
    before = worker_process("haswell")
    monkeypatch.setattr(client, "MAXIMUM_RESIDENT", 1 << 20)
    assert run_tiny(library) == RIGHT
    assert worker_process("haswell") != before
    assert not is_running(before)


def test_many_calls_take_no_more_memory(library: client.EmulatedLibrary) -> None:
    data, output = np.zeros(1 << 20, np.uint8), np.zeros(1 << 20, np.uint8)

    def resident() -> int:
        for _ in range(30):
            library.run(0, [data], [output], RunOptions(1))
        return client._emulators["haswell"]._resident

    first = resident()
    assert resident() < first + (4 << 20)


def test_threads(library: client.EmulatedLibrary, tmp_path: Path) -> None:
    """Their calls wait for each other; each knows how many instructions its own took."""
    longer = open_tiny(tmp_path, "for (int k = 0; k < 100; k++) " + ADD)
    for _ in range(2):  # the first call in a process may take some more
        run_tiny(library)
        run_tiny(longer)
    short = library.instructions
    wrong: list[str] = []

    def work(own: client.EmulatedLibrary) -> None:
        for _ in range(40):
            if run_tiny(own) != RIGHT:
                wrong.append("result")
            if (own.instructions == short) != (own is library):
                wrong.append("count")

    threads = [threading.Thread(target=work, args=(own,)) for own in (library, longer, library)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert run_tiny(library) == RIGHT, "the worker does not end with the thread that has started it"


def test_a_worker_outlives_the_thread_that_started_it(no_worker: None, library: client.EmulatedLibrary) -> None:
    thread = threading.Thread(target=run_tiny, args=(library,))
    thread.start()
    thread.join()
    before = worker_process("haswell")
    time.sleep(0.5)
    assert run_tiny(library) == RIGHT
    assert worker_process("haswell") == before


def test_after_a_fork(library: client.EmulatedLibrary) -> None:
    """A child starts a process of its own and leaves the parent's alone."""
    run_tiny(library)
    before = worker_process("haswell")
    child = os.fork()
    if child == 0:
        try:
            is_right = run_tiny(library) == RIGHT and worker_process("haswell") != before
            client.stop_all()
            os._exit(0 if is_right else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert run_tiny(library) == RIGHT
    assert worker_process("haswell") == before


def test_a_fork_while_another_thread_calls(library: client.EmulatedLibrary, endless: client.EmulatedLibrary) -> None:
    run_tiny(endless, b"\11\0\0\0\0")
    process = worker_process("haswell")
    failures: list[BaseException] = []

    def call() -> None:
        try:
            run_tiny(endless)
        except qc.EmulationError as error:
            failures.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    time.sleep(0.2)
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if run_tiny(library) == RIGHT else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert is_running(process)
    os.kill(process, signal.SIGKILL)
    thread.join()
    assert len(failures) == 1


PARENT = """
import sys
import numpy as np
from qcompile.backends.cpu.emulation.bochs import client
library = client.open_library(open(sys.argv[1], "rb").read(), "haswell", "it")
print(client._emulators["haswell"]._worker._process.pid, flush=True)
if sys.argv[2] == "run":
    library.run(0, [np.zeros(5, np.uint8)], [np.zeros(5, np.uint8)], RunOptions(1))
elif sys.argv[2] == "wait":
    sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["run", "wait", "end"])
def test_a_worker_ends_with_its_parent(tmp_path: Path, how: str) -> None:
    (tmp_path / "endless.so").write_bytes(tiny_library(tmp_path, ENDLESS))
    (tmp_path / "temporary").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "endless.so"), how],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    ) as parent:  # fmt: skip
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        if how == "end":
            assert parent.wait(30) == 0
            assert not list((tmp_path / "temporary").iterdir()), "no folder is left"
        else:
            assert is_running(worker)
            time.sleep(0.3)
            parent.kill()
    wait_until(lambda: not is_running(worker))


def test_not_installed(no_worker: None, library: client.EmulatedLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(qc.EmulationError, match="bochscpu is not installed") as caught:
        run_tiny(library)
    assert caught.value.remedy == "pip install bochscpu-python==0.4.0"
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(qc.EmulationError, match="does not exist for this machine or this version of Python") as caught:
        run_tiny(library)
    assert "riscv64" in str(caught.value.given)
    assert caught.value.accepted == "Python 3.10 to 3.13 on linux x86_64"
    monkeypatch.undo()
    assert run_tiny(library) == RIGHT


def test_a_package_that_cannot_be_loaded(
    no_worker: None, library: client.EmulatedLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bochscpu.py").write_text("raise ImportError('the system is too old')", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    with pytest.raises(qc.EmulationError, match="bochscpu cannot be loaded") as caught:
        run_tiny(library)
    assert caught.value.given == "the system is too old"


def test_a_worker_that_does_not_start(
    no_worker: None, library: client.EmulatedLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(qc.EmulationError, match=r"has died: the process ended with status 1"):
        run_tiny(library)


def test_no_c_compiler(no_worker: None, library: client.EmulatedLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(qc.ToolchainError, match="No C compiler was found"):
        run_tiny(library)


def test_unknown_names() -> None:
    with pytest.raises(qc.EmulationError, match="Unknown CPU model to emulate") as caught:
        open_library(b"", "x86_64", "i386", "target t")
    assert "haswell" in str(caught.value.accepted)
    with pytest.raises(qc.EmulationError, match="no emulator for target t") as caught:
        open_library(b"", "vax", "780", "target t")
    assert caught.value.accepted == "x86_64"


def test_a_library_that_is_none(no_worker: None) -> None:
    with pytest.raises(qc.EmulationError, match="no shared object for x86-64, or damaged"):
        open_library(b"nothing", "x86_64", "haswell", "target t")


def test_bytes_that_follow_an_answer(tmp_path: Path) -> None:
    code = (
        "import json, sys\n"
        "size = json.loads(sys.stdin.buffer.readline())['size']\n"
        "content = sys.stdin.buffer.read(size)\n"
        "sys.stdout.buffer.write(b'{\"a\": 1}\\n' + content[::-1]); sys.stdout.flush()\n"
        "sys.stdin.buffer.read()\n"
    )
    worker = Worker((sys.executable, "-c", code), tmp_path, "reverser")
    worker.start()
    content = np.random.default_rng(0).integers(0, 256, 300_000, dtype=np.uint8)
    worker.ask({"size": content.size}, [content.tobytes()])
    assert worker.answer(30) == {"a": 1}
    received = bytearray(content.size)
    worker.receive_into(memoryview(received))
    assert received == content[::-1].tobytes()
    worker.stop()
