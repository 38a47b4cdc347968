"""The driver's side of an operator: what a source or a committer keeps for all its regions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager


class EventSender:
    """Sends events to regions; what a coordinator is given in `OperatorCoordinator.open`.

    Any thread may send. A coordinator with threads of its own changes its state and sends what
    follows from it in one step, so that a snapshot has both or neither:

    >>> with send.in_one_step():
    ...     self.given[region].append(split)
    ...     send(region, split.encode())

    `OperatorCoordinator.checkpoint`, `reset` and `region_reset` are such steps as a whole, so they
    need no lock of the coordinator's. With one of its own in place of this, a thread could come
    between the coordinator's return and the moment at which its events are held back.

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
        """Send an event. It arrives with the next attempt that the region runs in.

        Parameters
        ----------
        region : str
            Name of the region.
        event : bytes
            What only coordinator and operator understand.
        """
        self._deliver(region, event)

    def in_one_step(self) -> AbstractContextManager[object]:
        """Begin a step that no snapshot and no reset comes into; may be nested in one thread.

        A coordinator that takes a lock of its own, too, takes it inside of the step.
        """
        return self._step


class OperatorCoordinator(ABC):
    """Keeps state of an operator on the driver, as part of every checkpoint.

    A split enumerator and a committer are such coordinators. The driver calls all methods from one
    thread. An exception in `checkpoint` or `checkpoint_fallback` aborts the attempt (R35); one that
    never returns is bounded by ``region_timeout``. The contract follows Flink's FLIP-27, corrected
    where regions may fall back (FLIP-600).

    `open`, `assign`, `completed`, `aborted` and `close` do nothing unless a subclass needs them.
    """

    #: Whether `checkpoint_fallback` is implemented. Without it every checkpoint is global (R15).
    supports_fallback: bool = False

    def open(self, send: EventSender) -> None:  # noqa: B027
        """Begin, before anything else is called.

        Parameters
        ----------
        send : EventSender
            Sends an event to a region. A coordinator that sends from threads of its own does so in
            `EventSender.in_one_step`.
        """

    def assign(self, checkpoint: int) -> None:  # noqa: B027
        """Send regions what they are to process in the batch that begins, before `checkpoint`.

        Not called for an attempt that only replays what regions owe.

        Parameters
        ----------
        checkpoint : int
            Id of the attempt.
        """

    @abstractmethod
    def checkpoint(self, checkpoint: int) -> bytes:
        """Take a snapshot.

        The moment it returns is the coordinator's snapshot point (R31): events sent to regions
        before belong to the checkpoint, later ones do not. Events that are sent later are held back
        until their region has taken its snapshot too or the attempt has ended. The call and the
        closing of the regions' gates are one step of `EventSender.in_one_step`.

        Parameters
        ----------
        checkpoint : int
            Id of the attempt.

        Returns
        -------
        bytes
            What `reset` takes; readable without this program.
        """

    def checkpoint_fallback(self, checkpoint: int, origins: Mapping[str, int]) -> bytes:
        """Return a snapshot that is consistent with regions at an older state (R32).

        It replaces what `checkpoint` returned for the attempt: failed regions are at their origins,
        all others at ``checkpoint``, whatever they were sent since. Work on a copy: the live state
        must not change, as the attempt may still be aborted and the regions may still run (R5).
        What a failed region was given after its origin, and does not hold in its in-flight data,
        goes back to what no region was given, *in the snapshot*. Everything given out is
        in exactly one place of the checkpoint.

        Parameters
        ----------
        checkpoint : int
            Id of the attempt.
        origins : mapping of str to int
            Per failed region the id whose barrier produced the state it falls back to; of a
            fallback after a fallback that is still the first one (R30).

        Returns
        -------
        bytes
            As for `checkpoint`.

        Raises
        ------
        NotImplementedError
            Unless a subclass implements it and sets `supports_fallback`.
        """
        raise NotImplementedError(f"{type(self).__name__} does not support fallback")

    @abstractmethod
    def reset(self, snapshot: bytes | None) -> None:
        """Go back to a checkpoint, as all regions do: at a start, or when an attempt is aborted.

        Parameters
        ----------
        snapshot : bytes or None
            What the checkpoint holds; None where there is no checkpoint, or it holds none (R33).
        """

    @abstractmethod
    def region_reset(self, region: str, origin: int) -> None:
        """Note that one region goes on from its origin, while the others go on (R33).

        It failed in the latest checkpoint. Called before the next snapshot.

        Parameters
        ----------
        region : str
            Its name.
        origin : int
            The id whose barrier produced the state it restarts from. Never a newer id, though
            newer checkpoints hold that state: what the region was given after ``origin`` would be
            lost.
        """

    def completed(self, checkpoint: int, effective: Mapping[str, int]) -> None:  # noqa: B027
        """Note that a checkpoint is complete and durable (R34). Best effort, and may be repeated.

        Parameters
        ----------
        checkpoint : int
            Its id.
        effective : mapping of str to int
            Per region the id up to which the checkpoint covers it: of a failed region its origin,
            else ``checkpoint``. Commit and trim per region; what cannot be told apart by region
            goes by the smallest of these ids, or by ``checkpoint`` where there is no region.
        """

    def aborted(self, checkpoint: int) -> None:  # noqa: B027
        """Note that an attempt ended without a checkpoint (R42). Best effort, may be repeated.

        What was prepared for it stays owed: the next checkpoint covers it.
        """

    def close(self) -> None:  # noqa: B027
        """Release what the coordinator holds, once, when the query ends."""
