"""The optional packages of this front end, imported where they are used and nowhere else."""

from __future__ import annotations

import importlib
from typing import Any

from ...errors import MissingDependencyError


def onnx_package() -> Any:
    """The package onnx.

    Raises:
        MissingDependencyError: it is not installed.
    """
    try:
        for submodule in ("checker", "helper", "numpy_helper", "shape_inference"):
            importlib.import_module(f"onnx.{submodule}")
        return importlib.import_module("onnx")
    except ImportError as error:
        raise MissingDependencyError(
            "Reading an ONNX model needs the package onnx.",
            given=str(error),
            remedy="install it: pip install onnx onnxruntime",
        ) from error
