"""Several instances of the driver beside one kubelet: each has sockets of its own."""

import os
from collections.abc import Iterator

import pytest
import trio
from inotify_simple import INotify, flags
from structlog.typing import EventDict

from liken_events.servers.registry import KubeletPaths
from liken_events.unix_socket import MOST_PATH_BYTES, PathTooLong
from tests.fakes.kubelet import Kubelet
from tests.fakes.registered import answers, leave_stale, listening, living, serving, short_root
from tests.fakes.waiting import until

OLD, NEW = "0c2d6a4e-7d5b-4f0a-9c1e-2b8d6a4e0f13", "3f1c2a9e-7d5b-4f0a-9c1e-2b8d6a4e0f13"
CLAIM = ("default", "camera", "uid-1")


@pytest.fixture
def kubelet() -> Iterator[Kubelet]:
    with short_root() as root:
        made = Kubelet(root)
        made.make_directories()
        yield made


def sockets(kubelet: Kubelet) -> list[str]:
    """The names of all sockets."""
    places = (kubelet.service_socket.parent, kubelet.registry)
    return sorted(name for place in places if place.is_dir() for name in os.listdir(place))


def names(*instances: str) -> list[str]:
    """Those of these instances."""
    return sorted(
        [f"dra-{name}.sock" for name in instances]
        + [f"liken.sh-{name}-reg.sock" for name in instances]
    )


@pytest.mark.parametrize("older", ["", OLD], ids=["one without a name", "one with a name"])
async def test_two_are_registered_side_by_side_and_either_may_be_called(
    kubelet: Kubelet, older: str, logs: list[EventDict]
) -> None:
    async with living(kubelet), serving(kubelet.root, instance=NEW) as new:
        async with serving(kubelet.root, instance=older) as old:
            for instance, keeper in ((older, old), (NEW, new)):
                plugin = await kubelet.plugin(instance)
                assert (await plugin.prepare(CLAIM))["uid-1"].error == ""
                assert keeper.prepared == {"uid-1": 1}
        await until(lambda: len(kubelet.plugins) == 1)
        assert (await kubelet.called().unprepare(CLAIM))["uid-1"].error == ""
        assert new.unprepared == {"uid-1": 1}
        assert sockets(kubelet) == names(NEW)
    assert [line for line in logs if line["event"] == "kubelet.cannot_serve"] == []


async def test_at_every_moment_of_an_update_there_is_one_that_answers(kubelet: Kubelet) -> None:
    async with living(kubelet):
        for older, newer in ((OLD, NEW), (NEW, OLD)):
            async with serving(kubelet.root, instance=older) as old:
                first = await kubelet.plugin(older)
                assert kubelet.called() is first
                async with serving(kubelet.root, instance=newer) as new:
                    second = await kubelet.plugin(newer)
                    assert kubelet.called() is second
                    assert first.is_connected
                    await second.prepare(CLAIM)
                    assert (old.prepared, new.prepared) == ({}, {"uid-1": 1})
                    assert second.disconnects == 0


async def test_the_sockets_of_one_go_in_order_and_leave_the_others(kubelet: Kubelet) -> None:
    async with living(kubelet), serving(kubelet.root, instance=NEW):
        await kubelet.plugin(NEW)
        with INotify(nonblocking=True) as watch:
            async with serving(kubelet.root, instance=OLD):
                await kubelet.plugin(OLD)
                for place in (kubelet.service_socket.parent, kubelet.registry):
                    watch.add_watch(str(place), flags.DELETE)
            gone = [event.name for event in watch.read(timeout=0)]
        assert gone == [f"dra-{OLD}.sock", f"liken.sh-{OLD}-reg.sock"]
        assert sockets(kubelet) == names(NEW)


async def test_a_call_that_runs_at_the_end_is_finished(kubelet: Kubelet) -> None:
    slow = ("default", "slow-camera", "uid-1")
    errors = []
    async with (
        living(kubelet),
        trio.open_nursery() as nursery,
        serving(kubelet.root, instance=OLD) as keeper,
    ):
        plugin = await kubelet.plugin(OLD)

        async def prepare() -> None:
            errors.append((await plugin.prepare(slow))["uid-1"].error)

        async def release_while_it_stops() -> None:
            await until(lambda: f"dra-{OLD}.sock" not in sockets(kubelet))
            keeper.released.set()

        nursery.start_soon(prepare)
        await until(lambda: keeper.running)
        nursery.start_soon(release_while_it_stops)
    assert errors == [""]


@pytest.mark.parametrize("instance", ["", NEW], ids=["without a name", "with a name"])
async def test_what_dead_instances_left_is_removed_and_nothing_else(
    kubelet: Kubelet, instance: str
) -> None:
    ours, registry = kubelet.service_socket.parent, kubelet.registry
    dead = [
        ours / "dra.sock",
        registry / "liken.sh-reg.sock",
        ours / f"dra-{OLD}.sock",
        registry / f"liken.sh-{OLD}-reg.sock",
        ours / "dra-other.sock",
    ]
    foreign = [registry / "other.example.com-reg.sock", registry / "liken.shop-reg.sock"]
    alive = [ours / "dra-alive.sock", registry / "liken.sh-alive-reg.sock"]
    for path in (*dead, *foreign):
        leave_stale(path)
    (ours / "dra-file.sock").write_text("no socket")
    with listening(alive[0]), listening(alive[1]):
        async with serving(kubelet.root, instance=instance):
            await until(lambda: any("reg.sock" in name for name in sockets(kubelet)))
            own = names(instance) if instance else ["dra.sock", "liken.sh-reg.sock"]
            await until(lambda: set(own) <= set(sockets(kubelet)))
            left = [path.name for path in (*foreign, *alive)]
            assert sockets(kubelet) == sorted([*own, *left, "dra-file.sock"])
            assert all(answers(path) for path in alive)


def most_bytes(paths: KubeletPaths) -> int:
    return max(len(os.fsencode(path)) for path in (paths.service, paths.registration))


@pytest.mark.parametrize(("instance", "forms"), [("x", 1), (NEW, 2), ("n" * 50, 2)])
def test_names_are_told_apart_in_directories_of_any_length(instance: str, forms: int) -> None:
    """Where the name does not fit, a digest stands for it; where that does not, it is said."""
    found: list[KubeletPaths] = []
    too_long = root = ""
    for size in range(10, 90):
        root = "/" + "r" * size
        try:
            found.append(KubeletPaths.below(root, instance))
        except PathTooLong as error:
            too_long = str(error)
            break
        other = KubeletPaths.below(root, f"{instance[:-1]}z")
        assert other.service != found[-1].service
        assert other.registration != found[-1].registration
    assert too_long.startswith(f"--kubelet-dir: the socket path {root}/plugins_registry/liken.sh-")
    assert found[0].instance == instance
    assert len({paths.instance for paths in found}) == forms
    assert max(map(most_bytes, found)) == MOST_PATH_BYTES == most_bytes(found[-1])


def test_the_names_have_the_form_that_is_documented() -> None:
    paths = KubeletPaths.below("/var/lib/kubelet", NEW)
    assert paths.service == f"/var/lib/kubelet/plugins/liken.sh/dra-{NEW}.sock"
    assert paths.registration == f"/var/lib/kubelet/plugins_registry/liken.sh-{NEW}-reg.sock"
    snap = KubeletPaths.below("/var/snap/k8s/common/var/lib/kubelet", NEW)
    assert os.path.basename(snap.registration) == "liken.sh-1b3354863e39-reg.sock"
    assert os.path.basename(snap.service) == "dra-1b3354863e39.sock"
