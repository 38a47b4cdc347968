"""Find the places where rows of different regions meet before they reach the operators.

A checkpoint can do without a region only if no other region depends on its rows. Regions are
independent until a plan exchanges rows between tasks: by a shuffle, by broadcasting them, or by a
product with the partitions of another table. Exchanges of static tables on the other side of a join
do not matter, and neither does merging whole partitions (``coalesce``).

Spark plans every batch again, with the sizes that it finds. It may broadcast a small batch to a
large static table although the plan at the start broadcasts nothing. So both plans are checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast._sessions import QUERY_ID

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# These shuffle or pair partitions, in addition to everything that ends with "Exchange".
_CONNECTING: Final = {"CartesianProduct", "CollectLimit", "CollectTail", "TakeOrderedAndProject"}
# A reused exchange is elsewhere in the plan under its own name.
_REUSED: Final = "ReusedExchange"

# A line of an explained plan: depth, number of the generated code, node.
_LINE: Final = re.compile(r"(?P<depth>(?:[:| ]  )*(?:[:+]- )?)(?:\* ?(?:\(\d+\))? )?(?P<text>\S.*)")
_LEVEL_WIDTH: Final = 3
_STREAMING_LEAF: Final = "StreamingRelation"
# Ids of expressions and of parts of the plan, which say nothing to a reader.
_IDS: Final = re.compile(r"#\d+L?|, \[plan_id=\d+\]")
_MAX_FIELDS: Final = 25


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """A place in a plan where rows of different regions meet.

    `name` is Spark's, such as ``BroadcastExchange``. `description` is its line of the explained
    plan, without ids: for example ``Exchange hashpartitioning(k, 4), REPARTITION_BY_COL``.
    """

    name: str
    description: str


@dataclass(frozen=True, kw_only=True)
class Node:
    """An operator and the nodes below it; `streams`: the stream's rows pass it, None if unknown."""

    text: str
    streams: bool | None
    children: tuple[Node, ...] = ()

    @property
    def name(self) -> str:
        """Name of the operator."""
        return re.split(r"\W", self.text, maxsplit=1)[0]


def planned_exchanges(frame: DataFrame) -> list[Exchange]:
    """Return the exchanges that Spark plans for a stream before it is started.

    They are in the explained plan's order, the last one in the stream first; none if no row moves.

    Raises
    ------
    ValueError
        If the DataFrame is not a streaming one.
    pyspark.errors.AnalysisException
        If Spark cannot run it as a stream.
    """
    if not frame.isStreaming:
        raise ValueError("expected a streaming DataFrame, found a static one")
    jvm: Any = frame.sparkSession._jvm
    mode = jvm.org.apache.spark.sql.execution.ExplainMode.fromString("simple")
    return exchanges_in(read_plan(frame._jdf.queryExecution().explainString(mode)))


def batch_exchanges(batch: DataFrame, *, session: SparkSession) -> list[Exchange]:
    """Return the exchanges between the source and a batch.

    `session` is the streaming DataFrame's; the batch has a copy without queries. Raises a
    ValueError outside of ``foreachBatch`` of a query of the session.
    """
    # The batch's own plan begins with finished rows; the query has the plan before them.
    query_id = batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    query: Any = session.streams.get(query_id) if query_id else None
    if query is None:
        raise ValueError("expected a batch in foreachBatch of a query of this session, found none")
    execution = query._jsq.streamingQuery().lastExecution()
    return exchanges_in(_walk(execution.executedPlan()))


def exchanges_in(plan: Node) -> list[Exchange]:
    """Return the exchanges of a plan that rows of the stream go through, outermost first."""
    found = []
    for node in _all(plan):
        if (node.name.endswith("Exchange") and node.name != _REUSED) or node.name in _CONNECTING:
            telling = [below.streams for below in _all(node) if below.streams is not None]
            # If no operator tells, one exchange too many is safer than dependent regions.
            if not telling or any(telling):
                found.append(Exchange(name=node.name, description=_IDS.sub("", node.text)))
    return found


def read_plan(text: str) -> Node:
    """Read the physical plan in ``explain()`` of a stream; ValueError without one."""
    nodes: list[tuple[int, str]] = []
    for line in text.splitlines():
        found = _LINE.fullmatch(line)
        if found is None or found["text"].startswith("== "):
            continue
        depth = len(found["depth"]) // _LEVEL_WIDTH
        # Only the first node has depth 0: this is the rest of a text with line breaks.
        if depth > 0 or not nodes:
            nodes.append((depth, found["text"]))
    if not nodes:
        raise ValueError(f"expected the text of a physical plan, found {text!r}")
    node, _ = _read_node(nodes, 0)
    return node


def _read_node(nodes: list[tuple[int, str]], at: int) -> tuple[Node, int]:
    """Return the node of a line, and the number of the first line that is not below it."""
    depth, text = nodes[at]
    children: list[Node] = []
    at += 1
    while at < len(nodes) and nodes[at][0] > depth:
        child, at = _read_node(nodes, at)
        children.append(child)
    streams = None if children else text.startswith(_STREAMING_LEAF)
    return Node(text=text, streams=streams, children=tuple(children)), at


def _walk(plan: Any) -> Node:
    """Copy a physical plan from the JVM."""
    kind = plan.getClass().getSimpleName()
    if kind == "AdaptiveSparkPlanExec":
        return _walk(plan.executedPlan())
    if kind.endswith("QueryStageExec"):
        return _walk(plan.plan())
    link = plan.logicalLink()
    children = plan.children()
    return Node(
        text=plan.simpleString(_MAX_FIELDS),
        streams=link.get().isStreaming() if link.isDefined() else None,
        children=tuple(_walk(children.apply(number)) for number in range(children.size())),
    )


def _all(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _all(child)
