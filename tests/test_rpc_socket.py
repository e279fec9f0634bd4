import errno
import os
import signal
import socket
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import grpc
import pytest
import trio

from liken_events import rpc
from liken_events._generated.pluginregistration_pb2 import InfoRequest, PluginInfo
from liken_events.rpc import MOST_STREAMS, Constant, Server, Service
from liken_events.unix_socket import CannotServe, PathTooLong
from tests.fakes.grpc_calls import Threads, dial

SERVICE = Service(
    name="test.Subject",
    methods=(Constant(name="Who", request=InfoRequest, answer=PluginInfo(name="us")),),
)


async def who(path: str, *, authority: str = "localhost") -> str:
    """Who serves at a path."""
    with dial(path, authority=authority) as channel:
        call = channel.unary_unary(
            "/test.Subject/Who", InfoRequest.SerializeToString, PluginInfo.FromString
        )
        return str((await Threads().run_unary(call, InfoRequest(), timeout=5)).name)


def touch(path: str) -> None:
    Path(path).write_text("mine")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "a.sock")


@pytest.mark.parametrize("authority", ["localhost", "", "%2Fvar%2Flib%2Fkubelet%2Fa.sock"])
async def test_every_authority_that_a_kubelet_sends_is_taken(path: str, authority: str) -> None:
    async with Server(path, (SERVICE,)).serving():
        assert await who(path, authority=authority) == "us"


@pytest.mark.parametrize("name", ["a b", "100%41", "what?", "a#b", "ü", "a:b"])
async def test_a_path_is_a_path_and_no_address(tmp_path: Path, name: str) -> None:
    directory = tmp_path / name
    directory.mkdir()
    async with Server(str(directory / "a.sock"), (SERVICE,)).serving():
        assert os.listdir(directory) == ["a.sock"]
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(directory / "a.sock"))


async def test_the_longest_path_is_served(tmp_path: Path) -> None:
    directory = tmp_path / ("d" * (107 - len(str(tmp_path)) - 8))
    directory.mkdir()
    path = str(directory / "a.sock")
    assert len(path) == 107
    async with Server(path, (SERVICE,)).serving():
        assert await who(path) == "us"
    with pytest.raises(PathTooLong):
        Server(str(directory / "ab.sock"), (SERVICE,))


def test_streams_may_not_take_all_threads(path: str) -> None:
    with pytest.raises(ValueError, match="could all be taken by streams"):
        Server(path, (SERVICE,), workers=MOST_STREAMS)


async def test_only_its_owner_may_connect(path: str) -> None:
    async with Server(path, (SERVICE,)).serving():
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


async def test_a_socket_of_a_dead_instance_is_replaced(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
        dead.listen()
    async with Server(path, (SERVICE,)).serving():
        assert await who(path) == "us"


async def test_a_live_instance_is_left_alone(path: str) -> None:
    server = Server(path, (SERVICE,))
    async with Server(path, (SERVICE,)).serving():
        with pytest.raises(CannotServe, match=f"another instance serves {path}"):
            async with server.serving():
                pytest.fail("two serve at one path")
        assert not server.is_there()
        assert await who(path) == "us"


async def test_a_file_is_left_alone(path: str) -> None:
    touch(path)
    with pytest.raises(CannotServe, match="is no socket"):
        async with Server(path, (SERVICE,)).serving():
            pytest.fail("it is served")
    assert os.stat(path).st_size == 4


async def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "nothing" / "a.sock")
    with pytest.raises(CannotServe, match=f"cannot serve {path}: No such file or directory"):
        async with Server(path, (SERVICE,)).serving():
            pytest.fail("it is served")


async def test_somebody_who_is_quicker_is_not_replaced(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Server(path, (SERVICE,))
    async with other.serving():
        monkeypatch.setattr(rpc, "remove_stale", lambda _: False)  # he came right after it
        with pytest.raises(CannotServe, match="File exists"):
            async with Server(path, (SERVICE,)).serving():
                pytest.fail("two serve at one path")
        assert other.is_there()
        assert await who(path) == "us"
        assert os.listdir(os.path.dirname(path)) == ["a.sock"]


async def test_who_begins_at_the_same_time_and_gives_up_takes_nothing_along(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old and the new instance meet a kubelet that has removed all sockets, and bind at
    once."""
    real = os.chmod

    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "not allowed")

    def chmod(beside: str, mode: int) -> None:
        monkeypatch.setattr(os, "chmod", refused)
        other = grpc.server(ThreadPoolExecutor(1))
        with pytest.raises(CannotServe, match="not allowed"):
            Server(path, (SERVICE,))._bind(other)
        other.stop(None).wait()
        monkeypatch.setattr(os, "chmod", real)
        real(beside, mode)

    monkeypatch.setattr(os, "chmod", chmod)
    async with Server(path, (SERVICE,)).serving():
        assert await who(path) == "us"
        assert os.listdir(os.path.dirname(path)) == ["a.sock"]


async def test_a_server_knows_whether_its_socket_is_there(path: str) -> None:
    server = Server(path, (SERVICE,))
    assert not server.is_there()
    async with server.serving():
        assert server.is_there()
        os.rename(path, path + "-away")
        assert not server.is_there()
        os.rename(path + "-away", path)
        assert server.is_there()
        os.unlink(path)
        assert not server.is_there()
    assert not server.is_there()


async def test_at_the_end_a_socket_of_somebody_else_is_not_removed(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        async with Server(path, (SERVICE,)).serving():
            os.unlink(path)
            other.bind(path)
            other.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)


async def test_a_path_can_be_served_again(path: str) -> None:
    for _ in range(3):
        async with Server(path, (SERVICE,)).serving():
            assert await who(path) == "us"
        assert os.listdir(os.path.dirname(path)) == []


async def test_a_cancelled_server_leaves_nothing(path: str) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        async with Server(path, (SERVICE,)).serving():
            await trio.lowlevel.checkpoint()
            pytest.fail("it was not cancelled")
    assert os.listdir(os.path.dirname(path)) == []


def test_children_may_be_started_while_calls_go_on(path: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.fakes.children", path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "GRPC_ENABLE_FORK_SUPPORT": "1"},
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=45)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # its children hang, too, if it does
    assert (process.returncode, err) == (0, "")
    started, calls, threads = map(int, out.split())
    assert started >= 100
    assert calls >= started
    assert threads == 1  # grpc's fork handlers would have started its own in the child


def test_grpc_is_told_to_stay_out_of_forks_and_of_the_log() -> None:
    program = (
        "import os, liken_events.rpc;"
        "print(os.environ['GRPC_ENABLE_FORK_SUPPORT'], os.environ['GRPC_VERBOSITY'])"
    )
    for verbosity, expected in ((None, "NONE"), ("debug", "debug")):
        environ = {**os.environ, "GRPC_ENABLE_FORK_SUPPORT": "1"}
        environ.pop("GRPC_VERBOSITY", None)
        if verbosity is not None:
            environ["GRPC_VERBOSITY"] = verbosity
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
            env=environ,
        )
        assert done.stdout.split() == ["0", expected]
        if verbosity is None:
            assert done.stderr == ""
