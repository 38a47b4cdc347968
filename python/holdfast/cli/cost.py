"""The requests of a query's checkpoint on an object store, and their cost."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from holdfast.cli import folders
from holdfast.cli.output import documents, report
from holdfast.cli.output.tables import Cell, Table
from holdfast.files.printable import printable
from holdfast.queries import batches
from holdfast.queries.batches import Batches
from holdfast.queries.folder import is_query_checkpoint

#: US dollars for 1,000 requests: Amazon S3 Standard in us-east-1. Deletes are free.
PUT_PRICE: Final = 0.005
GET_PRICE: Final = 0.0004
PRICE_SOURCE: Final = "https://aws.amazon.com/s3/pricing/"

#: Executors if the number is unknown.
EXECUTORS: Final = 4

SECONDS_OF_MONTH: Final = 30 * 24 * 3600

LEFT_OUT: Final = (
    "not in the bill: storage, sources and sinks, restarts, merges and snapshots of maintenance, "
    "clean-ups, and the deletion of old batches"
)


class Requests(NamedTuple):
    """Requests by price: puts with copies and lists, gets with heads, and deletes."""

    put: float = 0
    get: float = 0
    delete: float = 0


#: Requests of Spark for a file of a store, with Hadoop's S3A of Spark 4.3: it puts another object,
#: copies it and deletes it, with 8 lists and 11 heads.
#: ``tests/spark/filesystems/test_cost_requests.py`` counts them on a server of the S3 protocol.
OF_FILE: Final = Requests(put=10, get=11, delete=1)
OF_SPARK: Final[Mapping[str, Requests]] = {
    **dict.fromkeys(batches.FILES, OF_FILE),
    batches.LOG: Requests(put=11, get=13, delete=1),
    batches.SST: Requests(put=2, get=1),
}

#: Holdfast puts each object at once. Before a commit, the driver lists the markers of applications.
#: Its lists of files and catalogs are left out: 0.1 requests a batch with one executor, 0.3 with
#: 8, 1.1 with 100, and 1.6 with 1,000.
OF_HOLDFAST: Final = Requests(put=1)
LISTING: Final = "list of markers"


class Term(NamedTuple):
    """Things of one kind in a batch: how many, and the requests for each."""

    what: str
    number: float
    each: Requests


def as_it_is(found: Batches) -> list[Term]:
    """Return the requests of a batch, as the query runs now."""
    if found.is_holdfast:
        return with_holdfast(found, found.objects[batches.MERGED])
    return [Term(kind, count, OF_SPARK[kind]) for kind, count in found.objects.items() if count]


def with_holdfast(found: Batches, executors: float) -> list[Term]:
    """Return the requests of a batch with Holdfast, for which each executor writes one object."""
    merged = executors if found.has_state else 0
    counts = {batches.LOG: found.objects[batches.LOG], batches.MERGED: merged, LISTING: 1}
    return [Term(what, count, OF_HOLDFAST) for what, count in counts.items() if count]


def requests_of(terms: list[Term]) -> Requests:
    """Return the requests of a batch."""
    return Requests(*(sum(t.number * t.each[kind] for t in terms) for kind in range(3)))


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    command.add_argument(
        "path",
        help="checkpoint folder of a query with any provider: a path, or a URI such as "
        "s3a://bucket/checkpoint; or a local file of progress events, one JSON object a line; or "
        "Spark's event log",
    )
    command.add_argument(
        "--executors",
        type=partial(_number, kind=int, least=1),
        metavar="N",
        help="executors: with Holdfast each writes one object a batch (default: those in the event "
        f"log, else {EXECUTORS})",
    )
    command.add_argument(
        "--interval",
        type=partial(_number, least=0.001),
        metavar="SECONDS",
        help="time from one batch to the next (default: that of the newest batches)",
    )
    for name, price, of in (
        ("--put-price", PUT_PRICE, "puts, copies and lists"),
        ("--get-price", GET_PRICE, "gets and heads"),
    ):
        told = f"price of 1,000 {of} (default: %(default)s, Amazon S3 Standard in us-east-1)"
        command.add_argument(name, type=_number, default=price, metavar="USD", help=told)


def _number(text: str, *, kind: type[float] = float, least: float = 0) -> float:
    with suppress(ValueError):
        if least <= (value := kind(text)) < float("inf"):
            return value
    raise argparse.ArgumentTypeError(f"expected a number of at least {least}, found {text}")


def run(arguments: argparse.Namespace) -> None:
    """Print the writes and the cost of batches, now and with Holdfast."""
    path = folders.given(arguments.path)
    if is_query_checkpoint(path):
        found = [batches.of_checkpoint(path)]
    elif path.local is None:
        raise OSError(
            f"{path}: expected the checkpoint folder of a query, found neither 'metadata' nor "
            "'offsets'. Copy progress events to a local file"
        )
    else:
        found = batches.of_progress(path.local)
    queries = [_document(one, arguments) for one in found]
    if arguments.json:
        documents.print_document({"queries": queries, "prices": PRICE_SOURCE, "note": LEFT_OUT})
        return
    for query in queries:
        _print(query)
    sys.stdout.flush()
    print(f"holdfast: default prices are those of {PRICE_SOURCE}; {LEFT_OUT}", file=sys.stderr)


def _document(found: Batches, arguments: argparse.Namespace) -> dict[str, Any]:
    interval_s = arguments.interval or found.interval_s
    if not interval_s:
        raise OSError(
            f"{arguments.path}: expected two batches at two times, which show how often there is "
            f"one, found {found.batches}. Say it with --interval SECONDS"
        )
    executors = arguments.executors or found.executors or EXECUTORS
    ways = {"now": as_it_is(found)}
    if not found.is_holdfast:
        ways["with Holdfast"] = with_holdfast(found, executors)
    return {
        "query": found.query,
        "provider": found.provider,
        "batches": found.batches,
        "interval_s": interval_s,
        "batches_of_month": SECONDS_OF_MONTH / interval_s,
        "executors": executors,
        "commit_ms": found.commit_ms,
        "bytes": found.bytes,
        "put_price": arguments.put_price,
        "get_price": arguments.get_price,
        "ways": {
            way: {
                "objects": sum(term.number for term in terms if term.what != LISTING),
                "requests": requests_of(terms)._asdict(),
                "usd_of_batch": _usd(requests_of(terms), arguments),
                "usd_of_month": _usd(requests_of(terms), arguments) * SECONDS_OF_MONTH / interval_s,
                "terms": [term._asdict() | {"each": term.each._asdict()} for term in terms],
            }
            for way, terms in ways.items()
        },
    }


def _usd(requests: Requests, prices: argparse.Namespace) -> float:
    usd: float = requests.put * prices.put_price + requests.get * prices.get_price
    return usd / 1000


def _print(query: Mapping[str, Any]) -> None:
    said = f"query {query['query'] or '?'}, {query['provider']}, {query['batches']} batches"
    print(f"holdfast: {printable(said)}", file=sys.stderr)
    ways = query["ways"].values()
    # Bytes and times of Holdfast are not known before it writes.
    unknown = [None] * (len(ways) - 1)
    rows: list[list[Cell]] = [
        ["objects", *(_figure(way["objects"]) for way in ways)],
        ["bytes", _whole(query["bytes"]), *unknown],
        ["commit ms, summed over tasks", _whole(query["commit_ms"]), *unknown],
        ["puts, copies, lists", *(_figure(way["requests"]["put"]) for way in ways)],
        ["gets, heads", *(_figure(way["requests"]["get"]) for way in ways)],
        ["deletes", *(_figure(way["requests"]["delete"]) for way in ways)],
        ["USD per month", *(f"{way['usd_of_month']:,.2f}" for way in ways)],
    ]
    report.print_table(Table(["per batch", *query["ways"]], rows, frozenset({"per batch"})))
    for name, way in query["ways"].items():
        print(f"\n{name}")
        for line in _arithmetic(query, way):
            print(f"  {line}")


def _arithmetic(query: Mapping[str, Any], way: Mapping[str, Any]) -> Iterator[str]:
    """Yield the terms of a month's price."""
    for term in way["terms"]:
        put, get, delete = (_figure(count) for count in term["each"].values())
        each = f"{put} at the price of puts, {get} at that of gets, {delete} deletes"
        yield f"{_figure(term['number'])} x {term['what']}: {each}"
    requests, month = way["requests"], query["batches_of_month"]
    yield f"one batch every {query['interval_s']:,.1f} s for 30 days: {month:,.0f} batches"
    yield (
        f"{month:,.0f} x ({_figure(requests['put'])} x {query['put_price']:g} + "
        f"{_figure(requests['get'])} x {query['get_price']:g}) / 1,000 = "
        f"{way['usd_of_month']:,.2f} USD"
    )


def _figure(value: float) -> str:
    return f"{value:,.1f}".removesuffix(".0")


def _whole(value: float | None) -> str | None:
    return None if value is None else f"{value:,.0f}"
