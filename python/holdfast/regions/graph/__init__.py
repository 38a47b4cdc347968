"""The graph of operators of one region: channels, barriers, alignment, in-flight data.

Everything here is pure and deterministic: no threads, no clock (time comes in as ``now_ms``), no
I/O. The task feeds a graph, steps it, and asks it for outputs and snapshots. The rules are
R50 to R58 and R61 of the checkpoint semantics.

- `RegionGraph`: the graph; `StageSpec`, `StageOperator` and `AlignmentMode` say what it is made of.
- `Output`, `RegionSnapshot`, `ChannelData`, `Progress`: what comes out of it.
- `encode_channels`, `decode_channels`: in-flight data as the payload of one segment.
- `redistribute`: in-flight data for other channels; `channel_name`: what they are called.
"""

from holdfast.regions.graph.codec import decode_channels, encode_channels
from holdfast.regions.graph.data import (
    SOURCE,
    ChannelData,
    InstanceKey,
    Output,
    Progress,
    RegionSnapshot,
)
from holdfast.regions.graph.graph import DEFAULT_MAX_IN_FLIGHT_BYTES, RegionGraph
from holdfast.regions.graph.naming import channel_name
from holdfast.regions.graph.redistribution import redistribute
from holdfast.regions.graph.spec import AlignmentMode, Route, StageOperator, StageSpec

__all__ = [
    "DEFAULT_MAX_IN_FLIGHT_BYTES",
    "SOURCE",
    "AlignmentMode",
    "ChannelData",
    "InstanceKey",
    "Output",
    "Progress",
    "RegionGraph",
    "RegionSnapshot",
    "Route",
    "StageOperator",
    "StageSpec",
    "channel_name",
    "decode_channels",
    "encode_channels",
    "redistribute",
]
