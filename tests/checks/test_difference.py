"""What verification says about wrong results: true, short, and the lane of a vector or row of a tile at a glance."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qcompile as qc
from qcompile.checks.difference import MAXIMUM_TEXT, VECTOR_LENGTHS, Axes, axes_of, describe_pattern
from qcompile.checks.verification import describe_difference
from qcompile.records import record

from ..support import small_constants, small_convolution

CONVOLUTION = qc.ConvolutionInteger(qc.Tensor((2, 8, 12, 100), "uint8"), qc.Tensor((64, 8, 1, 1), "int8"))
LAST = qc.ConvolutionInteger(qc.Tensor((2, 12, 100, 8), "uint8", "NHWC"), qc.Tensor((64, 1, 1, 8), "int8", "NHWC"))
PRODUCT = qc.MatrixMultiplyInteger(qc.Tensor((3, 24, 8), "uint8"), qc.Tensor((8, 70), "int8"))
KNOBS = {"tile": 0, "vectors": 0}
EVERYTHING = slice(None)


def described(shape: tuple[int, ...], wrong: Any, axes: Axes | None = None) -> list[str]:
    """The statements about an array that is wrong in these places."""
    different = np.zeros(shape, bool)
    different[wrong] = True
    text = describe_pattern(different, axes or axes_of(len(shape)))
    return text.split("; ") if text else []


def convolution(wrong: Any, knobs: dict[str, int] | None = None) -> list[str]:
    return described(CONVOLUTION.output_shape, wrong, axes_of(4, CONVOLUTION, knobs))


def test_a_lane_of_a_vector() -> None:
    wrong = (EVERYTHING, slice(5, None, 16))
    lane = "along channel: 5, 21, 37, 53 (all with index % 16 = 5)"
    assert convolution(wrong) == [lane, "along batch, row and column: every index"]
    assert described(LAST.output_shape, (..., slice(5, None, 16)), axes_of(4, LAST))[0] == lane
    # what is right by chance does not hide it
    assert convolution((EVERYTHING, [5, 37, 53]))[0] == "along channel: 5, 37, 53 (3 of the 4 with index % 16 = 5)"
    upper = np.arange(64) % 16 >= 8
    assert convolution((EVERYTHING, upper))[0] == (
        "along channel: 8, 9, 10, ..., 63 (all with index % 16 from 8 to 15)"
    )  # fmt: skip
    two = np.isin(np.arange(64) % 32, (1, 30))
    assert convolution((0, two, 0, 0))[1] == "along channel: 1, 30, 33, 62 (all with index % 32 in {1, 30})"


def test_half_of_each_large_group() -> None:
    grouped = qc.ConvolutionInteger(qc.Tensor((1, 4, 1, 2), "uint8"), qc.Tensor((8192, 1, 1, 1), "int8"), group_count=4)
    half = np.arange(8192) % 2048 >= 1024
    for wrong in (half, half & (np.arange(8192) != 1030)):
        different = np.broadcast_to(wrong[None, :, None, None], grouped.output_shape)
        share = "all" if wrong is half else "4095 of the 4096"
        assert describe_pattern(different, axes_of(4, grouped)) == (
            f"along channel: 1024, 1025, 1026, ..., 8191 ({share} with index % 2048 from 1024 to 2047); "
            "along column: every index"
        )


def test_the_last_row_of_each_tile() -> None:
    axes = axes_of(3, PRODUCT, {"tile": 6, "vectors": 2})
    assert described(PRODUCT.output_shape, (EVERYTHING, slice(5, None, 6)), axes) == [
        "along row: 5, 11, 17, 23 (all with index % 6 = 5)",
        "along batch and column: every index",
    ]
    # a tile that the rule chooses may be any of these
    chosen = axes_of(3, PRODUCT, KNOBS)
    for tile in range(2, 8):
        (row, _) = described(PRODUCT.output_shape, (EVERYTHING, slice(tile - 1, None, tile)), chosen)
        assert row.endswith(f"(all with index % {tile} = {tile - 1})")
    # the third vector of each panel of three
    panels = np.arange(70) % 48 >= 32
    (column, _) = described(PRODUCT.output_shape, (..., panels), axes_of(3, PRODUCT, {"tile": 0, "vectors": 3}))
    assert column == "along column: 32 to 47"
    panels = np.arange(70) % 24 >= 16
    (column, _) = described(PRODUCT.output_shape, (..., panels), axes_of(3, PRODUCT, {"tile": 0, "vectors": 3}))
    assert column == "along column: 16, 17, 18, ..., 69 (all with index % 24 from 16 to 23)"


def test_a_tile_that_goes_on_in_the_next_row() -> None:
    flat = np.zeros((2, 64, 12 * 100), bool)
    flat[..., 6::7] = True
    assert convolution(flat.reshape(CONVOLUTION.output_shape), KNOBS) == [
        "along row and column as one: 6, 13, 20, ..., 1196 (all with index % 7 = 6)",
        "along batch and channel: every index",
    ]
    # what the axes say as exactly is left to them
    assert convolution((..., slice(3, None, 4)), KNOBS)[0].startswith("along column: 3, 7, 11, ..., 99 (all with")
    # elementwise, vectors run along the whole array
    flat = np.arange(3 * 5 * 7).reshape(3, 5, 7) % 16 == 15
    (text,) = described((3, 5, 7), flat)
    assert text == "along axis 0, axis 1 and axis 2 as one: 15, 31, 47, 63, 79, 95 (all with index % 16 = 15)"


def test_an_end() -> None:
    assert convolution((..., slice(96, None)))[0] == "along column: 96 to 99 (the last 4)"
    assert convolution((..., slice(3), EVERYTHING))[0] == "along row: 0 to 2 (the first 3)"
    assert convolution((..., slice(3, 5), EVERYTHING))[0] == "along row: 3 to 4"


def test_a_single_place() -> None:
    everything = "along batch, channel and row: every index"
    assert convolution((..., 42)) == ["along column: only 42", everything]
    assert convolution((..., 99)) == ["along column: only 99 (the last)", everything]
    assert described((3, 24, 70), (2, 4, 0), axes_of(3, PRODUCT)) == [
        "along batch: only 2 (the last)", "along row: only 4", "along column: only 0",
    ]  # fmt: skip


def test_no_pattern() -> None:
    assert described((64,), [3, 17, 40, 41, 59]) == ["along axis 0: 3, 17, 40, 41, 59"]
    wrong = np.random.default_rng(0).permutation(64)[:23]
    assert described((64,), wrong) == [f"along axis 0: 23 of 64, from {wrong.min()} to {wrong.max()}"]
    # two wrong indices are few, unless they are all that there are
    assert described((64,), [5, 21]) == ["along axis 0: 5, 21"]
    assert described((32,), [5, 21]) == ["along axis 0: 5, 21 (all with index % 16 = 5)"]


def test_everything_and_nothing() -> None:
    assert convolution(...) == ["along batch, channel, row and column: every index"]
    assert described((4,), ...) == ["along axis 0: every index"]
    assert described((4,), []) == []
    assert described((0, 3), ...) == []


def test_axes_of_one_index_say_nothing() -> None:
    assert described((), ...) == []
    assert described((1, 1), ...) == []
    assert described((1, 3, 1), (0, 2)) == ["along axis 1: only 2 (the last)"]


def test_names_and_periods() -> None:
    assert axes_of(2, PRODUCT).names == ("row", "column")
    assert axes_of(4, PRODUCT).names == ("outer batch", "batch", "row", "column")
    assert axes_of(4, LAST).names == ("batch", "row", "column", "channel")
    line = qc.ConvolutionInteger(qc.Tensor((1, 6, 9), "uint8"), qc.Tensor((12, 2, 3), "int8"), group_count=3)
    assert axes_of(3, line, {"tile": 5}) == Axes(("batch", "channel", "column"), (4, 5, 8, 16, 32, 64), (2, 3))
    assert axes_of(3, CONVOLUTION, {"blocks": 3}).periods == (4, 8, 12, 16, 24, 32, 48, 64)
    assert axes_of(1, None, {"vectors_per_chunk": 9}) == Axes(("axis 0",), VECTOR_LENGTHS, (0, 1))


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_the_text_of_a_difference(dtype: str) -> None:
    expected = np.zeros((2, 48), dtype)
    actual = expected.copy()
    assert describe_difference("output", expected, actual) == ""
    actual[:, 7::16] = 1
    text = describe_difference("output", expected, actual)
    assert text.startswith("output: 6 of 96 elements of shape [2, 48] differ; the first at [0, 7]: expected 0")
    assert text.endswith("]; along axis 1: 7, 23, 39 (all with index % 16 = 7); along axis 0: every index")


def test_nan_and_scalars() -> None:
    expected = np.array([np.nan, 1, np.nan, 2], np.float32)
    assert describe_difference("output", expected, expected.copy()) == ""
    text = describe_difference("output", expected, np.array([np.nan, np.nan, 0, 2], np.float32))
    assert text.endswith("; along axis 0: 1 to 2")
    scalar = describe_difference("scale", np.array(1, np.float32), np.array(np.nan, np.float32))
    assert scalar.endswith("around it expected [1.0], got [nan]")


def test_the_axes_are_those_of_the_kernel() -> None:
    kernel = qc.compile(small_convolution(), "x86_64", small_constants())
    expected = np.zeros(kernel.outputs[0].shape, np.uint8)
    actual = expected.copy()
    actual[0, 2::4, 5] = 9
    text = describe_difference("output", expected, actual, kernel)
    assert text.endswith(
        "along channel: 2, 6 (all with index % 4 = 2); along row: only 5 (the last); along column: every index"
    )


def test_the_text_fits_into_a_record() -> None:
    rng = np.random.default_rng(5)
    shape = (6,) * 8
    expected = np.full(shape, -1.1754944e-38, np.float32)
    actual = expected.copy()
    actual[np.ix_(*[(0, 2, 3, 5)] * 8)] = rng.normal(size=(4,) * 8) * 1e-30
    text = describe_difference("output", expected, actual)
    assert 600 < len(text) <= record.MAXIMUM_TEXT
    assert text.endswith("; along axis 7: 0, 2, 3, 5")
    names = tuple(f"{'long ' * 20}{number}" for number in range(8))
    long = describe_pattern(expected != actual, Axes(names))
    assert len(long) <= MAXIMUM_TEXT
    assert long.endswith(" 1: 0, 2, 3, 5; ...")


def indices_of(statement: str, size: int) -> tuple[set[int], bool]:
    """The indices that a statement names, and whether it says that all of them are wrong."""
    if statement == "every index":
        return set(range(size)), True
    if match := re.fullmatch(r"only (\d+)( \(the last\))?", statement):
        assert bool(match[2]) == (int(match[1]) == size - 1)
        return {int(match[1])}, True
    if match := re.fullmatch(r"(\d+) to (\d+)(?: \(the (first|last) (\d+)\))?", statement):
        first, last = int(match[1]), int(match[2])
        assert match[3] == ("first" if first == 0 else "last" if last == size - 1 else None)
        assert match[4] in (None, str(last - first + 1))
        return set(range(first, last + 1)), True
    if match := re.fullmatch(r"(\d+) of (\d+), from (\d+) to (\d+)", statement):
        assert int(match[2]) == size
        return set(range(int(match[3]), int(match[4]) + 1)), False
    if match := re.fullmatch(r".*\((all|\d+ of the (\d+)) with index % (\d+) (= |from |in {)([^})]+)}?\)", statement):
        numbers = list(map(int, re.findall(r"\d+", match[5])))
        remainders: Iterable[int] = range(numbers[0], numbers[1] + 1) if match[4] == "from " else numbers
        matching = {index for index in range(size) if index % int(match[3]) in set(remainders)}
        assert int(match[3]) < size
        assert match[2] in (None, str(len(matching)))
        return matching, match[1] == "all"
    assert re.fullmatch(r"\d+(, \d+)*", statement), statement
    return set(map(int, statement.split(", "))), True


@st.composite
def masks(draw: st.DrawFn) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Arrays that are wrong at random, or in a lane or a range of some axes, with some elements right by chance."""
    shape = draw(st.lists(st.integers(1, 20), min_size=1, max_size=3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    different = rng.random(shape) < draw(st.sampled_from([0.05, 0.5, 0.95, 1]))
    for axis, size in enumerate(shape):
        lanes = st.tuples(st.integers(0, 8), st.integers(1, 9)).map(lambda lane: range(lane[0], 20, lane[1]))
        kept = draw(st.one_of(lanes, st.lists(st.integers(0, size - 1))))
        different &= np.isin(np.arange(size), kept).reshape(
            [-1 if number == axis else 1 for number in range(len(shape))]
        )
    return different


@given(masks(), st.sets(st.integers(1, 12), min_size=1))
def test_every_statement_is_true(different: np.ndarray[Any, np.dtype[np.bool_]], periods: set[int]) -> None:
    names = tuple("abc"[: different.ndim])
    text = describe_pattern(different, Axes(names, tuple(periods), (0, different.ndim)))
    assert len(text) <= MAXIMUM_TEXT
    assert bool(text) == (different.any() and different.size > 1)
    told = set()
    for part in text.split("; ") if text else []:
        match = re.fullmatch(r"along ([^:]+): (.+)", part)
        assert match is not None
        own = re.findall(r"\b[abc]\b", match[1])
        told |= set(own)
        if match[1].endswith(" as one"):
            projections = [different.reshape(-1)]
        else:
            others = [tuple(axis for axis in range(different.ndim) if names[axis] != name) for name in own]
            projections = [np.asarray(different.any(axis=axes)) for axes in others]
        for projection in projections:
            wrong = set(np.flatnonzero(projection).tolist())
            named, all_of_them = indices_of(match[2], projection.size)
            assert wrong == named if all_of_them else wrong < named
            listed = re.match(r"(\d+, )+(\.\.\., )?\d+", match[2])
            if listed and " of " not in match[2].split(" (")[0]:
                assert {int(word) for word in re.findall(r"\d+", listed[0])} <= wrong
            if count := re.search(r"(\d+) of (the )?\d+", match[2]):
                assert int(count[1]) == len(wrong)
    sizes = dict(zip(names, different.shape, strict=True))
    assert told == ({name for name in names if sizes[name] > 1} if text else set())
