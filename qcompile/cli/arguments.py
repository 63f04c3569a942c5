"""Parameters that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def parse_input_shapes(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, tuple[int, ...]]:
    """NAME=SIZE,SIZE,... -> sizes."""
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, _, sizes = text.rpartition("=")
        words = [word.strip() for word in sizes.split(",")]
        if not name or not all(word.isascii() and word.isdigit() and len(word) < 12 for word in words):
            raise click.BadParameter(f"{text!r} is not NAME=SIZE,SIZE,... such as x=1,3,224,224")
        if name in shapes:
            raise click.BadParameter(f"the input {name!r} is given twice")
        shapes[name] = tuple(map(int, words))
    return shapes


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def bundle_argument() -> Decorator:
    """BUNDLE, the path of a bundle."""
    return click.argument("bundle", metavar="BUNDLE.qcb")


def input_shape_option() -> Decorator:
    """--input-shape, a dictionary of shapes."""
    return click.option(
        "--input-shape",
        "input_shapes",
        multiple=True,
        metavar="NAME=SIZE,...",
        callback=parse_input_shapes,
        help="Shape of an input of the ONNX model, where it is dynamic; repeatable.",
    )


def target_option(help_text: str) -> Decorator:
    """--target, a tuple of names."""
    return click.option("--target", "targets", multiple=True, metavar="NAME", help=help_text)


def kernels_option(help_text: str) -> Decorator:
    """--kernel, a tuple of names."""
    return click.option("--kernel", "kernels", multiple=True, metavar="NAME", help=help_text)


def records_option(help_text: str) -> Decorator:
    """--records, a tuple of paths."""
    return click.option("--records", multiple=True, metavar="FILE", help=help_text)


def json_option() -> Decorator:
    """--json."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
