"""Which operators of an explained plan connect regions."""

from __future__ import annotations

import pytest

from holdfast.regions.runners.spark.plan import Exchange, Node, exchanges_in, read_plan

JOINED = """\
== Physical Plan ==
*(5) Project [k#8L, v#9L]
+- *(5) SortMergeJoin [k#8L], [k#1L], Inner
   :- *(2) Sort [k#8L ASC NULLS FIRST], false, 0
   :  +- Exchange hashpartitioning(k#8L, 4), ENSURE_REQUIREMENTS, [plan_id=33]
   :     +- *(1) BroadcastHashJoin [k#8L], [k#3L], Inner, BuildRight, false, false
   :        :- StreamingRelation FileSource[/in], [k#8L, v#9L]
   :        +- BroadcastExchange HashedRelationBroadcastMode(false), [plan_id=30]
   :           +- LocalTableScan [k#3L]
   +- *(4) Sort [k#1L ASC NULLS FIRST], false, 0
      +- Exchange hashpartitioning(k#1L, 4), ENSURE_REQUIREMENTS, [plan_id=39]
         +- *(3) Range (0, 5000000, step=1, splits=2)

"""


def names(text: str) -> list[str]:
    return [exchange.name for exchange in exchanges_in(read_plan(text))]


def test_only_the_exchange_above_the_stream_connects_regions() -> None:
    assert exchanges_in(read_plan(JOINED)) == [
        Exchange(
            name="Exchange", description="Exchange hashpartitioning(k, 4), ENSURE_REQUIREMENTS"
        )
    ]


def test_a_plan_is_read_as_a_tree() -> None:
    (join,) = read_plan(JOINED).children
    left, right = join.children
    assert [node.name for node in (join, left, right)] == ["SortMergeJoin", "Sort", "Sort"]
    assert left.children[0].children[0].children[1].text.startswith("BroadcastExchange")
    assert right.children[0].children[0].streams is False


def test_a_text_with_line_breaks_hides_no_exchange() -> None:
    assert names(
        "Project [k#1]\n"
        "+- Exchange hashpartitioning(k#1, 4)\n"
        "   +- Filter (v#2 = one\n"
        "two)\n"
        "      +- StreamingRelation FileSource[/in], [k#1, v#2]"
    ) == ["Exchange"]


@pytest.mark.parametrize(
    "name", ["Exchange", "BroadcastExchange", "ColumnarExchange", "CollectLimit", "CollectTail"]
)
def test_whatever_moves_rows_of_the_stream_connects(name: str) -> None:
    assert names(f"{name} x\n+- StreamingRelation y") == [name]


@pytest.mark.parametrize("name", ["Coalesce", "ReusedExchange", "Union", "AQEShuffleRead"])
def test_what_leaves_partitions_whole_does_not_connect(name: str) -> None:
    assert names(f"{name} x\n+- StreamingRelation y") == []


def test_an_exchange_of_which_nobody_tells_where_its_rows_are_from_connects() -> None:
    scan = Node(text="ForeignScan", streams=None)
    static = Node(text="Range", streams=False)
    assert exchanges_in(Node(text="Exchange x", streams=None, children=(scan,)))
    assert not exchanges_in(Node(text="Exchange x", streams=None, children=(scan, static)))


def test_a_text_without_a_plan_is_an_error() -> None:
    with pytest.raises(ValueError, match="expected the text of a physical plan"):
        read_plan("== Physical Plan ==\n\n")
