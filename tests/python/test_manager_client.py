"""`ManagerClient`, and a server for it: a manager that other processes work with."""

from __future__ import annotations

import errno
import os
import pickle
import shutil
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast import _core
from support.testing_core import ROOT, load_testing_core

core = load_testing_core()
AttemptEndedError = core.AttemptEndedError
CorruptSegmentError = core.CorruptSegmentError
ManagerClient = core.ManagerClient
Owner = core.Owner
SegmentRef = core.SegmentRef
SnapshotManager = core.SnapshotManager
manager_message = core.manager_message

EAST = Owner("sales", "stats", "east")
WEST = Owner("sales", "stats", "west")

# Larger than what goes through the socket itself.
LARGE = np.arange(100_000, dtype="float64")


class Driver:
    """Keeps what clients sent."""

    def __init__(self) -> None:
        self.received: list[bytes] = []

    def __call__(self, data: bytes) -> None:
        self.received.append(data)
        if data.startswith(b"raise "):
            raise {
                b"ValueError": ValueError("no such region"),
                b"AttemptEndedError": AttemptEndedError("too late"),
                b"FileNotFoundError": FileNotFoundError("no such file"),
                b"RuntimeError": RuntimeError("out of order"),
            }[data.removeprefix(b"raise ")]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Any]:
    # Files with a few bytes of state are mostly header and footer, too wasteful to reuse otherwise.
    with SnapshotManager(tmp_path / "segments", max_space_amplification=None) as opened:
        yield opened


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def server(manager: Any, driver: Driver, tmp_path: Path) -> Iterator[Any]:
    with core.serve(manager, tmp_path / "private" / "m.sock", driver) as opened:
        yield opened


@pytest.fixture
def client(server: Any, manager: Any) -> Iterator[Any]:
    with connect(server, manager) as opened:
        yield opened


def connect(server: Any, manager: Any, **options: Any) -> Any:
    return ManagerClient(server.path, pipeline="sales", folder=str(manager.path), **options)


# --- segments -----------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"state", LARGE, LARGE[::2], memoryview(b"abcdef")[::2]])
def test_what_is_appended_is_what_the_manager_reads(client: Any, manager: Any, data: Any) -> None:
    stored = memoryview(data).tobytes()
    ref = client.append(EAST, 1, data)
    assert client.read(ref, EAST) == stored
    assert manager.read(ref, EAST) == stored


def test_kind_lineage_and_entries_are_those_of_the_manager(
    client: Any, manager: Any, tmp_path: Path
) -> None:
    first = client.append(EAST, 1, b"base", kind="changelog", entries=3)
    options: dict[str, Any] = {"kind": "changelog", "lineage": [first], "entries": 2}
    remote = client.append(EAST, 1, b"changes", **options)
    local = manager.append(EAST, 1, b"changes", **options)
    # The digest is of all stored bytes, head included.
    assert remote.digest == local.digest
    assert remote.digest != client.append(EAST, 1, b"changes").digest
    with pytest.raises(ValueError, match="kind='other' is not allowed"):
        client.append(EAST, 1, b"", kind="other")  # type: ignore[arg-type]


def test_segments_are_persisted_before_the_answer(client: Any, manager: Any) -> None:
    ref = client.append(EAST, 1, b"state")
    assert manager.stats().syncs == 0
    client.persist_segments(1, EAST, [ref])
    assert manager.stats().syncs == 1


def test_segments_are_leased_until_the_attempt_ends(client: Any, manager: Any) -> None:
    kept, released = client.append(EAST, 1, b"kept"), client.append(WEST, 1, b"released")
    client.release(WEST, [released])
    client.persist_segments(1, EAST, [kept])
    manager.completed(1, {1: {}})
    assert client.lease(EAST, 2, [kept, released]) == [True, False]
    manager.completed(2, {2: {}})
    assert client.read(kept, EAST) == b"kept"
    manager.completed(3, {3: {}})
    manager.wait_for_deletes()
    with pytest.raises(FileNotFoundError):
        client.read(kept, EAST)


def test_errors_are_those_of_a_manager_in_the_same_process(client: Any, manager: Any) -> None:
    ref = client.append(EAST, 1, b"state")
    manager.completed(1, {1: {}})
    calls: list[Callable[[Any], object]] = [
        lambda m: m.append(EAST, 1, b"late"),
        lambda m: m.lease(EAST, 1, [ref]),
        lambda m: m.persist_segments(1, EAST, [ref]),
        lambda m: m.read(ref, WEST),
        lambda m: m.read(SegmentRef.from_bytes(bytes(44)), EAST),
        lambda m: m.append(Owner("sales", "x" * 2000, "east"), 2, b""),
        lambda m: m.append(EAST, 2, "text"),
        lambda m: m.append(EAST, -1, b""),
    ]
    for call in calls:
        with pytest.raises(Exception) as local:  # noqa: PT011 - the same, whatever it is
            call(manager)
        with pytest.raises(Exception) as remote:  # noqa: PT011
            call(client)
        assert remote.type is local.type
        assert str(remote.value) == str(local.value)
    with pytest.raises(AttemptEndedError):
        client.append(EAST, 1, b"late")
    with pytest.raises(CorruptSegmentError):
        client.read(ref, WEST)


def test_an_error_number_of_the_system_arrives(client: Any, manager: Any) -> None:
    shutil.rmtree(manager.path)
    manager.path.write_bytes(b"a file where the folder should be")
    with pytest.raises(NotADirectoryError) as remote:
        client.append(EAST, 1, b"state")
    assert remote.value.errno == errno.ENOTDIR
    manager.path.unlink()


def test_segments_of_many_processes_are_in_one_file(server: Any, manager: Any) -> None:
    program = """
import sys
from holdfast import Owner
from holdfast._core import ManagerClient
socket, folder, region = sys.argv[1:]
with ManagerClient(socket, pipeline="sales", folder=folder) as client:
    owner = Owner("sales", "stats", region)
    refs = [client.append(owner, 1, region.encode() * size) for size in (1, 50_000)]
    client.persist_segments(1, owner, refs)
    client.send(b"".join(ref.to_bytes() for ref in refs))
"""
    driver: list[bytes] = []
    path = server.path.with_name("more.sock")
    with core.serve(manager, path, driver.append):
        arguments = [sys.executable, "-c", program, str(path), str(manager.path)]
        workers = [subprocess.Popen([*arguments, f"region-{i}"]) for i in range(3)]
        assert [worker.wait(timeout=60) for worker in workers] == [0, 0, 0]
    refs = [
        SegmentRef.from_bytes(message[at : at + 44])
        for message in driver
        for at in range(0, 88, 44)
    ]
    assert len(refs) == 6
    assert len({ref.file for ref in refs}) == 1
    assert manager.stats().physical_files == 1


def test_threads_share_a_client(client: Any) -> None:
    def work(region: int) -> bool:
        owner = Owner("sales", "stats", str(region))
        data = str(region).encode() * 30_000
        return client.read(client.append(owner, 1, data), owner) == data

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(40)))


# --- messages -----------------------------------------------------------------------------------


def test_messages_arrive_in_order(client: Any, driver: Driver) -> None:
    client.send(b"acknowledged")
    client.send(b"")
    client.send(b"what now?")
    assert driver.received == [b"acknowledged", b"", b"what now?"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ValueError", ValueError),
        ("AttemptEndedError", AttemptEndedError),
        ("FileNotFoundError", FileNotFoundError),
        ("RuntimeError", OSError),
    ],
)
def test_what_the_other_side_raises_is_raised_here(
    client: Any, driver: Driver, name: str, expected: type[Exception]
) -> None:
    with pytest.raises(expected, match=f"on_message: {name}: ") as raised:
        client.send(f"raise {name}".encode())
    assert raised.type is expected
    client.send(b"still there?")
    assert driver.received[-1] == b"still there?"


def test_only_executors_of_spark_stage_files(client: Any) -> None:
    said = "hdfs://host/staged: only an executor of Spark stages files"
    with pytest.raises(NotImplementedError, match=said):
        client.stage("rows", "hdfs://host/staged", "hdfs://host/rows")


def test_a_message_that_is_too_long_is_refused_here(client: Any, driver: Driver) -> None:
    with pytest.raises(ValueError, match="at most 16777216 bytes"):
        client.send(bytes(17 << 20))
    assert driver.received == []


def test_clients_are_answered_while_another_one_waits(manager: Any, tmp_path: Path) -> None:
    begun, go = threading.Event(), threading.Event()
    received: list[bytes] = []

    def slow(data: bytes) -> None:
        if data == b"slow":
            begun.set()
            assert go.wait(60)
        received.append(data)

    with (
        core.serve(manager, tmp_path / "private" / "m.sock", slow) as server,
        connect(server, manager) as one,
        connect(server, manager) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        waiting = pool.submit(one.send, b"slow")
        assert begun.wait(60)
        other.send(b"quick")
        assert received == [b"quick"]
        assert not waiting.done()
        go.set()
        waiting.result()
        assert received == [b"quick", b"slow"]


# --- server and socket --------------------------------------------------------------------------


def test_socket_and_folder_are_for_this_user_alone(server: Any) -> None:
    assert stat.S_IMODE(server.path.stat().st_mode) == 0o600
    assert stat.S_ISSOCK(server.path.stat().st_mode)
    assert stat.S_IMODE(server.path.parent.stat().st_mode) == 0o700


def test_a_folder_that_others_can_enter_is_refused(manager: Any, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    with pytest.raises(ValueError, match="mode 755"):
        core.serve(manager, tmp_path / "open" / "m.sock", bytes)


def test_a_path_that_is_too_long_is_refused(manager: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at most 107 bytes"):
        core.serve(manager, tmp_path / ("a" * 108), bytes)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_process_of_another_user_is_not_served(server: Any, manager: Any) -> None:
    # An inherited connection gets past the folder: the server asks the system who connected.
    program = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
os.fchdir(int(sys.argv[1]))
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect("m.sock")
    print(connection.recv(1))
"""
    server.path.parent.chmod(0o755)
    server.path.chmod(0o666)
    folder = os.open(server.path.parent, os.O_RDONLY)
    try:
        done = subprocess.run(
            [sys.executable, "-c", program, str(folder)],
            pass_fds=[folder],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    finally:
        os.close(folder)
    assert done.stdout == "b''\n"


def test_a_client_that_speaks_something_else_loses_its_connection(
    server: Any, client: Any, driver: Driver
) -> None:
    with socket.socket(socket.AF_UNIX) as foreign:
        foreign.connect(str(server.path))
        foreign.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert b"a message has at most" in foreign.recv(4096)
        # What the server did not read of the message makes the end a reset.
        with pytest.raises(ConnectionResetError):
            foreign.recv(4096)
    client.send(b"still there?")
    assert driver.received == [b"still there?"]


def test_another_folder_than_the_servers_is_refused(server: Any, manager: Any) -> None:
    with pytest.raises(ValueError, match=r"this socket serves .*, not /elsewhere"):
        ManagerClient(server.path, pipeline="sales", folder="/elsewhere")


def test_a_client_without_a_server_says_what_is_missing(manager: Any, tmp_path: Path) -> None:
    missing = tmp_path / "nobody.sock"
    with pytest.raises(FileNotFoundError, match=r"nobody\.sock"):
        ManagerClient(missing, pipeline="sales", folder=str(manager.path))
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(missing))
    with pytest.raises(ConnectionRefusedError):
        ManagerClient(missing, pipeline="sales", folder=str(manager.path))


def test_a_client_connects_again_after_its_connection_broke(manager: Any, tmp_path: Path) -> None:
    path = tmp_path / "private" / "m.sock"
    with core.serve(manager, path, bytes) as server:
        client = connect(server, manager)
    with pytest.raises(ConnectionError):
        client.append(EAST, 1, b"state")
    with pytest.raises(FileNotFoundError):
        client.append(EAST, 1, b"state")
    with core.serve(manager, path, bytes):
        ref = client.append(EAST, 1, b"state")
        assert client.read(ref, EAST) == b"state"


def test_a_socket_of_a_killed_process_is_replaced(manager: Any, tmp_path: Path) -> None:
    path = tmp_path / "private" / "m.sock"
    program = """
import os, signal, sys
from support.testing_core import load_testing_core
core = load_testing_core()
server = core.serve(core.SnapshotManager(sys.argv[1]), sys.argv[2], bytes)
os.kill(os.getpid(), signal.SIGKILL)
"""
    arguments = [sys.executable, "-c", program, str(tmp_path / "other"), str(path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    done = subprocess.run(arguments, timeout=60, check=False, env=environment)
    assert done.returncode == -9
    assert path.is_socket()
    received: list[bytes] = []
    with core.serve(manager, path, received.append) as server, connect(server, manager) as client:
        client.send(b"who?")
        assert received == [b"who?"]
        with pytest.raises(OSError, match="in use"):
            core.serve(manager, path, bytes)


def test_a_forked_child_has_a_connection_of_its_own(client: Any, driver: Driver) -> None:
    child = os.fork()
    if child == 0:
        # Nothing of the test runner may run in the child.
        try:
            client.send(b"child")
        except BaseException:
            os._exit(1)
        os._exit(0)
    for i in range(100):
        client.send(str(i).encode())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    of_parent = [data for data in driver.received if data != b"child"]
    assert of_parent == [str(i).encode() for i in range(100)]
    assert driver.received.count(b"child") == 1


def test_closing_twice_does_nothing_and_using_afterwards_is_an_error(
    server: Any, manager: Any
) -> None:
    client = connect(server, manager)
    assert repr(client) == f"<ManagerClient at {server.path}>"
    assert (client.socket, client.pipeline, client.folder) == (
        server.path,
        "sales",
        str(manager.path),
    )
    for _ in range(2):
        client.close()
    assert repr(client) == f"<closed ManagerClient at {server.path}>"
    with pytest.raises(ValueError, match="is closed"):
        client.send(b"")
    assert repr(server) == f"<ManagerServer at {server.path}>"
    for _ in range(2):
        server.close()
    assert repr(server) == f"<closed ManagerServer at {server.path}>"
    assert not server.path.exists()


def test_clients_of_a_closed_manager_are_refused(manager: Any, server: Any, client: Any) -> None:
    manager.close()
    with pytest.raises(ValueError, match=r"the manager of .* is closed"):
        client.append(EAST, 1, b"state")
    with pytest.raises(ValueError, match="is closed"):
        core.serve(manager, server.path.with_name("more.sock"), bytes)


def test_a_client_may_close_its_server(manager: Any, tmp_path: Path) -> None:
    servers: list[Any] = []

    def close(data: bytes) -> None:
        servers[0].close()

    servers.append(core.serve(manager, tmp_path / "private" / "m.sock", close))
    with connect(servers[0], manager) as client, pytest.raises(ConnectionError):
        client.send(b"close")


def test_a_server_that_is_dropped_stops(manager: Any, tmp_path: Path) -> None:
    path = tmp_path / "private" / "m.sock"
    server = core.serve(manager, path, bytes)
    client = connect(server, manager)
    del server
    assert not path.exists()
    with pytest.raises(ConnectionError):
        client.send(b"?")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_file_bytes": 0}, "max_file_bytes=0 is not allowed"),
        ({"compression": "zip"}, "compression='zip' is not allowed"),
    ],
)
def test_options_out_of_bounds_are_refused(
    server: Any, manager: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        connect(server, manager, **options)


def test_the_client_is_found_by_its_name_in_a_worker() -> None:
    # What Spark pickles refers to classes by name.
    assert pickle.loads(pickle.dumps(_core.ManagerClient)) is _core.ManagerClient  # noqa: S301


def test_a_process_that_is_no_worker_has_no_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    with pytest.raises(FileNotFoundError, match="no Python worker of a Spark executor"):
        ManagerClient.of_executor(pipeline="sales", folder="/data/segments")
    # Users set the variable as well, for the JVM: then its folders are nobody's.
    for folders, why in (("/", "names no folder"), ("/no/local", "does not listen at @holdfast-")):
        monkeypatch.setenv("SPARK_LOCAL_DIRS", folders)
        with pytest.raises((FileNotFoundError, ValueError), match=why):
            ManagerClient.of_executor(pipeline="sales", folder="/data/segments")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_socket_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # Another user took the name before the executor did.
    program = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
with socket.socket(socket.AF_UNIX) as squatter:
    squatter.bind(chr(0) + sys.argv[1])
    squatter.listen()
    print("listens", flush=True)
    sys.stdin.read()
"""
    folder = f"blockmgr-{os.getpid():016x}-{os.getpid():016x}"
    name = f"holdfast-{folder[: len(folder) // 2]}"
    with subprocess.Popen(
        [sys.executable, "-c", program, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as squatter:
        assert squatter.stdout is not None
        assert squatter.stdout.readline() == b"listens\n"
        monkeypatch.setenv("SPARK_LOCAL_DIRS", f"/none/{folder}")
        with pytest.raises(ValueError, match=f"@{name} belongs to user 65534"):
            ManagerClient.of_executor(pipeline="sales", folder="/data/segments")
        squatter.communicate()


# --- messages for managers ----------------------------------------------------------------------


def test_a_message_for_managers_is_compact_and_depends_on_all_it_is_given() -> None:
    first = manager_message("partially_completed", 7, {EAST: 5}, {7: {EAST: 5}, 6: {}})
    assert len(first) < 100
    assert first == manager_message("partially_completed", 7, {EAST: 5}, {6: {}, 7: {EAST: 5}}, 7)
    others = {
        manager_message("partially_completed", 8, {EAST: 5}, {7: {EAST: 5}, 6: {}}),
        manager_message("partially_completed", 7, {WEST: 5}, {7: {EAST: 5}, 6: {}}),
        manager_message("partially_completed", 7, {EAST: 5}, {7: {EAST: 4}, 6: {}}),
        manager_message("partially_completed", 7, {EAST: 5}, {7: {EAST: 5}, 6: {}}, 9),
        manager_message("completed", 7, {}, {7: {EAST: 5}, 6: {}}),
    }
    assert len(others - {first}) == 5


def test_a_message_that_no_manager_could_take_is_refused() -> None:
    with pytest.raises(ValueError, match="kind='ended' is not allowed"):
        manager_message("ended", 1, {}, {})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="1 fallbacks"):
        manager_message("completed", 1, {EAST: 0}, {1: {EAST: 0}})
