"""The driver's side of an operator or a source: state for all its regions, and events to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import ClassVar, Final, NoReturn

from holdfast.regions.coordinator.actions import CheckpointInfo

#: The largest event, in either direction.
MAX_EVENT_BYTES: Final = 1 << 20

#: Bound on the bytes of events of a coordinator in one direction in one checkpoint.
MAX_EVENTS_BYTES: Final = 16 << 20


def require_event(event: object, what: str) -> None:
    """Raise TypeError or ValueError unless the event `what` is bytes and not too large."""
    if not isinstance(event, bytes):
        raise TypeError(
            f"{what} is of the type {type(event).__name__}: expected bytes, for example those of "
            "json.dumps(...).encode()"
        )
    if len(event) > MAX_EVENT_BYTES:
        raise ValueError(
            f"{what} has {len(event)} bytes, and {MAX_EVENT_BYTES} are allowed: send the name of a "
            "file, and let its receiver read that"
        )


class EventGateway:
    """Sends a coordinator's events to regions. The driver makes it.

    Any thread may send. A coordinator with its own threads changes its state and sends the events
    that follow from it in one step, so that a snapshot has both or neither:

    >>> with gateway.in_one_step():
    ...     self.version = version
    ...     for region in gateway.regions:
    ...         gateway.send(region, version.encode())

    `handle_event`, `begin_batch`, `checkpoint`, `reset` and `region_reset` of the coordinator are
    such steps as a whole, so they need no lock. A lock of the coordinator could not replace the
    step: a thread could come between the coordinator's return and the moment at which its events
    are held back.

    Flink's counterpart is ``OperatorCoordinator.Context`` with its ``SubtaskGateway``.
    """

    def __init__(
        self,
        deliver: Callable[[str, bytes], None],
        step: AbstractContextManager[object],
        regions: Callable[[], frozenset[str]],
    ) -> None:
        self._deliver = deliver
        self._step = step
        self._regions = regions

    @property
    def regions(self) -> frozenset[str]:
        """Regions of the latest checkpoint whose data has not ended; new ones are not in it yet."""
        return self._regions()

    def send(self, region: str, event: bytes) -> None:
        """Send an event to a region, for every instance of the operator in it.

        The event travels with the next batch, and ``on_event`` gets it before the rows of that
        batch. The region runs for it even without rows. Events of one coordinator to one region
        arrive in the order in which they were sent.

        Parameters
        ----------
        region : str
            One of `regions`. The coordinator of a source may name others: that makes the region.
        event : bytes
            At most 1 MiB. Only coordinator and operator understand the bytes.

        Raises
        ------
        TypeError
            If the event is not of the type bytes, or the operator has no ``on_event``.
        ValueError
            If there is no such region, or the event is too large.
        RuntimeError
            If the pipeline has ended, or more than 16 MiB of events wait for regions.
        """
        self._deliver(region, event)

    def in_one_step(self) -> AbstractContextManager[object]:
        """Begin a step without snapshot or reset; one thread may nest it. Take own locks inside."""
        return self._step


class OperatorCoordinator(ABC):
    """Keeps state of an operator on the driver, as part of every checkpoint.

    Give one to `RegionalPipeline.apply`. `FileSplits` has one that hands out splits. The contract
    is that of Flink's ``OperatorCoordinator`` (FLIP-27), with its additions for regions that fall
    back (FLIP-600). It differs from Flink where events could be lost or repeated:

    - **To a region.** Events that were sent before `checkpoint` returned belong to that checkpoint.
      The operator gets each once, before the rows of the batch. If the region falls back, the
      checkpoint stores the events, and they are repeated between the same rows.
    - **From a region.** An event that an operator sends (`OperatorContext.send_event`) belongs to
      the checkpoint that has the state from which it was sent. `handle_event` gets it when that
      checkpoint has completed. Events of regions that fell back, and of aborted attempts, never
      arrive: their rows are replayed, and so are their events.

    The driver calls all methods from one thread. An exception in `handle_event`, `begin_batch`,
    `checkpoint` or `checkpoint_fallback` aborts the attempt. Before the next attempt the
    coordinator goes back to the latest checkpoint. One in `start`, `reset` or `region_reset` ends
    the query. Notices that raise are only logged. ``region_timeout`` bounds every call.

    All methods but `checkpoint` and `reset` are optional. Those that return no snapshot return
    None. None of them is a generator or ``async``.

    Examples
    --------
    >>> class RowTotal(holdfast.OperatorCoordinator):
    ...     supports_fallback = True
    ...
    ...     def handle_event(self, region, event):
    ...         self.total += int(event)
    ...
    ...     def checkpoint(self, checkpoint):
    ...         return str(self.total).encode()
    ...
    ...     def reset(self, snapshot):
    ...         self.total = int(snapshot or 0)
    """

    #: True if a checkpoint may combine this state with older state of regions that failed: it
    #: depends on regions only by their events, or `checkpoint_fallback` corrects it. Otherwise
    #: every checkpoint needs all regions. Flink's ``supportsRegionCheckpoint``.
    supports_fallback: ClassVar[bool] = False

    #: True if the coordinator takes back events of a region that falls back, to give them to
    #: others: they are not repeated by themselves. `checkpoint_fallback` and `region_reset` have to
    #: take back events for attempts after the region's origin.
    takes_back_events: ClassVar[bool] = False

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled with an operator."""
        raise TypeError(
            f"{type(self).__name__} is a coordinator and stays on the driver: an operator reaches "
            "it by ctx.send_event(...), and does not hold it"
        )

    def start(self, gateway: EventGateway) -> None:  # noqa: B027
        """Begin, before `reset` and all other calls. Events may be sent from `reset` on.

        Parameters
        ----------
        gateway : EventGateway
            Sends events to regions.
        """

    def begin_batch(self, checkpoint: int) -> None:  # noqa: B027
        """Look for work outside, and send events that precede the batch's rows.

        Called before `checkpoint`. Not called for an attempt that only replays pending rows.

        Parameters
        ----------
        checkpoint : int
            Id of the attempt.
        """

    def handle_event(self, region: str, event: bytes) -> None:
        """Take an event of a region, once for the checkpoint that has the region's state.

        Events of one instance arrive in the order in which it sent them. If the process ends before
        the next checkpoint, the next start calls `reset`, and then this with the same events.

        Parameters
        ----------
        region : str
            Name of the region.
        event : bytes
            The argument of ``send_event``.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not define handle_event(region, event), and region "
            f"{region!r} sent an event of {len(event)} bytes"
        )

    @abstractmethod
    def checkpoint(self, checkpoint: int) -> bytes:
        """Take a snapshot for an attempt; the barrier goes to the regions after that.

        Events that were sent to regions before this returns belong to the checkpoint. Later events
        are held back until their region has taken its snapshot, or the attempt has ended. Flink's
        ``checkpointCoordinator``.

        Parameters
        ----------
        checkpoint : int
            Id of the attempt; it rises, and attempts may be aborted.

        Returns
        -------
        bytes
            The argument of a later `reset`; readable without this program.
        """

    def checkpoint_fallback(self, checkpoint: int, origins: Mapping[str, int]) -> bytes | None:
        """Return a snapshot that is consistent with regions at an older state.

        It replaces the result of `checkpoint` for the attempt: failed regions are at their origins,
        all others at ``checkpoint``, whatever they were sent since. Work on a copy: the live state
        must not change, as the attempt may still be aborted and the regions may still run. *In the
        snapshot*, take back the work that a failed region got after its origin, so that another
        region may get it. All work is in exactly one place of the checkpoint.

        Called if regions failed, and `supports_fallback` is true. Flink's counterpart is
        ``checkpointCoordinatorForRegionFallback`` (FLIP-600).

        Parameters
        ----------
        checkpoint : int
            Id of the attempt.
        origins : mapping of str to int
            Per failed region the id whose barrier produced its state; the first one after several
            fallbacks in a row.

        Returns
        -------
        bytes or None
            The same form as `checkpoint` returns. None keeps its snapshot, because nothing in it
            depends on failed regions.
        """
        return None

    @abstractmethod
    def reset(self, snapshot: bytes | None) -> None:
        """Go back to a checkpoint with all regions.

        Called at a start, and after an aborted attempt, whose regions all go back; not if single
        regions fall back. Everything taken from outside since that checkpoint has to be taken
        again. Flink's ``resetToCheckpoint``.

        Parameters
        ----------
        snapshot : bytes or None
            The coordinator's part of the checkpoint; None if there is none.
        """

    def region_reset(self, region: str, origin: int) -> None:  # noqa: B027
        """Note that one region restarts from its origin, while the others continue.

        It failed in the latest checkpoint. Called before the next snapshot. Unless the coordinator
        takes back events, there is nothing to do: the events are repeated. Flink's
        ``subtaskReset``.

        Parameters
        ----------
        region : str
            Name of the region.
        origin : int
            The id whose barrier produced the state that the region restarts from. It is never a
            newer checkpoint with the same state, since work of the region after ``origin`` would be
            lost.
        """

    def checkpoint_complete(self, info: CheckpointInfo) -> None:  # noqa: B027
        """Note that a checkpoint is complete and durable, after the events that belong to it.

        Best effort, and may be repeated. Commit and trim per region, up to the id that
        ``info.effective(region)`` returns. Work of no single region is bounded by ``info.oldest``.
        Flink's ``notifyCheckpointComplete``.
        """

    def checkpoint_aborted(self, checkpoint: int) -> None:  # noqa: B027
        """Note that an attempt ended without a checkpoint. Best effort, may be repeated.

        The next checkpoint covers prepared work. Flink's ``notifyCheckpointAborted``.
        """

    def close(self) -> None:  # noqa: B027
        """Release resources of the coordinator, once, when the query ends."""
