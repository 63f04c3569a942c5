"""How the tensors of a computation are arranged: the choices of a schedule rule that TE and packing must share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AccumulateForm:
    """Arrangement of a convolution or matrix product.

    Args:
        lanes: output channels (or columns) that lie side by side in one vector.
        tile: output positions of a row (or rows of a matrix) that are computed together; the rows of the padded
            input are long enough for whole tiles.
        channelwise: treat all output channels as one group, each with its own copy of its input channels. Fills
            the vectors where the groups are narrower than a vector (depthwise convolution).
    """

    lanes: int
    tile: int
    channelwise: bool = False


@dataclass(frozen=True)
class ElementwiseForm:
    """Arrangement of an operator on single elements.

    Args:
        lanes: elements in one vector.
    """

    lanes: int


@dataclass(frozen=True)
class ChannelBlocks:
    """Output channels cut into blocks of `lanes`, group by group; the last block of a group may have empty lanes.

    Channel o of all `groups * width` lies in group o // width, block (o % width) // lanes, lane (o % width) % lanes.
    """

    groups: int
    width: int
    lanes: int

    @property
    def blocks(self) -> int:
        """Blocks of one group."""
        return -(-self.width // self.lanes)

    @property
    def is_full(self) -> bool:
        """Whether no lane is empty."""
        return self.width % self.lanes == 0

    @property
    def shape(self) -> tuple[int, int, int]:
        """(groups, blocks, lanes)."""
        return self.groups, self.blocks, self.lanes
