"""The driver's side of an operator: a source or a committer with state for all its regions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager


class EventSender:
    """Sends events to regions; a coordinator gets one in `OperatorCoordinator.open`.

    Any thread may send. A coordinator with threads of its own changes its state and sends the
    events that follow from it in one step, so that a snapshot has both or neither:

    >>> with send.in_one_step():
    ...     self.given[region].append(split)
    ...     send(region, split.encode())

    `OperatorCoordinator.checkpoint`, `reset` and `region_reset` are such steps as a whole, so they
    need no lock of the coordinator. A lock of its own could not replace the step: a thread could
    come between the coordinator's return and the moment at which its events are held back.

    Parameters
    ----------
    deliver : callable
        Takes the name of a region and an event.
    step : threading.RLock
        Held during a step.
    """

    def __init__(
        self, deliver: Callable[[str, bytes], None], step: AbstractContextManager[object]
    ) -> None:
        self._deliver = deliver
        self._step = step

    def __call__(self, region: str, event: bytes) -> None:
        """Send an event to a region. It arrives with the next attempt that the region runs in.

        Only coordinator and operator understand the bytes.
        """
        self._deliver(region, event)

    def in_one_step(self) -> AbstractContextManager[object]:
        """Begin a step that no snapshot and no reset interrupts; may be nested in one thread.

        A coordinator takes locks of its own inside of the step.
        """
        return self._step


class OperatorCoordinator(ABC):
    """Keeps state of an operator on the driver, as part of every checkpoint.

    A split enumerator and a committer are such coordinators. The driver calls all methods from one
    thread. An exception in `checkpoint` or `checkpoint_fallback` aborts the attempt (R35);
    ``region_timeout`` bounds a call that never returns. The contract follows Flink's FLIP-27,
    corrected for regions that fall back (FLIP-600).

    `open`, `assign`, `completed`, `aborted` and `close` do nothing unless a subclass needs them.
    """

    #: True if `checkpoint_fallback` is implemented. Otherwise every checkpoint is global (R15).
    supports_fallback: bool = False

    def open(self, send: EventSender) -> None:  # noqa: B027
        """Begin, before anything else is called; `send` sends events to regions."""

    def assign(self, checkpoint: int) -> None:  # noqa: B027
        """Send regions their work for the batch that begins, before `checkpoint`.

        Not called for an attempt that only replays owed rows.
        """

    @abstractmethod
    def checkpoint(self, checkpoint: int) -> bytes:
        """Take a snapshot for an attempt.

        The snapshot point of the coordinator is the moment at which this returns (R31): events sent
        to regions before belong to the checkpoint. Later events are held back until their region
        has taken its snapshot too, or the attempt has ended. The call and the closing of the
        regions' gates are one step of `EventSender.in_one_step`.

        Returns
        -------
        bytes
            The argument of a later `reset`; readable without this program.
        """

    def checkpoint_fallback(self, checkpoint: int, origins: Mapping[str, int]) -> bytes:
        """Return a snapshot that is consistent with regions at an older state (R32).

        It replaces the result of `checkpoint` for the attempt: failed regions are at their origins,
        all others at ``checkpoint``, whatever they were sent since. Work on a copy: the live state
        must not change, as the attempt may still be aborted and the regions may still run (R5). *In
        the snapshot*, take back the work that a failed region got after its origin and does not
        hold in its in-flight data, so that another region may get it. All work is in exactly one
        place of the checkpoint.

        Parameters
        ----------
        checkpoint : int
            Id of the attempt.
        origins : mapping of str to int
            Per failed region the id whose barrier produced the state it falls back to; after
            several fallbacks in a row that is still the first one (R30).

        Returns
        -------
        bytes
            The same form as `checkpoint` returns.

        Raises
        ------
        NotImplementedError
            Unless a subclass implements it and sets `supports_fallback`.
        """
        raise NotImplementedError(f"{type(self).__name__} does not support fallback")

    def refused(  # noqa: B027
        self, checkpoint: int, region: str, event: bytes, reason: str
    ) -> None:
        """Note that a healthy region went on without an event, since it cannot follow it.

        Its state at ``checkpoint`` does not reflect the event. `checkpoint_fallback` is called
        next, even if no region failed. If the attempt is aborted after that, `reset` is called.

        Parameters
        ----------
        checkpoint : int
            Id of the attempt.
        event : bytes
            The event that the region was sent.
        reason : str
            Why it cannot follow the event.
        """

    @property
    def skipped_splits(self) -> int:
        """Number of splits that no region reads because they were refused, for metrics."""
        return 0

    @abstractmethod
    def reset(self, snapshot: bytes | None) -> None:
        """Go back to a checkpoint with all regions, at a start or after an attempt was aborted.

        `snapshot` is the coordinator's part of the checkpoint; None if there is none (R33).
        """

    @abstractmethod
    def region_reset(self, region: str, origin: int) -> None:
        """Note that one region goes on from its origin, while the others go on (R33).

        It failed in the latest checkpoint. Called before the next snapshot.

        `origin` is the id whose barrier produced the state that the region restarts from. It is
        never a newer checkpoint with the same state: the work of the region since ``origin`` would
        be lost.
        """

    def completed(self, checkpoint: int, effective: Mapping[str, int]) -> None:  # noqa: B027
        """Note that a checkpoint is complete and durable (R34). Best effort, and may be repeated.

        Parameters
        ----------
        effective : mapping of str to int
            Per region the id up to which the checkpoint covers it: the origin of a failed region,
            else ``checkpoint``. Commit and trim per region. Work that belongs to no single region
            goes by the smallest of these ids, or by ``checkpoint`` if there is no region.
        """

    def aborted(self, checkpoint: int) -> None:  # noqa: B027
        """Note that an attempt ended without a checkpoint (R42). Best effort, may be repeated.

        Prepared work stays owed: the next checkpoint covers it.
        """

    def close(self) -> None:  # noqa: B027
        """Release resources of the coordinator, once, when the query ends."""
