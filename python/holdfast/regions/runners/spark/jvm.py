"""Whether the JVM of the driver is still there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext


def jvm_answers(context: SparkContext) -> bool:
    """Say whether the JVM of the driver answers.

    To be asked when a call has failed: what py4j raises when the JVM dies in the middle of a call
    depends on the moment, and may be what it raises for a call that the JVM refused.
    """
    jvm: Any = context._jvm
    try:
        jvm.System.currentTimeMillis()
    except Exception:
        return False
    return True
