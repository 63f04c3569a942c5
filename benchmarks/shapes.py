"""Reads lists of layers: the files in benchmarks/shapes/, or one's own.

A line is a layer; `#` starts a comment:

    conv 56x56 64->64 3x3 stride=1 pad=1 groups=1 count=3      HEIGHTxWIDTH, channels, taps, options
    product 128x768x3072 count=12                              MxKxN

Options may be left out. `stride` is one number or two (`2,1`); `pad` is one number for all sides, four (top, left,
bottom, right), or `same`, TensorFlow's padding, which may be asymmetric; `groups` equal to both channels makes a
depthwise convolution; `count` says how often a network has the layer. The batch is 1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

SHAPES = Path(__file__).resolve().parent / "shapes"

_CONVOLUTION = re.compile(r"(\d+)x(\d+) (\d+)->(\d+) (\d+)x(\d+)")
_PRODUCT = re.compile(r"(\d+)x(\d+)x(\d+)")
#: kind -> (grammar of what follows it, how many words that are, example, options)
_KINDS = {
    "conv": (_CONVOLUTION, 3, "conv 56x56 64->64 3x3 pad=1", ("stride", "pad", "groups", "count")),
    "product": (_PRODUCT, 1, "product 128x768x3072", ("count",)),
}
#: option -> numbers of values that it takes
_LENGTHS = {"stride": (1, 2), "pad": (1, 4), "groups": (1,), "count": (1,)}


class ShapeError(ValueError):
    """A line that is no layer."""


@dataclass(frozen=True)
class ConvolutionLayer:
    """A 2-D convolution of one image.

    Args:
        size: height and width of the input.
        channels, outputs: of the input and the output.
        taps, strides: vertical and horizontal.
        padding: top, left, bottom, right.
        groups: 1, or the number of channels.
        count: how often the network has it.
    """

    size: tuple[int, int]
    channels: int
    outputs: int
    taps: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    groups: int = 1
    count: int = 1

    @property
    def title(self) -> str:
        """For people: taps, stride, size, channels."""
        depthwise = self.groups == self.channels == self.outputs > 1
        channels = f"{self.channels}" if depthwise else f"{self.channels}->{self.outputs}"
        groups = f"g{self.groups} " if self.groups > 1 and not depthwise else ""
        stride = "" if self.strides == (1, 1) else f"s{'x'.join(map(str, dict.fromkeys(self.strides)))} "
        return f"{'dw ' if depthwise else groups}{_times(self.taps)} {stride}{_times(self.size)} {channels}"

    @property
    def output_size(self) -> tuple[int, int]:
        """Height and width of the output."""
        top, left, bottom, right = self.padding
        return (
            (self.size[0] + top + bottom - self.taps[0]) // self.strides[0] + 1,
            (self.size[1] + left + right - self.taps[1]) // self.strides[1] + 1,
        )

    @property
    def operations(self) -> int:
        """Multiply-accumulates of one layer, padded taps included."""
        height, width = self.output_size
        return height * width * self.outputs * self.taps[0] * self.taps[1] * self.channels // self.groups


@dataclass(frozen=True)
class ProductLayer:
    """A product of a matrix of activations [rows, depth] and one of weights [depth, columns]."""

    rows: int
    depth: int
    columns: int
    count: int = 1

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.rows}x{self.depth}x{self.columns}"

    @property
    def operations(self) -> int:
        """Multiply-accumulates of one layer."""
        return self.rows * self.depth * self.columns


Layer = ConvolutionLayer | ProductLayer


def read_shapes(path: Path) -> list[Layer]:
    """The layers of a file.

    Raises:
        ShapeError: a line is no layer, or there is none.
    """
    layers: list[Layer] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        text = line.split("#")[0].strip()
        if text:
            try:
                layers.append(parse_layer(text))
            except ShapeError as error:
                raise ShapeError(f"{path.name}:{number}: {error}") from None
    if not layers:
        raise ShapeError(f"{path.name}: there is no layer in it")
    titles = [layer.title for layer in layers]
    for title in titles:
        if titles.count(title) > 1:
            raise ShapeError(f"{path.name}: two lines are the layer {title!r}; give it a count")
    return layers


def parse_layer(text: str) -> Layer:
    """The layer of one line without a comment.

    Raises:
        ShapeError: says what was given and what is accepted.
    """
    kind, *words = text.split()
    if kind not in _KINDS:
        raise ShapeError(f"unknown kind {kind!r}; accepted: {', '.join(_KINDS)}")
    grammar, length, example, accepted = _KINDS[kind]
    match = grammar.fullmatch(" ".join(words[:length]))
    if match is None:
        raise ShapeError(f"{text!r} is no layer; an example: {example}")
    sizes = [int(word) for word in match.groups()]
    if 0 in sizes:
        raise ShapeError(f"a size is 0 in {text!r}")
    options = dict(_option(word, accepted) for word in words[length:])
    count = _single(options, "count")
    if kind == "product":
        return ProductLayer(sizes[0], sizes[1], sizes[2], count)
    return _convolution(sizes, options, count)


def _option(word: str, accepted: tuple[str, ...]) -> tuple[str, list[int]]:
    """The name and the numbers of an option; `same` is no number and becomes none."""
    name, _, value = word.partition("=")
    if name not in accepted:
        raise ShapeError(f"unknown option {word!r}; accepted: {', '.join(accepted)}")
    if name == "pad" and value == "same":
        return name, []
    if not re.fullmatch(r"\d+(,\d+)*", value) or value.count(",") + 1 not in _LENGTHS[name]:
        lengths = " or ".join(map(str, _LENGTHS[name]))
        raise ShapeError(f"{word!r}: accepted: {lengths} numbers{' or same' if name == 'pad' else ''}")
    numbers = [int(entry) for entry in value.split(",")]
    if name != "pad" and 0 in numbers:
        raise ShapeError(f"{word!r}: must be at least 1")
    return name, numbers


def _single(options: dict[str, list[int]], name: str) -> int:
    return options.get(name, [1])[0]


def _convolution(sizes: list[int], options: dict[str, list[int]], count: int) -> ConvolutionLayer:
    height, width, channels, outputs, *taps = sizes
    groups = _single(options, "groups")
    if channels % groups or outputs % groups:
        raise ShapeError(f"groups={groups} does not divide the channels {channels}->{outputs}")
    strides = (options.get("stride", [1]) * 2)[:2]
    padding = (options.get("pad", [0]) or _same((height, width), taps, strides)) * 4
    layer = ConvolutionLayer(
        (height, width), channels, outputs, (taps[0], taps[1]), (strides[0], strides[1]),
        (padding[0], padding[1], padding[2], padding[3]), groups, count,
    )  # fmt: skip
    if min(layer.output_size) < 1:
        raise ShapeError(f"the taps {_times(layer.taps)} are larger than the padded input {_times(layer.size)}")
    return layer


def _same(size: tuple[int, int], taps: list[int], strides: list[int]) -> list[int]:
    """TensorFlow's padding: as many outputs as input / stride, rounded up, and the odd element at the end."""
    totals = [
        max((-(-extent // stride) - 1) * stride + tap - extent, 0)
        for extent, tap, stride in zip(size, taps, strides, strict=True)
    ]
    starts = [total // 2 for total in totals]
    return starts + [total - start for total, start in zip(totals, starts, strict=True)]


def _times(pair: tuple[int, int]) -> str:
    return f"{pair[0]}x{pair[1]}"
