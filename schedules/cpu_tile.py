"""What the CPU rules share: the shape of the tile of sums that lives in registers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..compute.form import AccumulateForm
from ..compute.geometry import row_positions
from ..spec import Convolution, MatrixMultiply, Operator


@dataclass(frozen=True)
class Limits:
    """What a register tile has to keep to, beside the number of its sums, and what its operands cost.

    Args:
        filter_load_cost: share of the time of a multiply-accumulate that loading a vector of the filter adds.
        input_load_cost: the same, of an input for all lanes.
        registers: that hold the sums and, as the operands come in the better order, all inputs of a step and a vector
            of the filter, or all its vectors of the filter and an input.
        in_flight: sums that are worked on at a time; fewer wait for each other.
    """

    filter_load_cost: float
    input_load_cost: float
    registers: int = 1 << 16
    in_flight: int = 1

    @classmethod
    def costs_of(cls, facts: Any) -> Limits:
        """The costs of a target's loads, without further limits."""
        return cls(facts.filter_load_cost, facts.input_load_cost)

    @classmethod
    def of(cls, facts: Any) -> Limits:
        """The costs and limits of a target."""
        return cls(facts.filter_load_cost, facts.input_load_cost, facts.vector_registers, facts.products_in_flight)


def extents_of(operator: Convolution | MatrixMultiply) -> tuple[int, int]:
    """Output positions that lie in a row, and output channels of a group."""
    if isinstance(operator, MatrixMultiply):
        return operator.rows, operator.columns
    return row_positions(operator), operator.output_channels // operator.group_count


def register_tile(positions: int, vectors: int, knobs: Mapping[str, int], limits: Limits) -> tuple[int, int]:
    """Output positions and vectors of output channels that are summed up together.

    The knobs decide; where one is 0, the shape that computes the fewest sums beyond the operator's, weighed with the
    operands that each multiply-accumulate has to load.

    Args:
        positions: output positions of a row.
        vectors: vectors of output channels.
        knobs: of KNOBS.
        limits: what it has to keep to.
    """

    def cost(shape: tuple[int, int]) -> tuple[float, int]:
        tile, together = shape
        computed = -(-positions // tile) * tile * -(-vectors // together) * together
        waiting = max(1.0, limits.in_flight / (tile * together))
        loads = limits.filter_load_cost / tile + limits.input_load_cost / together
        return computed * waiting * (1 + loads), -tile * together

    tiles = [min(knobs["tile"], positions)] if knobs["tile"] else range(1, min(positions, 7) + 1)
    panels = [min(knobs["vectors"], vectors)] if knobs["vectors"] else range(1, min(vectors, 8) + 1)
    shapes = [(tile, together) for tile in tiles for together in panels]
    fitting = [
        (tile, together)
        for tile, together in shapes
        if tile * together <= knobs["accumulators"] and tile * together + min(tile, together) + 1 <= limits.registers
    ]
    return min(fitting or shapes, key=cost)


def form_of(
    operator: Operator, lanes: int, pairs: int, knobs: Mapping[str, int], limits: Limits, **choices: bool
) -> AccumulateForm:
    """The arrangement with the register tile of an operator.

    Args:
        operator: a convolution or matrix product.
        lanes: int32 lanes of a vector.
        pairs: neighbours along the input channels that lie side by side in each lane.
        knobs: of KNOBS.
        limits: of the register tile.
        choices: the other fields of AccumulateForm.
    """
    assert isinstance(operator, (Convolution, MatrixMultiply))
    positions, channels = extents_of(operator)
    tile, vectors = register_tile(positions, -(-channels // lanes), knobs, limits)
    return AccumulateForm(vectors * lanes, tile, lanes, pairs, **choices)
