"""Train, quantize and export the digit classifier.

Writes digits_int8.onnx, digits_qdq_int8.onnx and digits_test.npz. Training needs scikit-learn, which
brings the images; the written files do not. On one machine the same options give the same bytes, as long
as the number of BLAS threads stays the same (for example OPENBLAS_NUM_THREADS=1).
"""

from __future__ import annotations

import argparse
import io
import sys
import time
from pathlib import Path

import numpy as np
from export import build_qdq_model, build_qoperator_model, runtime_accuracy, write_atomically
from network import (
    CONVOLUTIONS,
    DENSE,
    IMAGE,
    EpochReport,
    FloatArray,
    IntArray,
    batches,
    forward,
    predict,
    train,
)
from numpy.typing import NDArray
from quantize import observe_ranges, quantize_network

TEST_IMAGES = 360
SPLIT_SEED = 0
ALLOWED_ACCURACY_LOSS = 0.006
PixelArray = NDArray[np.uint8]


def load_split() -> tuple[PixelArray, PixelArray, PixelArray, PixelArray]:
    """Train pixels, test pixels (uint8 [n, 8, 8], 0..16), train labels and test labels (uint8 [n])."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    pixels, labels = digits.images.astype(np.uint8), digits.target.astype(np.uint8)
    train_pixels, test_pixels, train_labels, test_labels = train_test_split(
        pixels, labels, test_size=TEST_IMAGES, random_state=SPLIT_SEED, stratify=labels
    )
    return train_pixels, test_pixels, train_labels, test_labels


def to_network_input(pixels: PixelArray) -> FloatArray:
    """Pixels uint8 [n, 8, 8] in 0..16 as the network's float32 image [n, 1, 8, 8] in 0..1."""
    images: FloatArray = pixels[:, None].astype(np.float32) / np.float32(16)
    return images


def print_progress(report: EpochReport) -> None:
    """Print one line for an epoch."""
    print(f"epoch {report.epoch:3d}  loss {report.loss:.4f}  train accuracy {report.accuracy:.2%}", flush=True)


def parse_arguments() -> argparse.Namespace:
    """Command-line options."""
    parser = argparse.ArgumentParser(description="Train, quantize and export the digit classifier.")
    parser.add_argument(
        "--output-dir",
        type=Path,
        default=Path(__file__).parent,
        help="folder for the models and the test images (default: the folder of this script)",
    )
    parser.add_argument("--epochs", type=int, default=100, help="passes over the training set (default: 100)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the training (default: 0)")
    arguments = parser.parse_args()
    if arguments.epochs < 1:
        parser.error("--epochs must be at least 1")
    if arguments.seed < 0:
        parser.error("--seed must not be negative")
    return arguments


def main() -> int:
    """Run everything; 1 if quantization costs more accuracy than allowed, and then nothing is written."""
    arguments = parse_arguments()
    train_pixels, test_pixels, train_labels, test_labels = load_split()
    train_images, test_images = to_network_input(train_pixels), to_network_input(test_pixels)
    expected: IntArray = test_labels.astype(np.int64)

    started = time.process_time()
    parameters = train(train_images, train_labels.astype(np.int64), arguments.epochs, arguments.seed, print_progress)
    print(f"trained in {time.process_time() - started:.1f} s of CPU time")

    runs = (forward(parameters, batch).activations for batch in batches(train_images))
    layer_names = [*(layer.name for layer in CONVOLUTIONS), DENSE]
    layers = quantize_network(parameters, layer_names, observe_ranges(runs), IMAGE)
    qoperator = build_qoperator_model(layers).SerializeToString(deterministic=True)
    qdq = build_qdq_model(layers).SerializeToString(deterministic=True)

    float_accuracy = float(np.mean(predict(parameters, test_images) == expected))
    qoperator_accuracy = runtime_accuracy(qoperator, test_images, expected)
    print(f"float accuracy      {float_accuracy:.2%}")
    print(f"QOperator accuracy  {qoperator_accuracy:.2%}")
    print(f"QDQ accuracy        {runtime_accuracy(qdq, test_images, expected):.2%}")
    if qoperator_accuracy < float_accuracy - ALLOWED_ACCURACY_LOSS:
        print("quantization costs too much accuracy; nothing was written", file=sys.stderr)
        return 1

    archive = io.BytesIO()
    np.savez_compressed(archive, images=test_pixels, labels=test_labels)
    arguments.output_dir.mkdir(parents=True, exist_ok=True)
    for name, content in (
        ("digits_int8.onnx", qoperator),
        ("digits_qdq_int8.onnx", qdq),
        ("digits_test.npz", archive.getvalue()),
    ):
        write_atomically(arguments.output_dir / name, content)
        print(f"wrote {name} ({len(content)} bytes)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
