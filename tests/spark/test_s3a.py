"""Checkpoints on S3 through Hadoop's S3A, against a server of the S3 protocol on loopback.

``test_object_store.py`` and ``test_fencing.py`` run on it as well.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from java_side import check_conformance, classpath, skipped_without_jars
from object_stores import S3Server

from faults import LOCAL, World

pytestmark = pytest.mark.timeout(900)


def test_the_storage_conformance_suite_passes_on_s3a(helpers: Path, tmp_path: Path) -> None:
    with skipped_without_jars():
        server = S3Server(tmp_path, helpers)
    server.bucket("bucket")
    settings = [f"{key}={value}" for key, value in server.settings.items()]
    check_conformance(classpath(helpers, *server.client), "s3a://bucket/conformance", *settings)
    server.close()


@pytest.mark.full
@pytest.mark.parametrize("object_world", ["s3a"], indirect=True)
def test_an_entry_whose_answer_is_lost_is_not_taken_for_another_applications(
    object_world: World,
) -> None:
    world = object_world
    world.feed(3)
    # The server creates commits/1 and then says nothing, so that the client asks again.
    world.arm("after-entry", nth=2)
    job = world.start(LOCAL, spark__hadoop__fs__s3a__connection__timeout="15s")
    job.wait_until_stopped_at("after-entry")
    job.wait_until_processed()
    world.go("after-entry")
    job.finish()
    world.assert_rows()
