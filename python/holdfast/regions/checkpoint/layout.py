"""The layout by which a pipeline's state is found: region columns, operators, instances (R14)."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Final

from holdfast._core import CheckpointMetadata
from holdfast.regions.protocol.orders import PipelinePlan, instance_name

#: Property of a checkpoint's metadata that holds the layout it was made in, as JSON.
LAYOUT_PROPERTY: Final = "layout"


@dataclass(frozen=True)
class StageLayout:
    """Instances of one operator; `route_by` is empty for a single one."""

    name: str
    parallelism: int
    route_by: tuple[str, ...]

    @property
    def instances(self) -> list[str]:
        """Names under which the states of the instances are kept."""
        return [instance_name(self.name, self.parallelism, i) for i in range(self.parallelism)]


@dataclass(frozen=True)
class Layout:
    """The places of state in a pipeline."""

    region_by: tuple[str, ...]
    stages: tuple[StageLayout, ...]

    @classmethod
    def of(cls, plan: PipelinePlan) -> Layout:
        """Return the layout of a pipeline."""
        stages = (
            StageLayout(
                stage.name, stage.parallelism, stage.route_by if stage.parallelism > 1 else ()
            )
            for stage in plan.stages
        )
        return cls(plan.region_by, tuple(stages))

    @classmethod
    def recorded(cls, metadata: CheckpointMetadata) -> Layout | None:
        """Return a checkpoint's layout; None without regions, ValueError if regions have none."""
        text = metadata.properties.get(LAYOUT_PROPERTY)
        if text is None:
            if metadata.regions:
                raise ValueError(f"checkpoint {metadata.id} does not say what layout it has")
            return None
        content = json.loads(text)
        stages = (
            StageLayout(stage["name"], stage["parallelism"], tuple(stage["route_by"]))
            for stage in content["stages"]
        )
        return cls(tuple(content["region_by"]), tuple(stages))

    def to_json(self) -> str:
        """Return the text for `LAYOUT_PROPERTY`."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def fingerprint(self) -> bytes:
        """A digest of the layout."""
        return hashlib.sha256(self.to_json().encode()).digest()

    @property
    def names(self) -> list[str]:
        """Names of the operators, first to last."""
        return [stage.name for stage in self.stages]

    def stage(self, name: str) -> StageLayout | None:
        """Return the layout of an operator; None if there is none."""
        return next((stage for stage in self.stages if stage.name == name), None)
