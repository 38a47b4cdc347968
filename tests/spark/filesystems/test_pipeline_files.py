"""Files of regional pipelines on local folders, HDFS and S3, as the driver reaches them."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from holdfast import SegmentRef
from holdfast._core import CheckpointMetadata, OperatorEntry, Piece, RegionEntry, StateEntry
from holdfast.files import reached
from holdfast.files.reached import HadoopPath, native
from holdfast.regions.driver.cleanup import CleanUp
from holdfast.regions.files.folders import DROPPED_TOGETHER, CheckpointFolders
from support.spark.java_side import classpath, gateway, jars, skipped_without_jars
from support.spark.object_stores import S3Server
from support.spark.s3_answers import RefusedDeletes

MIB = 1 << 20
NOT_FOUND = "java.io.FileNotFoundException"
TAKEN = "org.apache.hadoop.fs.FileAlreadyExistsException"
REFUSED = "org.apache.hadoop.security.AccessControlException"
OTHER = "java.io.IOException"
#: Numbers of kinds of segments.
SNAPSHOT, IN_FLIGHT = 3, 4
ON_HDFS = pytest.param("hdfs", marks=pytest.mark.full)
ON_S3 = pytest.param("s3a", marks=pytest.mark.full)


@dataclass(frozen=True)
class Place:
    """An empty folder."""

    uri: str
    files: Any
    jvm: Any
    conf: Any
    kind: str

    def names(self, folder: str = "") -> list[str]:
        """Names of what is in a folder below."""
        return [line.split(" ", 3)[3] for line in self.files.list(self.uri + folder)]

    def files_with(self, settings: dict[str, str]) -> Any:
        """The same, with a client that has further settings of Hadoop."""
        conf = self.jvm.org.apache.hadoop.conf.Configuration(self.conf)
        for key, value in ({"fs.s3a.impl.disable.cache": "true"} | settings).items():
            conf.set(key, value)
        return self.jvm.io.holdfast.spark.PipelineFiles(conf)

    def pending_uploads(self) -> int:
        """Uploads of the whole bucket that were neither completed nor aborted."""
        file_system = self.jvm.org.apache.hadoop.fs.Path(self.uri).getFileSystem(self.conf)
        uploads = file_system.listUploads(None)
        found = 0
        while uploads.hasNext():
            uploads.next()
            found += 1
        return found


@pytest.fixture(scope="module")
def jvm(helpers: Path) -> Iterator[Any]:
    with skipped_without_jars():
        path = classpath(helpers, *jars("s3a"))
    with gateway(path) as running:
        yield running


@pytest.fixture(params=["file", ON_HDFS, ON_S3])
def place(request: pytest.FixtureRequest, jvm: Any, tmp_path: Path) -> Place:
    return place_of(request, jvm, tmp_path)


@pytest.fixture(params=["s3a"])
def bucket(request: pytest.FixtureRequest, jvm: Any, tmp_path: Path) -> Place:
    return place_of(request, jvm, tmp_path)


#: Names of buckets.
NUMBERS = itertools.count()


def place_of(request: pytest.FixtureRequest, jvm: Any, tmp_path: Path) -> Place:
    conf = jvm.org.apache.hadoop.conf.Configuration()
    kind = request.param
    if kind == "s3a":
        server = request.getfixturevalue("s3")
        bucket = f"bucket-{next(NUMBERS)}"
        server.bucket(bucket)
        for key, value in server.settings.items():
            conf.set(key, value)
        conf.set("fs.s3a.buffer.dir", str(tmp_path / "parts"))
        conf.set("fs.s3a.multipart.size", str(5 * MIB))
        uri = f"s3a://{bucket}/out"
    elif kind == "hdfs":
        uri = f"{request.getfixturevalue('hdfs').uri}/{tmp_path.name}/out"
    elif kind == "objects":
        conf.set("fs.objects.impl", "ObjectsFileSystem")
        uri = f"objects:{tmp_path}/out"
    else:
        uri = f"file:{tmp_path}/out"
    return Place(uri, jvm.io.holdfast.spark.PipelineFiles(conf), jvm, conf, kind)


def refused(call: Callable[[], object], kind: str) -> str:
    """What a call says that fails with an error of exactly this class."""
    with pytest.raises(Py4JJavaError) as raised:
        call()
    error = raised.value.java_exception
    assert error.getClass().getName() == kind, error.toString()
    return str(error.getMessage())


def winner(count: int, call: Callable[[int], object]) -> int:
    """Calls at the same time, one of which succeeds: all others find the name taken."""

    def outcome(number: int) -> str:
        try:
            call(number)
        except Py4JJavaError as error:
            return str(error.java_exception.getClass().getName())
        return "won"

    with ThreadPoolExecutor(count) as threads:
        outcomes = list(threads.map(outcome, range(count)))
    assert sorted(outcomes) == sorted(["won"] + [TAKEN] * (count - 1))
    return outcomes.index("won")


def content(count: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(count)  # noqa: S311


def local_file(tmp_path: Path, data: bytes, name: str = "local") -> str:
    path = tmp_path / name
    path.write_bytes(data)
    return str(path)


# --- files and folders ---------------------------------------------------------------------------


def test_a_folder_has_one_whole_uri(place: Place) -> None:
    files, uri = place.files, place.uri
    assert files.qualify(f"{uri}/a/./b/../c/") == f"{uri}/a/c"
    assert files.renames(uri) == (place.kind != "s3a")
    said = refused(lambda: files.qualify("moon://crater/x"), OTHER)
    assert said.startswith("cannot resolve moon://crater/x: Spark reaches no files of the scheme")


def test_a_file_is_made_listed_read_and_deleted(place: Place) -> None:
    files, uri = place.files, place.uri
    assert files.status(f"{uri}/a/b") is None
    files.create(f"{uri}/a/b", b"content of b")
    files.create(f"{uri}/a/with space", b"")
    files.create(f"{uri}/a/folder/c", b"c")
    kind, length, modified = files.status(f"{uri}/a/b").split(" ")
    assert (kind, length) == ("f", "12")
    assert int(modified) > 1_700_000_000_000
    assert files.status(f"{uri}/a").startswith("d 0 ")
    lines = [line.split(" ", 3) for line in files.list(f"{uri}/a")]
    assert [(line[0], line[1], line[3]) for line in lines] == [
        ("f", "12", "b"),
        ("d", "0", "folder"),
        ("f", "0", "with space"),
    ]
    assert bytes(files.read(f"{uri}/a/b")) == b"content of b"
    refused(lambda: files.read(f"{uri}/a/none"), NOT_FOUND)
    refused(lambda: files.list(f"{uri}/none"), NOT_FOUND)
    assert "found a file" in refused(lambda: files.list(f"{uri}/a/b"), OTHER)
    refused(lambda: files.delete(f"{uri}/a", False), OTHER)
    assert files.delete(f"{uri}/a/b", False)
    assert not files.delete(f"{uri}/a/b", False)
    assert place.names("/a") == ["folder", "with space"]
    assert files.delete(f"{uri}/a", True)
    assert files.status(f"{uri}/a") is None
    assert not files.delete(f"{uri}/a", True)


def test_a_folder_is_made_with_its_parents_and_not_in_place_of_a_file(place: Place) -> None:
    files, uri = place.files, place.uri
    files.makeFolder(f"{uri}/a/b")
    files.makeFolder(f"{uri}/a/b")
    assert files.status(f"{uri}/a/b").startswith("d ")
    assert list(files.list(f"{uri}/a/b")) == []
    files.create(f"{uri}/a/file", b"")
    refused(lambda: files.makeFolder(f"{uri}/a/file"), TAKEN)


def test_a_name_that_is_taken_is_not_overwritten_but_may_be_replaced(place: Place) -> None:
    files, uri = place.files, place.uri
    files.create(f"{uri}/x", b"first")
    said = refused(lambda: files.create(f"{uri}/x", b"second"), TAKEN)
    assert said.startswith(f"cannot create {uri}/x: ")
    assert bytes(files.read(f"{uri}/x")) == b"first"
    files.replace(f"{uri}/x", b"third")
    assert bytes(files.read(f"{uri}/x")) == b"third"
    files.replace(f"{uri}/y", b"new")
    assert place.names() == ["x", "y"], "nothing temporary is left"


def test_of_those_that_create_a_file_at_the_same_time_one_does(place: Place) -> None:
    won = winner(6, lambda n: place.files.create(f"{place.uri}/raced", b"%d" % n * 1000))
    assert bytes(place.files.read(f"{place.uri}/raced")) == b"%d" % won * 1000
    assert place.names() == ["raced"]


@pytest.mark.parametrize("place", ["file", ON_HDFS], indirect=True)
def test_of_those_that_take_a_name_by_renaming_one_does(place: Place) -> None:
    takers = 6
    for number in range(takers):
        place.files.create(f"{place.uri}/from-{number}", b"%d" % number)

    won = winner(
        takers, lambda n: place.files.renameNew(f"{place.uri}/from-{n}", f"{place.uri}/to")
    )
    assert bytes(place.files.read(f"{place.uri}/to")) == b"%d" % won
    assert len(place.names()) == takers


def test_a_file_gets_another_name_that_is_free(place: Place) -> None:
    files, uri = place.files, place.uri
    files.create(f"{uri}/a", b"a")
    files.create(f"{uri}/b", b"b")
    refused(lambda: files.renameNew(f"{uri}/a", f"{uri}/b"), TAKEN)
    assert bytes(files.read(f"{uri}/b")) == b"b"
    files.renameNew(f"{uri}/a", f"{uri}/new/folder/c")
    assert bytes(files.read(f"{uri}/new/folder/c")) == b"a"
    assert place.names() == ["b", "new"]
    refused(lambda: files.renameNew(f"{uri}/a", f"{uri}/d"), NOT_FOUND)


def test_a_folder_gets_another_name_where_files_are_renamed(place: Place) -> None:
    files, uri = place.files, place.uri
    files.create(f"{uri}/a/x", b"x")
    files.create(f"{uri}/b/y", b"y")
    if not files.renames(uri):
        said = refused(lambda: files.renameNew(f"{uri}/a", f"{uri}/c"), OTHER)
        assert "an object store renames single files only" in said
        return
    refused(lambda: files.renameNew(f"{uri}/a", f"{uri}/b"), TAKEN)
    files.renameNew(f"{uri}/a", f"{uri}/c")
    assert bytes(files.read(f"{uri}/c/x")) == b"x"
    assert place.names() == ["b", "c"]


@pytest.mark.parametrize("place", [ON_HDFS], indirect=True)
def test_a_file_that_is_being_written_is_read_as_far_as_it_can_be_seen(place: Place) -> None:
    path = place.jvm.org.apache.hadoop.fs.Path(f"{place.uri}/open")
    out = path.getFileSystem(place.conf).create(path)
    out.write(b"written so far")
    out.hflush()
    assert bytes(place.files.read(f"{place.uri}/open")) == b"written so far"
    out.close()


def test_older_checkpoints_go_in_one_request_on_an_object_store(
    bucket: Place, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:  # R70
    monkeypatch.setattr(reached, "_files", lambda path: bucket.files)
    folders = CheckpointFolders(HadoopPath(bucket.uri))
    assert folders.dropped_together == DROPPED_TOGETHER
    for id in range(6):
        folders.metadata_file(id).create(b"metadata")
    before = s3.requests()
    # The last one is gone already.
    assert CleanUp(folders).drop([0, 1, 2, 3, 9]) == (0, 1, 2, 3, 9)
    requests = s3.requests()
    requests.subtract(before)
    assert sum(requests.values()) == 1, requests
    assert folders.ids() == [4, 5]


def test_of_several_checkpoints_those_go_that_an_object_store_deletes(
    bucket: Place,
    s3: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # R76
    with RefusedDeletes(s3) as refusals:
        files = bucket.files_with({"fs.s3a.endpoint": refusals.endpoint})
        monkeypatch.setattr(reached, "_files", lambda path: files)
        folders = CheckpointFolders(HadoopPath(bucket.uri))
        for id in range(6):
            folders.metadata_file(id).create(b"metadata")
        refusals.refuse(folders.metadata_file(1).name)
        clean_up = CleanUp(folders)
        assert clean_up.drop([0, 1, 2, 3]) == (0, 2, 3)
        assert refusals.refused == 2, "once together with the others, once by itself"
        assert folders.ids() == [1, 4, 5]
        assert "checkpoint 1 cannot be deleted yet" in caplog.text
        refusals.refuse()
        assert clean_up.drop([1, 4]) == (1, 4)
        assert folders.ids() == [5]


def test_wrong_credentials_are_an_error_of_their_own(bucket: Place) -> None:
    files = bucket.files_with({"fs.s3a.secret.key": "wrong"})
    refused(lambda: files.read(f"{bucket.uri}/x"), REFUSED)


# --- staged output -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Output:
    """A file that was staged."""

    place: Place
    data: bytes
    staged: str
    target: str

    def publish(self, length: int | None = None) -> None:
        length = len(self.data) if length is None else length
        self.place.files.publish([self.staged], [self.target], [length])

    def content(self) -> bytes:
        return bytes(self.place.files.read(self.target))

    def is_staged(self) -> bool:
        return self.place.files.status(self.staged) is not None

    def is_published(self) -> bool:
        return self.place.files.status(self.target) is not None


def staged_output(
    place: Place, tmp_path: Path, data: bytes = b"rows of a region", name: str = "part-1"
) -> Output:
    staged = f"{place.uri}/_holdfast/staged/1/{name}.nonce"
    output = Output(place, data, staged, f"{place.uri}/{name}")
    place.files.stage(local_file(tmp_path, data), output.staged, output.target)
    return output


@pytest.fixture(params=["file", "objects", "s3a", ON_HDFS])
def output(request: pytest.FixtureRequest, jvm: Any, tmp_path: Path) -> Output:
    return staged_output(place_of(request, jvm, tmp_path), tmp_path)


def test_staged_output_is_seen_once_it_is_published_which_may_be_repeated(output: Output) -> None:
    assert not output.is_published()
    assert output.is_staged()
    assert output.place.names() == ["_holdfast"]
    output.publish()
    assert output.content() == output.data
    assert not output.is_staged()
    output.publish()
    assert output.content() == output.data


def test_all_of_a_checkpoint_is_published_and_what_is_done_is_left_alone(
    place: Place, tmp_path: Path
) -> None:
    outputs = [staged_output(place, tmp_path, b"%d" % i * (i + 1), f"part-{i}") for i in range(20)]
    outputs[3].publish()
    place.files.publish(
        [one.staged for one in outputs],
        [one.target for one in outputs],
        [len(one.data) for one in outputs],
    )
    assert [one.content() for one in outputs] == [one.data for one in outputs]
    assert not any(one.is_staged() for one in outputs)


def test_of_those_that_cannot_be_published_the_first_is_reported_and_all_others_are_published(
    place: Place, tmp_path: Path
) -> None:
    outputs = [staged_output(place, tmp_path, b"%d" % i, f"part-{i}") for i in range(4)]
    for lost in outputs[1:3]:
        place.files.discard([lost.staged])
    said = refused(
        lambda: place.files.publish(
            [one.staged for one in outputs], [one.target for one in outputs], [1] * 4
        ),
        NOT_FOUND,
    )
    assert said == (
        f"cannot publish the staged file {outputs[1].staged} as {outputs[1].target}: neither of "
        "the two is there, and no record says that it was published"
    )
    assert [one.is_published() for one in outputs] == [True, False, False, True]
    assert not any(one.is_staged() for one in outputs)


def test_another_file_with_the_final_name_is_not_overwritten(output: Output) -> None:
    others = output.data[::-1]
    output.place.files.create(output.target, others)
    said = refused(output.publish, TAKEN)
    assert "another file has the final name: another pipeline writes to the same folder" in said
    assert output.content() == others
    assert output.is_staged(), "nothing of the pipeline's own is lost"
    output.place.files.delete(output.target, False)
    output.publish()
    assert output.content() == output.data
    refused(lambda: output.publish(length=3), TAKEN)


def test_a_file_without_content_is_published_as_well(output: Output, tmp_path: Path) -> None:
    empty = staged_output(output.place, tmp_path, b"", "part-2")
    empty.publish()
    assert empty.content() == b""


def test_a_file_that_was_staged_with_another_length_is_not_published(output: Output) -> None:
    said = refused(lambda: output.publish(length=99), OTHER)
    assert said.endswith(f"it was staged with 99 bytes and has {len(output.data)}")
    assert not output.is_published()


def test_what_is_discarded_is_gone(output: Output) -> None:
    output.place.files.discard([output.staged, f"{output.staged}-never"])
    assert not output.is_staged()
    assert "no record says that it was published" in refused(output.publish, NOT_FOUND)
    if output.place.kind == "s3a":
        assert output.place.pending_uploads() == 0


def test_two_drivers_publish_the_same(output: Output) -> None:
    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(output.publish) for _ in range(4)]:
            done.result()
    assert output.content() == output.data
    assert not output.is_staged()


@pytest.mark.parametrize("output", ["file", "objects", "s3a"], indirect=True)
def test_what_a_crash_left_of_publishing_is_finished(output: Output) -> None:
    before = bytes(output.place.files.read(output.staged))
    output.publish()
    # The crash: the staged name was not removed yet.
    output.place.files.create(output.staged, before)
    output.publish()
    assert output.content() == output.data
    assert not output.is_staged()


def test_a_large_file_goes_up_in_parts(bucket: Place, tmp_path: Path) -> None:
    data = content(12 * MIB)
    output = staged_output(bucket, tmp_path, data)
    pointer = json.loads(bytes(bucket.files.read(output.staged)))
    assert len(pointer["parts"]) == 3
    assert bucket.pending_uploads() == 1
    assert not output.is_published()
    output.publish()
    assert bucket.pending_uploads() == 0
    assert output.content() == data
    assert bucket.names() == ["part-1"], "no folder is made in place of the staged objects"


def test_an_upload_that_is_gone_means_lost_rows(bucket: Place, tmp_path: Path) -> None:
    output = staged_output(bucket, tmp_path)
    pointer = bytes(bucket.files.read(output.staged))
    bucket.files.discard([output.staged])
    bucket.files.create(output.staged, pointer)
    said = refused(output.publish, NOT_FOUND)
    assert "its upload is not there any more, and no record says that it was published" in said


def test_a_damaged_upload_is_refused_with_its_place_and_publishes_nothing(
    bucket: Place, tmp_path: Path
) -> None:
    output = staged_output(bucket, tmp_path)
    fields = json.loads(bytes(bucket.files.read(output.staged)))
    bucket.files.discard([output.staged])
    bucket.files.create(
        output.staged, json.dumps(fields | {"target": ""}).replace(" ", "").encode()
    )
    said = refused(output.publish, OTHER)
    assert output.staged in said
    assert "is not whole: java.lang.IllegalArgumentException: " in said
    assert bucket.names() == ["_holdfast"], "the staged object stays, and there is no other"


def test_an_upload_that_cannot_be_staged_leaves_nothing(bucket: Place, tmp_path: Path) -> None:
    staged = f"{bucket.uri}/staged"
    bucket.files.create(staged, b"taken")
    local = local_file(tmp_path, b"rows")
    refused(lambda: bucket.files.stage(local, staged, f"{bucket.uri}/target"), TAKEN)
    refused(lambda: bucket.files.stage(f"{local}-none", staged, f"{bucket.uri}/t"), NOT_FOUND)
    assert bucket.pending_uploads() == 0
    assert bucket.names() == ["staged"]


def test_an_upload_that_fails_in_the_middle_leaves_nothing(bucket: Place) -> None:
    once = {"fs.s3a.retry.limit": "1", "fs.s3a.attempts.maximum": "1"}
    files = bucket.files_with(once | {"fs.s3a.retry.interval": "10ms"})
    # Files of the kernel say that they are longer than they are.
    cut = "/sys/devices/system/cpu/online"
    said = refused(lambda: files.stage(cut, f"{bucket.uri}/s", f"{bucket.uri}/t"), OTHER)
    assert "the file was cut at" in said
    assert bucket.pending_uploads() == 0
    assert files.status(bucket.uri) is None


# --- segments ------------------------------------------------------------------------------------


def test_segments_are_written_into_a_new_folder_and_read_without_a_manager(place: Place) -> None:
    folder, core = f"{place.uri}/segments", native(place.files)
    owner = ("sales", "stats", "east", "default")
    payloads = {1: content(70_000), 2: b"small"}
    image = place.files.openImage(folder, 1 << 20)
    refs = {
        created: bytes(core.appendSegment(image, *owner, created, SNAPSHOT, 1, payload))
        for created, payload in payloads.items()
    }
    in_flight = bytes(core.appendSegment(image, *owner, 2, IN_FLIGHT, 3, b"rows"))
    for created in payloads:
        core.persistSegments(image, created)
    core.closeRegional(image)
    stored = place.files.openSegments(folder)
    for created, payload in payloads.items():
        assert bytes(core.readSegment(stored, refs[created], *owner)) == payload
    assert bytes(core.readSegment(stored, in_flight, *owner)) == b"rows"
    for created, payload in payloads.items():
        assert core.segmentBytes(stored, refs[created], *owner) == len(payload)
    another = ("sales", "stats", "west", "default")
    for read in (core.readSegment, core.segmentBytes):
        call = partial(read, stored, in_flight, *another)
        refused(call, "io.holdfast.spark.DamagedStateException")
    core.closeStored(stored)
    with pytest.raises(Py4JJavaError, match="closed"):
        core.readSegment(stored, in_flight, *owner)
    place.files.delete(folder, True)
    again = place.files.openSegments(folder)
    refused(
        lambda: core.readSegment(again, in_flight, *owner),
        "io.holdfast.spark.MissingStateException",
    )
    core.closeStored(again)
    with pytest.raises(Py4JJavaError, match="closed"):
        core.appendSegment(image, *owner, 1, SNAPSHOT, 0, b"")


def test_segments_are_copied_from_one_file_system_to_another(place: Place, tmp_path: Path) -> None:
    core = native(place.files)
    owner = ("sales", "stats", "east", "default")
    payload = content(200_000)
    here, there = f"{place.uri}/segments", f"file:{tmp_path}/savepoint"
    image = place.files.openImage(here, 1 << 20)
    ref = bytes(core.appendSegment(image, *owner, 7, SNAPSHOT, 1, payload))
    core.persistSegments(image, 7)
    core.closeRegional(image)
    stored, image = place.files.openSegments(here), place.files.openImage(there, 1 << 20)
    whose = ("turnover", *owner[1:], 7, SNAPSHOT, 1)
    copied = bytes(core.copySegment(image, stored, ref, "sales", *whose))
    core.persistSegments(image, 7)
    refused(
        lambda: core.copySegment(image, stored, ref, "x", *whose),
        "io.holdfast.spark.DamagedStateException",
    )
    core.closeRegional(image)
    core.closeStored(stored)
    stored = place.files.openSegments(there)
    assert bytes(core.readSegment(stored, copied, "turnover", *owner[1:])) == payload
    core.closeStored(stored)


# --- clean-up ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Folders:
    """Folders of a pipeline, as the JVM of a session reaches them."""

    bridge: Any
    files: Any
    segments: str
    metadata: str

    def written(self, checkpoint: int, *, closed: bool = True) -> SegmentRef:
        """A segment in a file of a manager that is gone, or died."""
        core, image = native(self.files), self.files.openImage(self.segments, 1 << 20)
        owner = ("sales", "count", "north", "default")
        ref = bytes(core.appendSegment(image, *owner, checkpoint, SNAPSHOT, 1, PAYLOAD))
        core.persistSegments(image, checkpoint)
        if closed:
            core.closeRegional(image)
        return SegmentRef.from_bytes(ref)

    def retain(self, checkpoint: int, ref: SegmentRef) -> str:
        """Write the metadata of a checkpoint that needs a segment."""
        piece = Piece(ref, 0, len(PAYLOAD))
        state = StateEntry("rows", "value", "|u1", (len(PAYLOAD),), pieces=[piece])
        operators = [OperatorEntry("count", [state])]
        entry = RegionEntry("north", origin=checkpoint, operators=operators)
        metadata = CheckpointMetadata(checkpoint, 0, "checkpoint", 0, b"", [entry])
        name = f"{self.metadata}/{checkpoint:016x}.hfc"
        self.files.create(name, metadata.to_bytes())
        return name

    def left(self) -> list[str]:
        return [line.split(" ")[3] for line in self.files.list(self.segments)]


PAYLOAD = b"state" * 8
FENCED = "io.holdfast.spark.FencedException"
MISSING = "io.holdfast.spark.MissingStateException"


@pytest.fixture(params=["file", ON_HDFS])
def folders(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Folders:
    root = f"file:{tmp_path}"
    if request.param == "hdfs":
        root = f"{request.getfixturevalue('hdfs').uri}/{tmp_path.name}"
    package: Any = spark._jvm.io.holdfast.spark  # type: ignore[union-attr]
    files = package.PipelineFiles(spark._jsparkSession.sessionState().newHadoopConf())
    files.makeFolder(f"{root}/segments")
    bridge = package.driver.HoldfastDriver.running().regionalPipelines()
    return Folders(bridge, files, f"{root}/segments", f"{root}/metadata")


def test_files_of_managers_that_are_gone_go_once_no_checkpoint_needs_them(folders: Folders) -> None:
    bridge = folders.bridge
    needed, orphan = folders.written(1), folders.written(2)
    name = folders.retain(1, needed)
    clean_up = bridge.openOrphans(folders.segments, folders.metadata, "sales")
    assert sorted(folders.left()) == sorted([needed.file, orphan.file])
    assert bridge.reclaimOrphans(clean_up, [1], [orphan.term], 0)[0] == ""
    done, *wasteful = bridge.reclaimOrphans(clean_up, [1], [], 0)
    assert done.startswith("deleted 1 files of ")
    # Its head is larger than the payload.
    assert folders.left() == wasteful == [needed.file]
    # Metadata never changes: it is read once.
    folders.files.delete(name, False)
    assert bridge.reclaimOrphans(clean_up, [1], [], 0)[0] == ""
    refused(lambda: bridge.reclaimOrphans(clean_up, [2], [], 0), MISSING)
    later = folders.written(3)
    said = refused(lambda: bridge.reclaimOrphans(clean_up, [1], [], 0), FENCED)
    assert "another application took over" in said
    assert len(folders.left()) == 2
    bridge.closeOrphans(clean_up)
    bridge.closeOrphans(clean_up)
    with pytest.raises(Py4JJavaError, match="closed"):
        bridge.reclaimOrphans(clean_up, [1], [], later.term)


def test_a_file_that_its_dead_writer_left_open_is_kept_as_long_as_it_is_needed(
    folders: Folders,
) -> None:
    bridge = folders.bridge
    needed = folders.written(1, closed=False)
    folders.retain(1, needed)
    clean_up = bridge.openOrphans(folders.segments, folders.metadata, "sales")
    assert bridge.reclaimOrphans(clean_up, [1], [], needed.term)[0] == ""
    done, *wasteful = bridge.reclaimOrphans(clean_up, [], [], needed.term)
    assert done.startswith("deleted 1 files of ")
    assert wasteful == []
    assert folders.left() == []
    bridge.closeOrphans(clean_up)
