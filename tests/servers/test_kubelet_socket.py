import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from liken_events.servers.kubelet_socket import KubeletSocket
from tests.fakes.faults import no_descriptors
from tests.fakes.registered import listening, short_root


@pytest.fixture
def path() -> Iterator[Path]:
    with short_root() as root:
        root.mkdir()
        yield root / "kubelet.sock"


@contextmanager
def held(path: Path) -> Iterator[KubeletSocket]:
    """One of which a first socket is held."""
    with listening(path), KubeletSocket(str(path)) as kubelet:
        assert kubelet.look()
        assert kubelet.number == 1
        yield kubelet


def connects(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(path) == 0


def test_where_nothing_is_there_is_none(path: Path) -> None:
    with KubeletSocket(str(path)) as kubelet:
        assert not kubelet.look()
        assert not kubelet.is_newest()
        assert kubelet.number == 0
    with KubeletSocket(str(path / "below")) as kubelet:
        assert not kubelet.look()
        path.write_text("a file where the directory should be")
        assert not kubelet.look()


def test_the_same_one_stays_the_same_whatever_is_done_to_it(path: Path) -> None:
    with held(path) as kubelet:
        path.chmod(0o600)
        os.utime(path)
        assert (kubelet.look(), kubelet.number) == (True, 1)
        away = path.with_name("away")
        path.rename(away)
        assert not kubelet.is_newest()
        assert (kubelet.look(), kubelet.number) == (False, 1)
        os.link(away, path)
        assert kubelet.is_newest()
        assert (kubelet.look(), kubelet.number) == (True, 1)


def test_a_number_that_is_free_again_makes_no_other_socket_look_like_this_one(path: Path) -> None:
    with held(path) as kubelet:
        for number in range(2, 12):
            path.unlink()
            with listening(path):
                assert not kubelet.is_newest()
                assert (kubelet.look(), kubelet.number) == (True, number)
                assert kubelet.is_newest()


def test_who_calls_the_one_that_is_held_reaches_no_other(path: Path) -> None:
    away = path.with_name("away")
    with held(path) as kubelet:
        assert connects(kubelet.path)
        path.rename(away)
        assert connects(kubelet.path)
        away.unlink()
        with listening(path):
            assert connects(kubelet.path), "it has no name any more and listens all the same"
    with KubeletSocket(str(path)) as kubelet:
        assert kubelet.look()
        path.unlink()
        with listening(path):
            assert connects(str(path))
            assert not connects(kubelet.path)


def test_a_link_is_followed(path: Path) -> None:
    link = path.with_name("link")
    link.symlink_to(path)
    with listening(path), KubeletSocket(str(link)) as kubelet:
        assert kubelet.look()
        assert kubelet.is_newest()
        assert connects(kubelet.path)


def test_nothing_stays_open(path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with held(path) as kubelet:
        for _ in range(5):
            path.unlink()
            with listening(path):
                kubelet.look()
    assert len(os.listdir("/proc/self/fd")) == before


def test_without_descriptors_it_cannot_be_told(path: Path) -> None:
    with held(path) as kubelet:
        with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
            kubelet.look()
        assert (kubelet.look(), kubelet.number) == (True, 1)
