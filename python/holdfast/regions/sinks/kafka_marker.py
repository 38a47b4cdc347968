"""The marker of a pipeline or query in Kafka: owner of the transactional id, and last commit.

It is the metadata of an offset that a consumer group of the transactional id has for partition 0 of
the topic. It is in the transaction of the records, so both are there or neither.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Final, Self

from holdfast.regions.base.versions import require_known
from holdfast.regions.sinks.owner import OutputOwner

VERSION: Final = 1

#: Brokers take at most 4096 (offset.metadata.max.bytes); names for people are cut to this.
_SHOWN_BYTES: Final = 1500


def group_of(transactional_id: str) -> str:
    """Return the name of the consumer group that has the marker."""
    return f"holdfast-{transactional_id}"


@dataclass(frozen=True)
class Marker:
    """Content of the marker.

    - `after`: the pipeline has the transactional id since this checkpoint: output of newer
      checkpoints was committed with it, or not at all.
    - `checkpoint`: the checkpoint committed last; 0: none. `output`: see `output_id`.

    The checkpoints of a query are its batches.
    """

    owner: OutputOwner
    after: int
    checkpoint: int = 0
    output: str = ""

    def encode(self) -> str:
        """Return it as a text of at most 4096 bytes."""
        owner = {key: _cut(value) for key, value in asdict(self.owner).items()}
        content = {**asdict(self), "owner": owner, "version": VERSION}
        return json.dumps(content, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str, group: str) -> Self:
        """Decode the text of `encode`; ValueError for other texts, NewerFormatError for newer."""
        with suppress(ValueError, KeyError, TypeError):
            found = json.loads(text)
            require_known(f"consumer group {group!r}", found["version"], VERSION)
            if found["version"] == VERSION:
                del found["version"]
                return cls(**{**found, "owner": OutputOwner(**found["owner"])})
        raise ValueError(
            f"the consumer group {group!r} has offsets that Holdfast did not write: give "
            "write_kafka another transactional_id"
        )


def _cut(text: str) -> str:
    while len(json.dumps(text)) > _SHOWN_BYTES:
        text = text[: len(text) * 9 // 10]
    return text
