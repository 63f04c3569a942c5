"""A small convolutional network for 8x8 digit images: layers, gradients and training in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int64]
Parameters = dict[str, FloatArray]
"""Trainable arrays by name: "<layer>.weight" and "<layer>.bias"."""


@dataclass(frozen=True)
class Convolution:
    """Geometry of a square, zero-padded 2-D convolution that is followed by a ReLU."""

    name: str
    input_channels: int
    output_channels: int
    kernel: int
    stride: int = 1
    padding: int = 0
    groups: int = 1

    @property
    def weight_shape(self) -> tuple[int, int, int, int]:
        """Weight shape [output channels, input channels per group, kernel, kernel]."""
        return self.output_channels, self.input_channels // self.groups, self.kernel, self.kernel

    def output_size(self, input_size: int) -> int:
        """Output height (or width) for an input height (or width)."""
        return (input_size + 2 * self.padding - self.kernel) // self.stride + 1


IMAGE = "image"
IMAGE_SIZE = 8
CONVOLUTIONS = (
    Convolution("conv1", 1, 16, kernel=3, padding=1),
    Convolution("depthwise2", 16, 16, kernel=3, padding=1, groups=16),
    Convolution("pointwise3", 16, 32, kernel=1),
    Convolution("conv4", 32, 32, kernel=3, stride=2, padding=1),
)
DENSE = "dense"
DENSE_INPUTS = 32 * 4 * 4
CLASS_COUNT = 10


def initial_parameters(generator: np.random.Generator) -> Parameters:
    """He-normal float32 weights and zero biases; dense weight is [CLASS_COUNT, DENSE_INPUTS]."""
    shapes: list[tuple[str, tuple[int, ...]]] = [(layer.name, layer.weight_shape) for layer in CONVOLUTIONS]
    shapes.append((DENSE, (CLASS_COUNT, DENSE_INPUTS)))
    parameters: Parameters = {}
    for name, shape in shapes:
        deviation = np.sqrt(2.0 / np.prod(shape[1:]))
        parameters[f"{name}.weight"] = (generator.standard_normal(shape) * deviation).astype(np.float32)
        parameters[f"{name}.bias"] = np.zeros(shape[0], np.float32)
    return parameters


def extract_patches(inputs: FloatArray, layer: Convolution) -> FloatArray:
    """Unfold float32 [n, c, h, w] into [groups, c/groups * kernel * kernel, n * out_h * out_w] (im2col)."""
    padding = (layer.padding, layer.padding)
    padded = np.pad(inputs, ((0, 0), (0, 0), padding, padding))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (layer.kernel, layer.kernel), axis=(2, 3))
    strided = windows[:, :, :: layer.stride, :: layer.stride]
    samples, channels, height, width = strided.shape[:4]
    rows = channels // layer.groups * layer.kernel**2
    columns: FloatArray = strided.transpose(1, 4, 5, 0, 2, 3).reshape(layer.groups, rows, samples * height * width)
    return columns


def accumulate_patches(patches: FloatArray, input_shape: tuple[int, int, int, int], layer: Convolution) -> FloatArray:
    """Sum patches back onto the float32 input [n, c, h, w]: the transpose of extract_patches."""
    samples, channels, height, width = input_shape
    out_height, out_width = layer.output_size(height), layer.output_size(width)
    taps = patches.reshape(channels, layer.kernel, layer.kernel, samples, out_height, out_width)
    border = layer.padding
    padded = np.zeros((samples, channels, height + 2 * border, width + 2 * border), np.float32)
    for row in range(layer.kernel):
        for column in range(layer.kernel):
            rows = slice(row, row + layer.stride * out_height, layer.stride)
            columns = slice(column, column + layer.stride * out_width, layer.stride)
            padded[:, :, rows, columns] += taps[:, row, column].transpose(1, 0, 2, 3)
    return padded[:, :, border : border + height, border : border + width]


def grouped_weight(weight: FloatArray, layer: Convolution) -> FloatArray:
    """View the float32 weight as [groups, output channels per group, patch rows]."""
    return weight.reshape(layer.groups, layer.output_channels // layer.groups, -1)


@dataclass(frozen=True)
class ForwardPass:
    """Activations by name (the image, each ReLU output, the dense scores) and the unfolded inputs."""

    activations: dict[str, FloatArray]
    patches: dict[str, FloatArray]

    @property
    def scores(self) -> FloatArray:
        """Class scores, float32 [n, CLASS_COUNT]."""
        return self.activations[DENSE]


def forward(parameters: Parameters, images: FloatArray) -> ForwardPass:
    """Run the network on float32 images [n, 1, 8, 8] in 0..1."""
    activations = {IMAGE: images}
    all_patches: dict[str, FloatArray] = {}
    current = images
    for layer in CONVOLUTIONS:
        samples, _, height, width = current.shape
        patches = extract_patches(current, layer)
        product = grouped_weight(parameters[f"{layer.name}.weight"], layer) @ patches
        out_shape = (layer.output_channels, samples, layer.output_size(height), layer.output_size(width))
        sums = product.reshape(out_shape).transpose(1, 0, 2, 3)
        biased = sums + parameters[f"{layer.name}.bias"][:, None, None]
        current = np.maximum(biased, np.float32(0))
        activations[layer.name] = current
        all_patches[layer.name] = patches
    flat = current.reshape(len(current), -1)
    activations[DENSE] = flat @ parameters[f"{DENSE}.weight"].T + parameters[f"{DENSE}.bias"]
    return ForwardPass(activations, all_patches)


def backward(parameters: Parameters, run: ForwardPass, score_gradient: FloatArray) -> Parameters:
    """Gradient of every parameter, given the loss gradient of the scores, float32 [n, CLASS_COUNT]."""
    gradients: Parameters = {}
    last = run.activations[CONVOLUTIONS[-1].name]
    gradients[f"{DENSE}.weight"] = score_gradient.T @ last.reshape(len(last), -1)
    gradients[f"{DENSE}.bias"] = score_gradient.sum(axis=0)
    gradient: FloatArray = (score_gradient @ parameters[f"{DENSE}.weight"]).reshape(last.shape)
    input_names = [IMAGE, *(layer.name for layer in CONVOLUTIONS[:-1])]
    for layer, input_name in zip(reversed(CONVOLUTIONS), reversed(input_names), strict=True):
        gradient = gradient * (run.activations[layer.name] > 0)
        patches = run.patches[layer.name]
        weight = parameters[f"{layer.name}.weight"]
        per_group = gradient.transpose(1, 0, 2, 3).reshape(layer.groups, layer.output_channels // layer.groups, -1)
        gradients[f"{layer.name}.weight"] = (per_group @ patches.transpose(0, 2, 1)).reshape(weight.shape)
        gradients[f"{layer.name}.bias"] = gradient.sum(axis=(0, 2, 3))
        if input_name != IMAGE:
            samples, channels, height, width = run.activations[input_name].shape
            patch_gradient = grouped_weight(weight, layer).transpose(0, 2, 1) @ per_group
            gradient = accumulate_patches(patch_gradient, (samples, channels, height, width), layer)
    return gradients


def cross_entropy(scores: FloatArray, labels: IntArray) -> tuple[float, FloatArray]:
    """Mean softmax cross-entropy of [n, classes] scores and its gradient, float32 of the same shape."""
    shifted = scores - scores.max(axis=1, keepdims=True)
    exponentials = np.exp(shifted)
    sums = exponentials.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = float(np.mean(np.log(sums[:, 0]) - shifted[rows, labels]))
    gradient = exponentials / sums
    gradient[rows, labels] -= 1
    return loss, gradient / np.float32(len(labels))


class AdamOptimizer:
    """Adam with decoupled weight decay on the weights (biases are not decayed)."""

    def __init__(self, parameters: Parameters, weight_decay: float = 0.05) -> None:
        self._weight_decay = weight_decay
        self._mean = {name: np.zeros_like(value) for name, value in parameters.items()}
        self._square = {name: np.zeros_like(value) for name, value in parameters.items()}
        self._steps = 0

    def update(self, parameters: Parameters, gradients: Parameters, rate: float) -> None:
        """Change the parameters in place by one step at the given learning rate."""
        self._steps += 1
        mean_correction = 1 - 0.9**self._steps
        square_correction = 1 - 0.999**self._steps
        for name, gradient in gradients.items():
            mean, square = self._mean[name], self._square[name]
            mean += np.float32(0.1) * (gradient - mean)
            square += np.float32(0.001) * (gradient * gradient - square)
            step = (mean / mean_correction) / (np.sqrt(square / square_correction) + 1e-8)
            if name.endswith(".weight"):
                step = step + self._weight_decay * parameters[name]
            parameters[name] -= (rate * step).astype(np.float32)


def shift_randomly(images: FloatArray, generator: np.random.Generator) -> FloatArray:
    """Move each image of [n, 1, h, w] by -1, 0 or 1 pixels along both axes, filling with zeros."""
    samples, _, height, width = images.shape
    padded = np.pad(images[:, 0], ((0, 0), (1, 1), (1, 1)))
    offsets = generator.integers(0, 3, size=(2, samples, 1))
    rows = (np.arange(height) + offsets[0])[:, :, None]
    columns = (np.arange(width) + offsets[1])[:, None, :]
    shifted: FloatArray = padded[np.arange(samples)[:, None, None], rows, columns]
    return shifted[:, None]


def batches(images: FloatArray, size: int = 256) -> Iterator[FloatArray]:
    """Split images along the first axis into consecutive batches of at most the given size."""
    for start in range(0, len(images), size):
        yield images[start : start + size]


def predict(parameters: Parameters, images: FloatArray) -> IntArray:
    """Most likely class of each image, int64 [n]."""
    scores = np.concatenate([forward(parameters, batch).scores for batch in batches(images)])
    classes: IntArray = scores.argmax(axis=1)
    return classes


@dataclass(frozen=True)
class EpochReport:
    """Progress after one epoch; loss and accuracy are means over the augmented training batches."""

    epoch: int
    loss: float
    accuracy: float


def train(
    images: FloatArray,
    labels: IntArray,
    epochs: int,
    seed: int,
    report: Callable[[EpochReport], None],
    batch_size: int = 64,
    peak_rate: float = 3e-3,
) -> Parameters:
    """Train on float32 images [n, 1, 8, 8] and int64 labels [n]; the result depends on the seed only."""
    generator = np.random.default_rng(seed)
    parameters = initial_parameters(generator)
    optimizer = AdamOptimizer(parameters)
    for epoch in range(1, epochs + 1):
        loss_sum, correct = 0.0, 0
        order = generator.permutation(len(images))
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            run = forward(parameters, shift_randomly(images[chosen], generator))
            loss, score_gradient = cross_entropy(run.scores, labels[chosen])
            progress = (epoch - 1 + start / len(order)) / epochs
            rate = peak_rate * 0.5 * (1 + np.cos(np.pi * progress))
            optimizer.update(parameters, backward(parameters, run, score_gradient), rate)
            loss_sum += loss * len(chosen)
            correct += int(np.count_nonzero(run.scores.argmax(axis=1) == labels[chosen]))
        report(EpochReport(epoch, loss_sum / len(order), correct / len(order)))
    return parameters
