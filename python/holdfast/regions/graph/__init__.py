"""The graph of operators of one region: channels, barriers, alignment, in-flight data.

Everything here is pure and deterministic: no threads, no clock (time is ``now_ms``), no I/O. The
task feeds a graph, steps it, and asks it for outputs and snapshots. The rules are R50 to R58 and
R61 of the checkpoint semantics.

- `RegionGraph`: the graph; `StageSpec` and `StageOperator` are its parts.
- `Output`, `RegionSnapshot`, `ChannelData`, `Progress`: its results.
- `encode_channels`, `decode_channels`: in-flight data as the payload of one segment.
- `redistribute`: in-flight data for other channels; `channel_name`: their names.
"""

from holdfast.regions.graph.codec import decode_channels, encode_channels
from holdfast.regions.graph.data import (
    SOURCE,
    ChannelData,
    InstanceKey,
    Output,
    Progress,
    RegionSnapshot,
    channel_name,
    redistribute,
)
from holdfast.regions.graph.graph import RegionGraph
from holdfast.regions.graph.spec import Route, StageOperator, StageSpec

__all__ = [
    "SOURCE",
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
