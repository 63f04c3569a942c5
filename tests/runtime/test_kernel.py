"""Calling kernels: names, shapes, dtypes, memory, threads, and the messages for what is wrong."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import qcompile as qc
from qcompile.reference import evaluate
from qcompile.reference.random_values import random_values

from ..conftest import RUNNABLE_TARGETS
from ..support import small_constants, small_convolution, small_input

OPERATOR = small_convolution()
CONSTANTS = small_constants()


@pytest.fixture(scope="module")
def kernel() -> qc.Kernel:
    compiled: qc.Kernel = qc.compile(OPERATOR, constants=CONSTANTS)
    return compiled


@pytest.fixture(scope="module")
def run_time_kernel() -> qc.Kernel:
    return qc.compile(small_convolution(bias=False, filter_zero_point="per_channel", filter_scale="per_channel"))


@pytest.fixture(scope="module")
def expected() -> Any:
    return qc.reference(OPERATOR, input=small_input(), **CONSTANTS)


def run_time_tensors(**changes: Any) -> dict[str, Any]:
    constants = {name: value for name, value in CONSTANTS.items() if name != "bias"}
    tensors = {**constants, "input": small_input(), "filter_scale": np.full(8, 0.01, np.float32)}
    tensors["filter_zero_point"] = np.arange(8, dtype=np.int8)
    return {**tensors, **changes}


def test_describes_itself(kernel: qc.Kernel) -> None:
    assert kernel.operator == OPERATOR
    assert [tensor.name for tensor in kernel.inputs] == ["input"]
    assert kernel.inputs[0].shape == (1, 4, 6, 5)
    assert kernel.outputs[0].dtype == "uint8"
    assert str(kernel.variant) in RUNNABLE_TARGETS
    assert kernel.workspace_bytes >= 0
    assert set(kernel.constants) == set(CONSTANTS)
    assert not kernel.constants["filter"].flags.writeable
    assert kernel.name in repr(kernel)


def test_exact(kernel: qc.Kernel, expected: Any) -> None:
    assert np.array_equal(kernel(input=small_input()), expected)


@pytest.mark.parametrize("offset", range(1, 9))
def test_misaligned_arrays(kernel: qc.Kernel, expected: Any, offset: int) -> None:
    memory = np.zeros(small_input().nbytes + 64, np.uint8)
    misaligned = memory[offset : offset + small_input().nbytes].reshape(small_input().shape)
    misaligned[...] = small_input()
    out = np.zeros(expected.nbytes + 64, np.uint8)[offset : offset + expected.nbytes].reshape(expected.shape)
    assert kernel(input=misaligned, out=out) is out
    assert np.array_equal(out, expected)


def test_misaligned_numbers_of_several_bytes() -> None:
    operator = qc.QuantizeLinear(qc.Tensor((3, 50), "float32"), "int8", scale="per_axis", axis=0)
    quantize = qc.compile(operator)
    values = random_values(operator, np.random.default_rng(0))
    memory = np.zeros(values["input"].nbytes + 8, np.uint8)
    odd = memory[3 : 3 + values["input"].nbytes].view(np.float32).reshape(3, 50)
    odd[...] = values["input"]
    assert not odd.flags.aligned
    assert np.array_equal(quantize(**{**values, "input": odd}), evaluate(operator, values)["output"])


def test_arrays_that_are_not_contiguous(kernel: qc.Kernel, expected: Any) -> None:
    wide = np.repeat(small_input(), 2, axis=3)[..., ::2]
    assert not wide.flags.c_contiguous
    assert np.array_equal(kernel(input=wide), expected)
    assert np.array_equal(kernel(input=np.asfortranarray(small_input())), expected)


def test_dlpack(kernel: qc.Kernel, expected: Any) -> None:
    class Foreign:
        def __dlpack__(self, **keywords: Any) -> Any:
            return small_input().__dlpack__(**keywords)

        def __dlpack_device__(self) -> Any:
            return small_input().__dlpack_device__()

    assert np.array_equal(kernel(input=Foreign()), expected)


def test_arrays_that_raise(kernel: qc.Kernel) -> None:
    class Broken:
        def __dlpack__(self, **keywords: Any) -> Any:
            raise BufferError("on another device")

        def __dlpack_device__(self) -> Any:
            return 2, 0

    with pytest.raises(qc.InvalidTensorError, match="input cannot be read as an array"):
        kernel(input=Broken())


def test_nested_lists(kernel: qc.Kernel, expected: Any) -> None:
    assert np.array_equal(kernel(input=small_input().tolist()), expected)


def test_zero_points_may_be_left_out(run_time_kernel: qc.Kernel) -> None:
    tensors = run_time_tensors()
    for name in ("input_zero_point", "filter_zero_point", "output_zero_point"):
        del tensors[name]
    assert np.array_equal(run_time_kernel(**tensors), qc.reference(run_time_kernel.operator, **tensors))


@pytest.mark.parametrize("shape", [(8,), (1, 8, 1, 1), (8, 1, 1)])
def test_parameters_in_broadcast_shapes(run_time_kernel: qc.Kernel, shape: tuple[int, ...]) -> None:
    scales = np.linspace(0.001, 0.02, 8, dtype=np.float32)
    tensors = run_time_tensors(filter_scale=scales.reshape(shape), input_zero_point=np.full((1, 1, 1, 1), 7, np.uint8))
    assert np.array_equal(run_time_kernel(**tensors), qc.reference(run_time_kernel.operator, **tensors))
    one = run_time_tensors(filter_scale=0.5)
    assert np.array_equal(run_time_kernel(**one), qc.reference(run_time_kernel.operator, **one))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input": small_input()[..., :4]}, "input has the wrong shape"),
        ({"input": small_input().astype(np.int8)}, "input has the wrong dtype"),
        ({"input": None}, "input has the wrong dtype"),
        ({"input": "text"}, "input has the wrong dtype"),
        ({"imput": small_input()}, "'imput', which is not one of its tensors"),
        ({"bias": np.zeros(8, np.int32)}, "'bias', which is not one of its tensors"),
        ({"filter_scale": np.ones(3, np.float32)}, "filter_scale has the wrong shape"),
        ({"filter_scale": np.ones((1, 1, 1, 8), np.float32)}, "filter_scale has the wrong shape"),
        ({"filter_scale": np.ones(8)}, "filter_scale has the wrong dtype"),
        ({"input_zero_point": np.int8(3)}, "input_zero_point has the wrong dtype"),
        ({"input_zero_point": 256}, "input_zero_point has a number outside uint8"),
        ({"num_threads": 0}, "Invalid value for num_threads="),
        ({"num_threads": 1.5}, "Invalid value for num_threads="),
    ],
)
def test_wrong_tensors(run_time_kernel: qc.Kernel, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(qc.InvalidTensorError, match=message):
        run_time_kernel(**run_time_tensors(**changes))


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf"), 1e-35])
@pytest.mark.parametrize("name", ["input_scale", "filter_scale", "output_scale"])
def test_wrong_scales_at_run_time(run_time_kernel: qc.Kernel, name: str, bad: float) -> None:
    with pytest.raises(qc.InvalidQuantizationError, match=f"{name} has a value that is no scale"):
        run_time_kernel(**run_time_tensors(**{name: bad}))


def test_scales_whose_product_overflows_at_run_time(run_time_kernel: qc.Kernel) -> None:
    with pytest.raises(qc.InvalidQuantizationError, match=r"multiplier input_scale \* filter_scale"):
        run_time_kernel(**run_time_tensors(input_scale=1e30, filter_scale=1e30))


def test_a_run_time_scale_that_does_not_fit_a_constant_one() -> None:
    operator = qc.Requantize(qc.Tensor((3,), "int32"))
    kernel = qc.compile(operator, constants={"input_scale": 1e30})
    with pytest.raises(qc.InvalidQuantizationError, match="multiplier input_scale / output_scale"):
        kernel(input=np.zeros(3, np.int32), output_scale=1e-30)


def test_missing_tensors(kernel: qc.Kernel) -> None:
    with pytest.raises(qc.InvalidTensorError, match="called without input"):
        kernel()


def test_constants_cannot_be_given_again(kernel: qc.Kernel) -> None:
    with pytest.raises(qc.InvalidTensorError, match="'filter', which is a constant of this kernel"):
        kernel(input=small_input(), filter=CONSTANTS["filter"])


@pytest.mark.parametrize(
    "out",
    [
        np.zeros((1, 8, 6, 4), np.uint8),
        np.zeros((1, 8, 6, 5), np.int8),
        np.zeros((1, 8, 6, 10), np.uint8)[..., ::2],
        np.broadcast_to(np.zeros(1, np.uint8), (1, 8, 6, 5)),
        "text",
        [],
    ],
)
def test_wrong_out(kernel: qc.Kernel, out: Any) -> None:
    with pytest.raises(qc.InvalidTensorError, match="out="):
        kernel(input=small_input(), out=out)


def test_out_that_overlaps_the_input() -> None:
    operator = qc.QuantizedLinearMatrixMultiply(qc.Tensor((4, 4), "uint8"), qc.Tensor((4, 4), "uint8"))
    kernel = qc.compile(operator)
    a = np.ones((4, 4), np.uint8)
    with pytest.raises(qc.InvalidTensorError, match="overlaps the input a"):
        kernel(a=a, b=np.ones((4, 4), np.uint8), a_scale=1.0, b_scale=1.0, output_scale=1.0, out=a)


def test_several_outputs() -> None:
    operator = qc.DynamicQuantizeLinear(qc.Tensor((3, 7), "float32"))
    kernel = qc.compile(operator)
    x = np.linspace(-1, 2, 21, dtype=np.float32).reshape(3, 7)
    result = kernel(input=x)
    right: Any = qc.reference(operator, input=x)
    assert result._fields == ("output", "scale", "zero_point")
    assert np.array_equal(result.output, right.output)
    assert (result.scale, result.zero_point) == (right.scale, right.zero_point)
    outputs: list[Any] = [np.zeros((3, 7), np.uint8), np.zeros((), np.float32), np.zeros((), np.uint8)]
    kernel(input=x, out=outputs)
    assert np.array_equal(outputs[0], right.output)
    with pytest.raises(qc.InvalidTensorError, match="an array for each output"):
        kernel(input=x, out=outputs[:2])
    ranges = qc.compile(qc.QuantizeV2(qc.Tensor((3,), "float32")))
    shared = np.zeros((), np.float32)
    with pytest.raises(qc.InvalidTensorError, match="overlap each other"):
        ranges(input=x[0, :3], min_range=0.0, max_range=1.0, out=[np.zeros(3, np.uint8), shared, shared])


@pytest.fixture(scope="module")
def large() -> tuple[qc.Kernel, dict[str, Any], Any]:
    operator = qc.QuantizedLinearConvolution(
        qc.Tensor((2, 16, 30, 30), "uint8"), qc.Tensor((24, 16, 3, 3), "int8"), "uint8", filter_scale="per_channel"
    )
    values = random_values(operator, np.random.default_rng(5))
    return qc.compile(operator), values, evaluate(operator, values)["output"]


def test_workspace(large: Any) -> None:
    kernel = large[0]
    centred = 2 * 30 * 30 * 16 * 2  # int16
    assert centred <= kernel.workspace_bytes <= 10 * centred


@pytest.mark.parametrize("threads", [1, 2, 3, 5, 16, 1000])
def test_the_number_of_threads_changes_nothing(large: Any, threads: int) -> None:
    kernel, values, right = large
    assert np.array_equal(kernel(num_threads=threads, **values), right)


def test_calls_from_several_threads(large: Any, kernel: qc.Kernel, expected: Any) -> None:
    big, values, right = large
    wrong: list[str] = []

    def work(number: int) -> None:
        for _ in range(15):
            if not np.array_equal(big(num_threads=1 + number % 3, **values), right):
                wrong.append("large")
            if not np.array_equal(kernel(input=small_input()), expected):
                wrong.append("small")

    workers = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_the_environment_variable_for_threads(monkeypatch: pytest.MonkeyPatch, large: Any) -> None:
    kernel, values, right = large
    for text in ("1", "3", "1000", ""):
        monkeypatch.setenv("QCOMPILE_NUM_THREADS", text)
        assert np.array_equal(kernel(**values), right)
    for text in ("nonsense", "0", "-1", "2.5", "3 "):
        monkeypatch.setenv("QCOMPILE_NUM_THREADS", text)
        with pytest.raises(qc.KernelError, match="QCOMPILE_NUM_THREADS is not a positive integer"):
            kernel(**values)
        assert np.array_equal(kernel(num_threads=2, **values), right)


def run_in_child(kernel: Any, values: Any, right: Any, queue: Any) -> None:
    queue.put(bool(np.array_equal(kernel(num_threads=3, **values), right)))


def test_after_a_fork(large: Any) -> None:
    kernel, values, right = large
    kernel(num_threads=3, **values)  # the parent's threads exist, the child's do not
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=run_in_child, args=(kernel, values, right, queue))
    child.start()
    assert queue.get(timeout=60)
    child.join(60)
    assert child.exitcode == 0
    assert np.array_equal(kernel(num_threads=3, **values), right)


def test_many_libraries_come_and_go(large: Any) -> None:
    """A library is closed, with its threads and its file descriptor, when its kernel is gone."""
    kernel, values, _ = large
    content = kernel._content.bytes
    before = open_files_and_threads()
    for _ in range(20):
        again = next(iter(qc.Bundle(content)))
        again(num_threads=3, **values)
        assert open_files_and_threads() > before
        del again
        assert open_files_and_threads() == before


def open_files_and_threads() -> tuple[int, int]:
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


OUT_OF_MEMORY = """
import resource, sys
import numpy as np
import qcompile as qc

kernel = qc.load(sys.argv[1])
tensors = {tensor.name: np.ones(tensor.shape, tensor.dtype) for tensor in kernel.inputs}
kernel(**tensors)
right = kernel(**tensors)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
again = qc.load(sys.argv[1])
again(num_threads=1, **tensors)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
fresh = qc.load(sys.argv[1])
fresh.inputs, fresh._content.library(0)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + kernel.workspace_bytes // 2, resource.RLIM_INFINITY))
for _ in range(5):
    try:
        fresh(num_threads=1, **tensors)
        raise SystemExit("the limit was not met")
    except qc.KernelError as error:
        assert "out of memory" in str(error), error
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert np.array_equal(fresh(num_threads=1, **tensors), right)
after = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
assert after - used < 2 * kernel.workspace_bytes, (after - used, kernel.workspace_bytes)
print("fine")
"""


def test_lack_of_memory_is_an_error_and_loses_nothing(tmp_path: Any) -> None:
    operator = qc.QuantizedLinearConvolution(
        qc.Tensor((1, 64, 400, 400), "uint8"), qc.Tensor((8, 64, 1, 1), "int8"), "uint8"
    )
    kernel = qc.compile(operator)
    assert kernel.workspace_bytes > 10_000_000
    kernel.save(tmp_path / "large.qcb")
    command = [sys.executable, "-c", OUT_OF_MEMORY, str(tmp_path / "large.qcb")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "fine"


def test_running_needs_no_compiler_code(tmp_path: Any, kernel: qc.Kernel) -> None:
    kernel.save(tmp_path / "kernel.qcb")
    program = (
        "import sys, numpy, qcompile as qc\n"
        f"kernel = qc.load({str(tmp_path / 'kernel.qcb')!r})\n"
        "print(kernel(input=numpy.zeros((1, 4, 6, 5), numpy.uint8)).shape)\n"
        "bad = {'tvm', 'tvm_ffi', 'onnx', 'rich', 'click'} & set(sys.modules)\n"
        "assert not bad, bad\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "(1, 8, 6, 5)"


def test_constants_of_many_megabytes() -> None:
    """They are read from memory of their own; a second library and a child process have theirs."""
    operator = qc.MatrixMultiplyInteger(
        qc.Tensor((1, 2048), "uint8"), qc.Tensor((2048, 2112), "int8"), a_zero_point=None, b_zero_point=None
    )
    rng = np.random.default_rng(0)
    data = rng.integers(0, 256, (1, 2048), dtype=np.uint8)
    for _ in range(2):
        weights = rng.integers(-128, 128, (2048, 2112), dtype=np.int8)
        kernel = qc.compile(operator, "host", {"b": weights})
        expected = data.astype(np.int32) @ weights.astype(np.int32)
        assert np.array_equal(kernel(a=data), expected)
        child = os.fork()
        if child == 0:
            os._exit(0 if np.array_equal(kernel(a=data), expected) else 1)
        assert os.waitpid(child, 0)[1] == 0
