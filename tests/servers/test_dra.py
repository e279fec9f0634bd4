from types import ModuleType
from typing import Any

import pytest
import trio
from structlog.typing import EventDict
from trio.testing import MockClock

from liken_events._generated import dra_v1_pb2, dra_v1beta1_pb2
from liken_events.core.model.claims import ClaimReference
from liken_events.rpc import Unary
from liken_events.servers.dra import CALL_SECONDS, LATE, dra_services
from tests.fakes.claim_keeper import Keeper, granted

VERSIONS = {"v1": (0, dra_v1_pb2), "v1beta1": (1, dra_v1beta1_pb2)}


class Plugin:
    """The service in one version, without a socket."""

    def __init__(self, version: str) -> None:
        index, self._messages = VERSIONS[version]
        self.keeper = Keeper()
        service = dra_services(self.keeper)[index]
        self.name = service.name
        self.methods: dict[str, Unary[Any]] = {
            method.name: method for method in service.methods if isinstance(method, Unary)
        }

    async def prepare(self, *names: str) -> dict[str, Any]:
        return await self._call("NodePrepareResources", names)

    async def unprepare(self, *names: str) -> dict[str, Any]:
        return await self._call("NodeUnprepareResources", names)

    async def _call(self, method: str, names: tuple[str, ...]) -> dict[str, Any]:
        """Asks for claims by name, whose uid is `uid-<name>`."""
        request = self.methods[method].request(
            claims=[
                self._messages.Claim(namespace="default", name=name, uid=f"uid-{name}")
                for name in names
            ]
        )
        answer: Any = await self.methods[method].answer(request)
        # As the kubelet sees it.
        return dict(type(answer).FromString(answer.SerializeToString()).claims)


@pytest.fixture(params=list(VERSIONS))
def plugin(request: pytest.FixtureRequest) -> Plugin:
    return Plugin(request.param)


async def test_a_prepared_claim_names_its_devices(plugin: Plugin) -> None:
    answer = await plugin.prepare("camera")
    assert list(answer) == ["uid-camera"]
    (device,) = answer["uid-camera"].devices
    expected = granted(ClaimReference(namespace="default", name="camera", uid="uid-camera"))
    assert list(device.request_names) == [expected.request]
    assert device.pool_name == expected.pool
    assert device.device_name == expected.device
    assert list(device.cdi_device_ids) == [expected.cdi_id]
    assert answer["uid-camera"].error == ""


async def test_a_share_is_named_where_there_are_shares() -> None:
    v1, v1beta1 = Plugin("v1"), Plugin("v1beta1")
    (shared,) = (await v1.prepare("shared"))["uid-shared"].devices
    assert shared.share_id == "share-uid-shared"
    (whole,) = (await v1.prepare("camera"))["uid-camera"].devices
    assert not whole.HasField("share_id")
    (old,) = (await v1beta1.prepare("shared"))["uid-shared"].devices
    assert "share_id" not in old.DESCRIPTOR.fields_by_name
    assert old.device_name == shared.device_name


async def test_every_claim_has_an_answer_of_its_own(plugin: Plugin, logs: list[EventDict]) -> None:
    names = ["camera", "refused", "full", "disk"]
    for ask in (plugin.prepare, plugin.unprepare):
        answer = await ask(*names)
        assert sorted(answer) == sorted(f"uid-{name}" for name in names)
        assert {uid: entry.error for uid, entry in answer.items()} == {
            "uid-camera": "",
            "uid-disk": "",
            "uid-refused": "default/refused is not for us",
            "uid-full": "default/full: No space left on device",
        }
    failed = [line["claim"] for line in logs if line["event"] == "rpc.claim_failed"]
    assert failed == ["default/full"] * 2


async def test_no_claims_are_no_answers(plugin: Plugin) -> None:
    assert await plugin.prepare() == {}
    assert await plugin.unprepare() == {}


async def test_a_claim_that_is_named_twice_is_asked_for_once(plugin: Plugin) -> None:
    assert list(await plugin.prepare("camera", "camera")) == ["uid-camera"]
    assert plugin.keeper.prepared == {"uid-camera": 1}
    assert list(await plugin.unprepare("camera", "camera")) == ["uid-camera"]
    assert plugin.keeper.unprepared == {"uid-camera": 1}


async def test_claims_are_worked_on_at_the_same_time(plugin: Plugin, clock: MockClock) -> None:
    names = [f"slow-{number}" for number in range(20)]
    async with trio.open_nursery() as nursery:
        for ask in (plugin.prepare, plugin.unprepare):
            plugin.keeper.released = trio.Event()
            nursery.start_soon(ask, *names)
            await trio.testing.wait_all_tasks_blocked()
            assert len(plugin.keeper.running) == len(names)
            plugin.keeper.released.set()
            await trio.testing.wait_all_tasks_blocked()
            assert not plugin.keeper.running


async def test_what_is_not_done_in_time_is_an_error_and_is_cancelled(
    plugin: Plugin, clock: MockClock, logs: list[EventDict]
) -> None:
    for ask in (plugin.prepare, plugin.unprepare):
        began = trio.current_time()
        answer = await ask("slow-1", "camera", "slow-2")
        assert trio.current_time() - began == pytest.approx(CALL_SECONDS)
        assert answer["uid-slow-1"].error == answer["uid-slow-2"].error == LATE.reason
        assert answer["uid-camera"].error == ""
        assert sorted(plugin.keeper.cancelled) == ["uid-slow-1", "uid-slow-2"]
        plugin.keeper.cancelled.clear()
    late = [line["claims"] for line in logs if line["event"] == "rpc.call_late"]
    assert late == [["default/slow-1", "default/slow-2"]] * 2


async def test_a_bug_is_not_taken_for_an_answer(plugin: Plugin) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        await plugin.prepare("broken", "camera")
    assert caught.group_contains(KeyError)


async def test_the_services_are_called_what_the_kubelet_calls_them() -> None:
    assert [service.name for service in dra_services(Keeper())] == [
        "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
        "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin",
    ]


def field(number: int, value: bytes) -> bytes:
    """One field as it goes over the wire: its number, the type for text, a length."""
    return bytes((number << 3 | 2, len(value))) + value


@pytest.mark.parametrize("messages", [dra_v1_pb2, dra_v1beta1_pb2])
def test_messages_are_what_goes_over_the_wire(messages: ModuleType) -> None:
    wire = field(1, field(1, b"ns") + field(2, b"the-uid") + field(3, b"the-name"))
    for kind in (messages.NodePrepareResourcesRequest, messages.NodeUnprepareResourcesRequest):
        (claim,) = kind.FromString(wire).claims
        assert (claim.namespace, claim.uid, claim.name) == ("ns", "the-uid", "the-name")
    prepared = messages.NodePrepareResourcesResponse()
    prepared.claims["u"].devices.add(
        request_names=["r"], pool_name="p", device_name="d", cdi_device_ids=["c"]
    )
    device = field(1, b"r") + field(2, b"p") + field(3, b"d") + field(4, b"c")
    assert prepared.SerializeToString() == field(1, field(1, b"u") + field(2, field(1, device)))
    refused = messages.NodePrepareResourcesResponse()
    refused.claims["u"].error = "e"
    assert refused.SerializeToString() == field(1, field(1, b"u") + field(2, field(2, b"e")))
    ended = messages.NodeUnprepareResourcesResponse()
    ended.claims["u"].error = "e"
    assert ended.SerializeToString() == field(1, field(1, b"u") + field(2, field(1, b"e")))


def test_a_share_is_field_five_and_says_whether_it_is_there() -> None:
    assert dra_v1_pb2.Device(share_id="s").SerializeToString() == field(5, b"s")
    assert dra_v1_pb2.Device(share_id="").SerializeToString() == field(5, b"")
    assert dra_v1_pb2.Device().SerializeToString() == b""
