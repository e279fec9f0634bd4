import os
import shutil
import time
from pathlib import Path

import pytest

from liken_events.cluster import Unavailable, claim_files
from liken_events.cluster.claim_file import MOST_BYTES, ClaimFile, load_claim
from liken_events.cluster.claim_files import ClaimFiles
from liken_events.cluster.plain_yaml import emit
from tests.cluster.claim_bodies import OTHER_UID, UID, claim_body
from tests.fakes.faults import no_descriptors


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


def test_there_are_no_claims_without_a_directory(files: ClaimFiles, top: Path) -> None:
    assert files.list() == ()
    assert files.read("default", "camera") is None
    assert not files.remove("default", "camera")
    top.write_text("a file")
    assert files.list() == ()
    assert files.read("default", "camera") is None
    assert not files.remove("default", "camera")


def test_all_namespaces_are_listed_in_order(files: ClaimFiles, top: Path) -> None:
    for namespace, name in (("b", "x"), ("a", "y.z"), ("a", "x"), ("b", "0")):
        files.write(claim_body(namespace=namespace, name=name))
    assert names(files) == [("a", "x"), ("a", "y.z"), ("b", "0"), ("b", "x")]
    assert not any(file.problem for file in files.list())


def test_what_is_hidden_or_ends_otherwise_is_no_claim(files: ClaimFiles, camera: Path) -> None:
    for name in (".camera.yaml", ".yaml", "camera.yml", "camera.yaml~", "camera.json", "README"):
        (camera.parent / name).write_text("x")
        (camera.parent.parent / name).write_text("x")
    (camera.parent / "below").mkdir()
    (camera.parent / "below" / "camera.yaml").write_text("x")
    (camera.parent.parent / ".git").mkdir()
    assert [file.path for file in files.list()] == []


def test_a_broken_file_keeps_what_was_last_good(files: ClaimFiles, camera: Path) -> None:
    good = emit(claim_body("a"))
    camera.write_text(good)
    assert only(files).uid == UID
    for broken in ("", good[:-30] + ": :", good.replace(UID, ""), "\x00"):
        camera.write_text(broken)
        found = only(files)
        assert (found.uid, found.body) == (UID, claim_body("a"))
        assert found.problem.startswith(f"{camera} ")
        with pytest.raises(Unavailable) as caught:
            files.read("default", "camera")
        assert caught.value.reason == found.problem
    camera.write_text(emit(claim_body("b")))
    assert only(files).body == files.read("default", "camera") == claim_body("b")
    assert only(files).problem == ""


def test_a_broken_file_is_known_to_be_there_after_a_restart(
    files: ClaimFiles, camera: Path
) -> None:
    camera.write_text("{broken")
    found = only(files)
    assert (found.namespace, found.name, found.uid, found.body) == ("default", "camera", "", {})
    assert "cannot be understood (line 2: " in found.problem


def test_what_was_last_good_goes_with_the_file(files: ClaimFiles, camera: Path) -> None:
    camera.write_text(emit(claim_body("a")))
    files.list()
    camera.unlink()
    files.list()
    camera.write_text("{broken")
    assert only(files).uid == ""


def test_another_uid_in_a_good_file_is_another_claim(files: ClaimFiles, camera: Path) -> None:
    camera.write_text(emit(claim_body("a")))
    assert only(files).uid == UID
    camera.write_text(emit(claim_body("b", uid=OTHER_UID)))
    assert (only(files).uid, only(files).body) == (OTHER_UID, claim_body("b", uid=OTHER_UID))


def make_loop(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda path: path.mkdir(), "is no file: remove it"),
        (lambda path: os.mkfifo(path), "is no file: remove it"),
        (lambda path: path.symlink_to("/dev/zero"), "is no file: remove it"),
        (make_loop, "cannot be read (Too many levels of symbolic links): make it readable, or"),
        (lambda path: path.symlink_to("missing"), "cannot be read (No such file or directory)"),
        (lambda path: path.write_bytes(b"\xff"), "is no text in UTF-8"),
        (lambda path: path.write_text("#" * (MOST_BYTES + 1)), "is larger than 256 KiB"),
        (lambda path: path.write_text("&a [*a, *a]"), "cannot be understood (line 1: an alias"),
    ],
    ids=["directory", "pipe", "device", "loop", "dangling", "bytes", "size", "alias"],
)
def test_an_odd_file_harms_no_other(
    files: ClaimFiles, camera: Path, make: object, problem: str
) -> None:
    assert callable(make)
    files.write(claim_body(name="other"))
    make(camera)
    found, other = files.list()
    assert (found.name, found.uid, other.name, other.uid) == ("camera", "", "other", UID)
    assert found.problem.startswith(f"{camera} {problem}")
    with pytest.raises(Unavailable):
        files.read("default", "camera")


def test_a_link_to_a_claim_is_a_claim(files: ClaimFiles, camera: Path, tmp_path: Path) -> None:
    (tmp_path / "real").write_text(emit(claim_body()))
    camera.symlink_to(tmp_path / "real")
    assert only(files).uid == UID


@pytest.mark.parametrize(
    ("where", "names", "problem"),
    [
        ("Bad/camera.yaml", ("Bad", ""), "/Bad cannot be a namespace: rename it"),
        ("a b/x", ("a b", ""), "/a b cannot be a namespace: rename it"),
        ("x\n\x1b[2J/x", ("x\n\x1b[2J", ""), r"/x\x0a\x1b[2J cannot be a namespace: rename it"),
        ("\udcff/x", ("\udcff", ""), r"/\udcff cannot be a namespace: rename it"),
        ("x" * 64 + "/x", ("x" * 64, ""), "x cannot be a namespace: rename it"),
        ("default/Bad.yaml", ("default", "Bad"), "/Bad.yaml cannot be a claim: rename it"),
        ("default/\udcff.yaml", ("default", "\udcff"), r"/\udcff.yaml cannot be a claim: rename"),
        ("default/\x1b.yaml", ("default", "\x1b"), r"/\x1b.yaml cannot be a claim: rename it"),
        ("camera.yaml", ("", "camera"), "/camera.yaml is in no namespace: move it into one"),
    ],
)
def test_what_is_in_the_wrong_place_is_said(
    files: ClaimFiles, top: Path, where: str, names: tuple[str, str], problem: str
) -> None:
    files.write(claim_body(namespace="other"))
    (top / where).parent.mkdir(exist_ok=True)
    (top / where).write_text(emit(claim_body()))
    (found,) = (file for file in files.list() if file.problem)
    assert (found.namespace, found.name) == names
    assert found.uid == ""
    assert problem in found.problem
    assert found.problem.isprintable()
    assert [file.namespace for file in files.list() if file.uid] == ["other"]


def test_a_directory_that_cannot_be_read_ends_no_claim(files: ClaimFiles, top: Path) -> None:
    files.write(claim_body())
    files.write(claim_body(namespace="other"))
    before = files.list()
    with no_descriptors():
        found = files.list()
    assert [(file.namespace, file.name, file.uid) for file in found] == [
        ("", "", ""),
        ("default", "camera", UID),
        ("other", "camera", UID),
    ]
    problem = f"{top} cannot be read (Too many open files): make it readable, or remove it"
    assert {file.problem for file in found} == {problem}
    assert files.list() == before
    shutil.rmtree(top / "default")
    make_loop(top / "default")
    directory, kept, other = files.list()
    assert (directory.namespace, directory.name, other) == ("default", "", before[1])
    assert (kept.uid, kept.problem) == (UID, directory.problem)
    assert "/default cannot be read (Too many levels of symbolic links)" in directory.problem


def test_a_namespace_that_cannot_be_read_keeps_its_claims(
    files: ClaimFiles, top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write(claim_body())
    files.write(claim_body(namespace="other"))
    before = files.list()
    real = os.scandir

    def refuse(path: str) -> object:
        if path == str(top / "default"):
            raise OSError(5, "Input/output error")
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    directory, kept, other = files.list()
    problem = f"{top}/default cannot be read (Input/output error): make it readable, or remove it"
    assert (directory.namespace, directory.name, directory.problem) == ("default", "", problem)
    assert (kept.uid, kept.body, kept.problem) == (UID, before[0].body, problem)
    assert other == before[1]
    monkeypatch.undo()
    assert files.list() == before


def test_a_file_that_cannot_be_opened_keeps_its_claim(files: ClaimFiles, camera: Path) -> None:
    camera.write_text(emit(claim_body()))
    before = only(files)
    with no_descriptors(), pytest.raises(Unavailable, match="Too many open files"):
        files.read("default", "camera")
    assert only(files) == before


def test_a_file_is_read_again_only_if_it_changed(
    files: ClaimFiles, camera: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    real = load_claim

    def counted(data: bytes, namespace: str, name: str) -> object:
        read.append(name)
        return real(data, namespace, name)

    monkeypatch.setattr(claim_files, "load_claim", counted)
    now = [time.time_ns()]
    monkeypatch.setattr(time, "time_ns", lambda: now[0])
    camera.write_text(emit(claim_body("a")))
    files.list()
    files.list()
    assert len(read) == 2, "it changed a moment ago and may change again within a tick"
    now[0] += 3_000_000_000
    files.list()
    assert len(read) == 3
    for _ in range(3):
        assert only(files).body == claim_body("a")
        files.read("default", "camera")
    assert len(read) == 3
    status = camera.stat()
    camera.write_text(emit(claim_body("b")))
    os.utime(camera, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert camera.stat().st_size == status.st_size
    assert only(files).body == claim_body("b")
