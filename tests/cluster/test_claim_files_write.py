import os
from pathlib import Path

import pytest

from liken_events.cluster import Conflict, Rejected, Unavailable, claim_files
from liken_events.cluster.claim_file import ClaimFile
from liken_events.cluster.claim_files import ClaimFiles
from liken_events.cluster.claim_names import BadName
from liken_events.cluster.plain_yaml import load
from liken_events.core.model.json import Json
from tests.cluster.claim_bodies import OTHER_UID, UID, claim_body
from tests.fakes.mount_namespace import MountNamespace


@pytest.fixture
def files(tmp_path: Path) -> ClaimFiles:
    return ClaimFiles(str(tmp_path))


@pytest.fixture
def top(tmp_path: Path) -> Path:
    return tmp_path / "resourceclaims"


@pytest.fixture
def camera(top: Path) -> Path:
    """Where the claim `default/camera` is to be."""
    (top / "default").mkdir(parents=True)
    return top / "default" / "camera.yaml"


def only(files: ClaimFiles) -> ClaimFile:
    (found,) = files.list()
    return found


def names(files: ClaimFiles) -> list[tuple[str, str]]:
    return [(file.namespace, file.name) for file in files.list()]


def test_a_claim_that_is_written_is_read_as_it_was(files: ClaimFiles, top: Path) -> None:
    body = claim_body("a", "b")
    written = files.write(body)
    path = top / "default" / "camera.yaml"
    assert load(path.read_text()) == body
    assert list(body) == [
        line.split(":")[0] for line in path.read_text().splitlines() if line[0] not in " -"
    ]
    assert path.stat().st_mode & 0o777 == 0o644
    assert os.listdir(path.parent) == ["camera.yaml"]
    assert files.read("default", "camera") == body
    assert files.list() == (written,)
    assert written == ClaimFile(
        path=str(path), namespace="default", name="camera", uid=UID, body=body
    )
    assert files.path("default", "camera") == str(path)


def test_a_name_is_not_given_twice(files: ClaimFiles) -> None:
    files.write(claim_body("a"))
    with pytest.raises(Conflict, match=r"default/camera\.yaml exists already: take another name"):
        files.write(claim_body("b", uid=OTHER_UID))
    assert files.read("default", "camera") == claim_body("a")
    assert os.listdir(os.path.dirname(files.path("default", "camera"))) == ["camera.yaml"]


def test_nothing_is_written_over_what_is_no_claim(files: ClaimFiles, camera: Path) -> None:
    for make in (
        camera.mkdir,
        lambda: camera.symlink_to("missing"),
        lambda: camera.write_text(""),
    ):
        make()
        with pytest.raises(Conflict):
            files.write(claim_body("a"))
        camera.rmdir() if camera.is_dir() else camera.unlink()
    files.write(claim_body("a"))


HOSTILE = ["", ".", "..", "../x", "a/../../x", "/etc", "a\0b", "A", "x" * 254]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_cannot_lead_elsewhere(files: ClaimFiles, top: Path, name: str) -> None:
    for call in (files.read, files.remove, files.path):
        with pytest.raises(BadName):
            call("default", name)
        with pytest.raises(BadName):
            call(name, "camera")
    with pytest.raises(BadName):
        files.write(claim_body(name=name))
    with pytest.raises(BadName):
        files.write(claim_body(namespace=name))
    assert not top.exists()


def test_a_name_that_no_file_can_have_is_said_to_be_too_long(files: ClaimFiles) -> None:
    assert files.read("default", "x" * 253) is None
    with pytest.raises(Unavailable, match=r"cannot write .*: File name too long"):
        files.write(claim_body(name="x" * 253))


@pytest.mark.parametrize(
    "body",
    [
        {**claim_body(), "kind": "Pod"},
        claim_body(uid=""),
        claim_body(*map(str, range(5000))),
        {**claim_body(), "more": load("[" * 64 + "]" * 64)},
    ],
    ids=["kind", "uid", "size", "depth"],
)
def test_what_could_not_be_read_again_is_not_written(
    files: ClaimFiles, top: Path, body: dict[str, Json]
) -> None:
    with pytest.raises(Rejected, match=r"camera\.yaml would be no use: it (has|is|holds|cannot) "):
        files.write(body)
    assert not top.exists()


@pytest.mark.parametrize("metadata", [None, {}, [], {"namespace": None, "name": 1}])
def test_an_object_without_names_is_not_written(files: ClaimFiles, metadata: Json) -> None:
    with pytest.raises(BadName):
        files.write({**claim_body(), "metadata": metadata})


def test_a_removed_claim_is_gone(files: ClaimFiles, top: Path) -> None:
    files.write(claim_body())
    assert files.remove("default", "camera")
    assert files.list() == ()
    assert files.read("default", "camera") is None
    assert not files.remove("default", "camera")
    files.write(claim_body(uid=OTHER_UID))
    assert only(files).uid == OTHER_UID


def test_what_cannot_be_removed_is_named(files: ClaimFiles, camera: Path) -> None:
    camera.mkdir()
    with pytest.raises(Unavailable, match=r"cannot remove .*camera\.yaml: Is a directory"):
        files.remove("default", "camera")


def test_a_full_disk_leaves_no_half_claim(mounts: MountNamespace) -> None:
    mounts.run("mount", "-t", "tmpfs", "-o", "size=16k", "none", "/mnt")
    root = Path(f"{mounts.root}/mnt")
    files = ClaimFiles(str(root))
    files.write(claim_body())
    with pytest.raises(Unavailable, match=r"cannot write .*big\.yaml: No space left on device"):
        files.write(claim_body(*map(str, range(1000)), name="big"))
    assert os.listdir(root / "resourceclaims" / "default") == ["camera.yaml"]
    mounts.run("mount", "-o", "remount,ro", "/mnt")
    with pytest.raises(Unavailable, match=r"cannot write .*: Read-only file system"):
        files.write(claim_body(name="other"))
    with pytest.raises(Unavailable, match=r"cannot remove .*: Read-only file system"):
        files.remove("default", "camera")
    with (
        pytest.raises(Unavailable, match=r"cannot lock .*: Read-only file system"),
        files.locked(),
    ):
        raise AssertionError
    assert names(files) == [("default", "camera")]


def test_the_lock_excludes_and_is_bounded(
    files: ClaimFiles, top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_files, "LOCK_SECONDS", 0.05)
    with files.locked():
        with pytest.raises(Unavailable, match="locked by another command"), files.locked():
            raise AssertionError
        files.write(claim_body())
    with files.locked():
        assert names(files) == [("default", "camera")]
