"""``holdfast tag``, ``tags``, ``untag``, ``branch``, ``detach``: state beyond retained batches."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from holdfast.cli import folders
from holdfast.cli.output import report, tables
from holdfast.cli.output.tables import Table
from holdfast.files.paths import AnyPath, absolute, recorded_folder
from holdfast.queries import branches, leases
from holdfast.queries.logs import read_commit


def add_commands(commands: Any) -> None:
    """Add the commands to the parser of the command line."""
    said = {
        tag: "keep the state of a batch of a query under a name, however long",
        tags: "print the tags and branches of a query, and the bytes that they keep",
        untag: "remove a tag, so that its state can be deleted",
        branch: "make a checkpoint that begins with the state of a query, without a copy",
        detach: "copy what a branch needs of its parent, so that it needs the parent no more",
    }
    made = {run: commands.add_parser(run.__name__, help=text) for run, text in said.items()}
    for run, command in made.items():
        command.set_defaults(run=run)
        of = " of the branch, whose query is stopped" if run is detach else " of the query"
        folders.add_argument(command, of=of)
    made[tag].add_argument("name", help="name of the tag: letters, digits, '-' and '_'")
    made[untag].add_argument("name", help="name of the tag, or folder of a branch that was deleted")
    made[branch].add_argument("new", help="new checkpoint folder, on the same file system")
    chosen = made[branch].add_mutually_exclusive_group()
    at = "the state after this batch (default: the newest)"
    for command in (made[tag], chosen):
        command.add_argument("--at", type=int, metavar="BATCH", help=at)
    chosen.add_argument("--tag", metavar="NAME", help="the state of this tag")
    doing = {tag: "make the tag", untag: "remove the tag", branch: "make the branch"}
    for run, text in {**doing, detach: "copy the segments"}.items():
        help = f"{text} (default: only say what would be done)"
        made[run].add_argument("--yes", action="store_true", help=help)


def tag(arguments: argparse.Namespace) -> None:
    """Keep the state of a batch under a name."""
    folder, name = absolute(folders.query(arguments.folder)), arguments.name
    if arguments.yes:
        made = leases.tag(folder, name, arguments.at)
        number, stores = made.batch, made.stores
    else:
        number = leases.planned_tag(folder, name, arguments.at)
        stores = read_commit(folder, number)
    _print({"tag": name, "batch": number, "stores": len(stores), "made": arguments.yes}, arguments)
    _say(
        f"{name} keeps the state of batch {number} until 'holdfast untag'",
        f"{name} would keep the state of batch {number}",
        arguments,
    )


def untag(arguments: argparse.Namespace) -> None:
    """Remove a tag, or the lease of a branch that is gone."""
    folder, name = absolute(folders.query(arguments.folder)), arguments.name
    places = {name, str(absolute(folders.given(name)))}
    found = [
        one
        for one in leases.find_leases(folder)
        if one.name == name or (one.lease is not None and one.lease.branch in places)
    ]
    if not found:
        raise FileNotFoundError(f"{folder}: expected a tag or a branch {name!r}, found none")
    ended = [one for one in found if not branches.is_needed(one)]
    if not ended:
        raise OSError(
            f"{name} is a branch that needs the segments of {folder}: run 'holdfast detach' on it, "
            "or delete it"
        )
    rows = _rows(folder, ended)
    if arguments.yes:
        for one in ended:
            leases.drop(folder, one.name)
    document = {"removed": arguments.yes, "leases": rows}
    report.print_either(document, _table, json=arguments.json)
    sys.stdout.flush()
    named = [one.lease.branch for one in ended if one.lease is not None and one.lease.branch]
    if gone := [branch for branch in named if not recorded_folder(branch).exists()]:
        print(
            f"holdfast: {', '.join(gone)} is not there. If its disk is only not mounted, the "
            "branch loses its state",
            file=sys.stderr,
        )
    _say(
        f"{name} is removed. The next clean-up of the query deletes what only it kept",
        f"{name} would be removed",
        arguments,
    )


def tags(arguments: argparse.Namespace) -> None:
    """Print the tags of a checkpoint and its branches."""
    folder = absolute(folders.query(arguments.folder))
    rows = _rows(folder, leases.find_leases(folder))
    if not rows:
        print(f"holdfast: {arguments.folder} has no tags and no branches", file=sys.stderr)
    if rows or arguments.json:
        report.print_either({"leases": rows}, _table, json=arguments.json)


def branch(arguments: argparse.Namespace) -> None:
    """Make a checkpoint that begins with the state of another one."""
    folder, new = absolute(folders.query(arguments.folder)), absolute(folders.given(arguments.new))
    if arguments.yes:
        number, name = branches.make_branch(folder, new, arguments.at, arguments.tag)
    else:
        number, name, _ = branches.planned_branch(folder, new, arguments.at, arguments.tag)
    _print({"branch": str(new), "batch": number, "lease": name, "made": arguments.yes}, arguments)
    _say(
        f"a query can start from {arguments.new} and continues after batch {number}",
        f"{arguments.new} would begin with the state of batch {number}",
        arguments,
    )


def detach(arguments: argparse.Namespace) -> None:
    """Copy what a branch needs of its parent, and end the lease."""
    folder = absolute(folders.query(arguments.folder))
    parent = branches.read_parent(folder)
    if parent is None:
        print(
            f"holdfast: {arguments.folder} needs no parent: there is nothing to do", file=sys.stderr
        )
        return
    files = branches.needed_files(folder, parent)
    size = sum(files.values())
    if arguments.yes:
        with report.progress("bytes") as start:
            show, done = start(size), 0
            for copied in branches.detach(folder, parent, files):
                done += copied
                show(done, size)
    document = {"parent": parent.folder, "files": len(files), "bytes": size}
    _print({**document, "detached": arguments.yes}, arguments)
    _say(
        f"{arguments.folder} has all of its segments, and needs {parent.folder} no more",
        f"{len(files)} files of {size} bytes would be copied",
        arguments,
    )


def _rows(folder: AnyPath, found: list[leases.FoundLease]) -> list[dict[str, Any]]:
    known = [one.lease for one in found if one.lease is not None]
    kept = iter(leases.kept_bytes(folder, known))
    rows = []
    for one in found:
        row: dict[str, Any] = {"name": one.name, "state": _state(one)}
        if one.lease is not None:
            made = datetime.fromtimestamp(one.lease.made_ms / 1000, UTC)
            row |= {
                "batch": one.lease.batch,
                "made": made.isoformat(timespec="seconds"),
                "bytes": next(kept),
                "branch": one.lease.branch,
            }
        rows.append(row)
    return rows


def _state(found: leases.FoundLease) -> str:
    if found.lease is None:
        return "unfinished" if found.copy is None else "damaged"
    return "unfinished" if found.copy is None else "ok"


def _table(document: Mapping[str, Any]) -> Table:
    columns = ["name", "batch", "state", "made", "bytes", "branch"]
    rows = [[row.get(column) or "-" for column in columns] for row in document["leases"]]
    return Table(columns, rows, frozenset({"name", "state", "made", "branch"}))


def _print(document: dict[str, Any], arguments: argparse.Namespace) -> None:
    report.print_either(document, tables.of_values, json=arguments.json)
    sys.stdout.flush()


def _say(done: str, planned: str, arguments: argparse.Namespace) -> None:
    said = done if arguments.yes else f"nothing was changed. {planned}: add --yes"
    print(f"holdfast: {said}", file=sys.stderr)
