"""Memory of a process outside the JVM's heap, by the figures of the kernel and the JVM."""

from __future__ import annotations

import re
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

_STATUS = re.compile(r"^(VmRSS|RssAnon|RssFile|Threads):\s+(\d+)", re.MULTILINE)
_COMMITTED = re.compile(r"^-\s+(.+?) \(.*committed=(\d+)KB", re.MULTILINE)
_TOTAL = re.compile(r"^Total: .*committed=(\d+)KB", re.MULTILINE)
_JCMD_TIMEOUT_S = 60


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The memory of a JVM after a batch; sizes are in KiB.

    Attributes
    ----------
    rss_kib, anonymous_kib, file_kib
        Resident memory, and the parts of it without and with a file behind it (jars, libraries).
    categories
        Memory that the JVM's own tracking calls committed, by its names. The heap is wholly
        resident where the JVM started with ``-XX:+AlwaysPreTouch`` and equal bounds.
    threads
        Threads of the process.
    state_bytes
        ``memoryUsedBytes`` of the query's progress.
    """

    batch: int
    rss_kib: int
    anonymous_kib: int
    file_kib: int
    threads: int
    state_bytes: int
    categories: dict[str, int]

    @property
    def beyond_heap_kib(self) -> int:
        """Resident memory that is not the JVM's heap."""
        return self.rss_kib - self.categories["Java Heap"]

    @property
    def untracked_kib(self) -> int:
        """Anonymous memory that the JVM does not track: native libraries, and what malloc keeps.

        Committed memory of the JVM need not be resident, so this is a lower bound.
        """
        return self.anonymous_kib - sum(self.categories.values())

    def to_json(self) -> dict[str, object]:
        """Return the fields, and what is derived from them."""
        return {
            **asdict(self),
            "beyond_heap_kib": self.beyond_heap_kib,
            "untracked_kib": self.untracked_kib,
        }


def tracking_settings(heap: str) -> dict[str, str]:
    """Return settings of a session whose JVM tracks its memory; its heap is resident at once."""
    options = f"-Xms{heap} -XX:+AlwaysPreTouch -XX:NativeMemoryTracking=summary"
    return {"spark.driver.extraJavaOptions": options}


def sample(pid: int, *, batch: int, state_bytes: int) -> Sample:
    """Look at a running JVM that was started with ``-XX:NativeMemoryTracking=summary``."""
    # First the kernel's figures: the JVM takes memory to answer.
    status = dict(_STATUS.findall(Path(f"/proc/{pid}/status").read_text()))
    tracked = jcmd(pid, "VM.native_memory", "summary", "scale=KB")
    return Sample(
        batch=batch,
        rss_kib=int(status["VmRSS"]),
        anonymous_kib=int(status["RssAnon"]),
        file_kib=int(status["RssFile"]),
        threads=int(status["Threads"]),
        state_bytes=state_bytes,
        categories=committed(tracked),
    )


def committed(tracked: str) -> dict[str, int]:
    """Read what ``VM.native_memory`` prints: KiB committed, by category.

    Raises
    ------
    ValueError
        If the JVM does not track its memory, or the categories are not all of it.
    """
    total = _TOTAL.search(tracked)
    if total is None:
        raise ValueError(f"the JVM does not track its native memory: {tracked.strip()}")
    categories = {name: int(kib) for name, kib in _COMMITTED.findall(tracked)}
    missing = int(total.group(1)) - sum(categories.values())
    if abs(missing) > len(categories):  # every figure is rounded
        raise ValueError(f"categories of the JVM's native memory lack {missing} KiB of its total")
    return categories


def trim(pid: int) -> None:
    """Have malloc give back to the kernel what it keeps for later."""
    jcmd(pid, "System.trim_native_heap")


def jcmd(pid: int, *command: str) -> str:
    """Ask a JVM through the JDK's ``jcmd``."""
    done = subprocess.run(
        ["jcmd", str(pid), *command],
        check=True,
        capture_output=True,
        text=True,
        timeout=_JCMD_TIMEOUT_S,
    )
    return done.stdout
