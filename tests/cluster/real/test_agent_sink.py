"""The sink of slices against a real API server, with what no machine offers or no timing brings
about."""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import trio
from structlog.typing import EventDict

from liken_events.cluster import Conflict, SliceView
from liken_events.cluster.kubernetes import KubernetesCluster
from liken_events.cluster.kubernetes_access import Client as Access
from liken_events.cluster.kubernetes_access import Kubeconfig
from liken_events.cluster.kubernetes_answer import Answer
from liken_events.converge import converge
from liken_events.core.backoff import SOON
from liken_events.core.model.device import Attribute, Inventory, PublishedDevice
from liken_events.core.model.snapshot import Key
from liken_events.core.plan.slices import CreateSlice, DeleteSlice, PatchSlice, plan
from liken_events.latest import Latest
from liken_events.sinks.slices import SliceSink, plan_slices
from tests.cluster.real.agents import SLICES, generation, names, writes
from tests.cluster.real.client import Client, Object, Refused
from tests.cluster.real.control_plane import ControlPlane
from tests.cluster.real.objects import resource_slice
from tests.cluster.real.polling import poll
from tests.cluster.real.programs import Programs
from tests.fakes.waiting import until

LONG = "x" * 65
"""One byte more than an attribute may have; the agent cuts what it reads from hardware."""

ADMISSION = "/apis/admissionregistration.k8s.io/v1"

POLICY_SECONDS = 30.0
"""Bound for a policy to hold: the API server compiles those that it watches now and then."""

PATIENCE_SECONDS = 3 * SOON.ceiling
"""Bound for a few tries of a sink that was told to be patient."""


def device(name: str, **attributes: Attribute) -> PublishedDevice:
    return PublishedDevice(
        name=name,
        key=Key(bus="usb", address=name),
        nodes=(),
        attributes=tuple(sorted(attributes.items())),
    )


class Bench:
    """A sink of one node.

    Attributes:
        cluster, view, sink: its own.
        path: of the slice, in the API.
    """

    def __init__(self, control_plane: ControlPlane, node: str) -> None:
        path = control_plane.credentials.kubeconfig(f"sink-{node}", control_plane.url)
        self.cluster = KubernetesCluster(Kubeconfig(path=path))
        self.view = SliceView()
        self.sink = SliceSink(self.cluster, self.view, node)
        self.path = f"{SLICES}/{node}-liken.sh"
        self._node = node
        self._inventories: Latest[Inventory] = Latest()

    def offer(self, *devices: PublishedDevice) -> None:
        """Has this wanted from now on."""
        self._inventories.set(Inventory(offered=devices))

    async def watch(self, *, task_status: trio.TaskStatus[None]) -> None:
        await self.cluster.watch_slices(self._node, self.view, task_status=task_status)

    async def converge(self) -> None:
        await converge(self.sink, plan_slices, self._inventories)


@asynccontextmanager
async def running(bench: Bench, *, watch: bool = True) -> AsyncIterator[trio.Nursery]:
    """Runs the sink, and what it sees the slices by; or lets it believe that there are none."""
    async with trio.open_nursery() as nursery:
        if watch:
            await nursery.start(bench.watch)
        else:
            bench.view.replace([])
        nursery.start_soon(bench.converge)
        yield nursery
        nursery.cancel_scope.cancel()
    bench.cluster.close()


async def until_kept(client: Client, bench: Bench, *devices: str, seconds: float = 10.0) -> Object:
    """Waits until the slice has just these devices; returns it."""
    found: Object = {}

    def is_so() -> bool:
        nonlocal found
        found = client.find(bench.path) or {}
        return bool(found) and names(found) == list(devices)

    await until(is_so, seconds=seconds)
    return found


def reasons(logs: list[EventDict]) -> list[str]:
    """Why the sink tried again."""
    return [line["reason"] for line in logs if line["event"] == "slices.retrying"]


def deny_slices_of(client: Client, node: str, reason: str) -> tuple[str, str]:
    """Makes a policy by which nobody may write this node's slices, and waits until it holds.
    Returns the paths of the policy and of its binding."""
    client.create(
        f"{ADMISSION}/validatingadmissionpolicies",
        {
            "metadata": {"name": node},
            "spec": {
                "matchConstraints": {
                    "resourceRules": [
                        {
                            "apiGroups": ["resource.k8s.io"],
                            "apiVersions": ["*"],
                            "operations": ["CREATE", "UPDATE"],
                            "resources": ["resourceslices"],
                        }
                    ]
                },
                "validations": [
                    {
                        "expression": f"object.spec.nodeName != '{node}'",
                        "message": "not here",
                        "reason": reason,
                    }
                ],
            },
        },
    )
    client.create(
        f"{ADMISSION}/validatingadmissionpolicybindings",
        {"metadata": {"name": node}, "spec": {"policyName": node, "validationActions": ["Deny"]}},
    )

    def holds() -> bool:
        try:
            client.create(SLICES, resource_slice(f"{node}-probe", "liken.sh", node, 0))
        except Refused:
            return True
        client.delete(f"{SLICES}/{node}-probe")
        return False

    assert poll(holds, POLICY_SECONDS)
    return (
        f"{ADMISSION}/validatingadmissionpolicies/{node}",
        f"{ADMISSION}/validatingadmissionpolicybindings/{node}",
    )


def left_out(logs: list[EventDict]) -> list[tuple[str, str]]:
    """Devices and attributes that the API server refused."""
    return [
        (line["device"], line["attribute"])
        for line in logs
        if line["event"] == "slice.refused_device"
    ]


async def test_a_slice_that_somebody_changed_in_between_is_looked_at_again(
    control_plane: ControlPlane, client: Client, logs: list[EventDict]
) -> None:
    """Nothing watches at first, or the sink would know of the change."""
    bench = Bench(control_plane, "raced")
    async with running(bench, watch=False) as nursery:
        bench.offer(device("a"))
        await until_kept(client, bench, "a")
        theirs = client.patch(bench.path, {"spec": {"devices": [{"name": "a"}, {"name": "x"}]}})
        bench.offer(device("a"), device("b"))
        await until(lambda: reasons(logs))
        assert reasons(logs)[0].startswith("cannot patch resourceslices (409): ")
        assert client.get(bench.path) == theirs
        await nursery.start(bench.watch)
        ours = await until_kept(client, bench, "a", "b")
        assert (writes(ours), generation(ours)) == (writes(theirs) + 1, generation(theirs) + 1)
    client.delete(bench.path)


async def test_a_write_during_a_list_costs_no_conflict(
    control_plane: ControlPlane,
    client: Client,
    logs: list[EventDict],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The list is read by the server before the write, and known to the sink after it."""
    bench = Bench(control_plane, "listed")
    read, released = threading.Event(), threading.Event()
    call = Access.call

    def late(self: Access, method: str, path: str, **more: Any) -> Answer:
        answer = call(self, method, path, **more)
        if method == "GET" and path == SLICES:
            read.set()
            released.wait()
        return answer

    async with running(bench):
        bench.offer(device("a"))
        await until_kept(client, bench, "a")
        await until(lambda: bench.view.latest.get())
        monkeypatch.setattr(Access, "call", late)
        bench.view.doubt()
        await until(read.is_set)
        bench.offer(device("a"), device("b"))
        first = await until_kept(client, bench, "a", "b")
        number = bench.view.latest.number
        released.set()
        await bench.view.latest.wait_newer(number)
        bench.offer(device("a"), device("b"), device("c"))
        second = await until_kept(client, bench, "a", "b", "c")
        assert writes(second) == writes(first) + 1
        assert reasons(logs) == []
    client.delete(bench.path)


async def test_what_is_not_as_it_was_thought_to_be_is_a_conflict(
    control_plane: ControlPlane, client: Client
) -> None:
    bench = Bench(control_plane, "stale")
    bench.view.replace([])
    [create] = plan(await bench.sink.observe(), [device("a")])
    assert isinstance(create, CreateSlice)
    first = await bench.cluster.create_slice(create)
    with pytest.raises(Conflict, match=r"create resourceslices \(409\): .* already exists"):
        await bench.cluster.create_slice(create)

    bench.view.put(first.body)
    [patch] = plan(await bench.sink.observe(), [device("b")])
    assert isinstance(patch, PatchSlice)
    second = await bench.cluster.patch_slice(patch)
    with pytest.raises(Conflict, match=r"patch resourceslices \(409\): .* has been modified"):
        await bench.cluster.patch_slice(patch)

    delete = DeleteSlice(name=first.name, uid=first.uid, version=first.version)
    with pytest.raises(Conflict, match=r"delete resourceslices \(409\): .* ResourceVersion"):
        await bench.cluster.delete_slice(delete)
    delete = replace(delete, version=second.version)
    with pytest.raises(Conflict, match=r"delete resourceslices \(409\): .* UID"):
        await bench.cluster.delete_slice(
            replace(delete, uid="00000000-0000-4000-8000-000000000000")
        )
    assert names(client.get(bench.path)) == ["b"]
    await bench.cluster.delete_slice(delete)
    assert client.find(bench.path) is None
    await bench.cluster.delete_slice(delete)  # it is gone: nothing to complain of
    with pytest.raises(Conflict, match=r"patch resourceslices \(404\): .* not found"):
        await bench.cluster.patch_slice(patch)
    bench.cluster.close()


async def test_one_refused_attribute_is_left_out(
    control_plane: ControlPlane, client: Client, logs: list[EventDict]
) -> None:
    bench = Bench(control_plane, "odd")
    first = [device("a", serial="1"), device("b", bus="usb", serial=LONG), device("c", serial="3")]
    later = [device("bb", serial=LONG, shown=True), device("d", serial="4")]
    async with running(bench):
        bench.offer(*first)
        made = await until_kept(client, bench, "a", "b", "c")
        assert [each["attributes"] for each in made["spec"]["devices"]] == [
            {"serial": {"string": "1"}},
            {"bus": {"string": "usb"}},
            {"serial": {"string": "3"}},
        ]
        assert left_out(logs) == [("b", "serial")]
        bench.offer(*sorted([*first, *later], key=lambda each: each.name))
        patched = await until_kept(client, bench, "a", "b", "bb", "c", "d")
        assert patched["spec"]["devices"][2]["attributes"] == {"shown": {"bool": True}}
        assert writes(patched) == writes(made) + 1
        assert left_out(logs) == [("b", "serial"), ("bb", "serial")]
        assert ["Too long" in reason for reason in reasons(logs)] == [True, True]
    client.delete(bench.path)


@pytest.fixture
def is_nameless(programs: Programs) -> None:
    """Skips where the next test's refusal is told otherwise. A fixture: the reason of a skip
    inside an asynchronous test is lost."""
    if programs.is_old:
        pytest.skip(f"the API server of {programs.version} names the attribute")


@pytest.mark.usefixtures("is_nameless")
async def test_an_attribute_whose_name_is_refused_is_left_out(
    control_plane: ControlPlane, client: Client, logs: list[EventDict]
) -> None:
    """The API server names no attribute then; of a name that is too long it tells nothing."""
    bench = Bench(control_plane, "named")
    bad = {"liken.sh/bad-name": "x", "b_d/name": "y", "serial": "1"}
    async with running(bench):
        bench.offer(device("a", **bad), device("b", **bad), device("c", **{"x" * 33: True}))
        made = await until_kept(client, bench, "a", "b")
        for each in made["spec"]["devices"]:
            assert each["attributes"] == {"serial": {"string": "1"}}
        names = ["b_d/name", "liken.sh/bad-name"]
        assert sorted(left_out(logs)) == [(at, name) for at in "ab" for name in names] + [
            ("c", "")
        ]
        assert len(reasons(logs)) == 1
    client.delete(bench.path)


@pytest.mark.parametrize(("reason", "code"), [("Forbidden", 403), ("Invalid", 422)])
async def test_a_policys_denial_is_told_in_its_own_words_and_waited_out(
    control_plane: ControlPlane, client: Client, logs: list[EventDict], reason: str, code: int
) -> None:
    node = f"denied-{code}"
    bench = Bench(control_plane, node)
    policy, binding = deny_slices_of(client, node, reason)
    async with running(bench):
        bench.offer(device("a"))
        await until(lambda: len(reasons(logs)) >= 2, seconds=PATIENCE_SECONDS)
        words = f"Policy '{node}' with binding '{node}' denied request: not here"
        assert all(words in each for each in reasons(logs))
        assert not any("RBAC" in each for each in reasons(logs))
        assert left_out(logs) == []
        client.delete(binding)
        await until_kept(client, bench, "a", seconds=POLICY_SECONDS + PATIENCE_SECONDS)
    delays = [line["delay_seconds"] for line in logs if line["event"] == "slices.retrying"]
    assert delays[1] > delays[0]
    client.delete(policy)
    client.delete(bench.path)


async def test_one_refused_device_is_left_out(
    control_plane: ControlPlane, client: Client, logs: list[EventDict]
) -> None:
    bench = Bench(control_plane, "refused")
    crowded = device("crowded", **{f"a{number}": True for number in range(33)})
    async with running(bench):
        bench.offer(device("Upper"), device("a"), crowded, device("d"))
        made = await until_kept(client, bench, "a", "d")
        assert sorted(left_out(logs)) == [("Upper", ""), ("crowded", "")]
        assert writes(made) == 1
    client.delete(bench.path)


async def test_a_device_for_several_claims_is_kept_as_one(
    control_plane: ControlPlane, client: Client, logs: list[EventDict]
) -> None:
    bench = Bench(control_plane, "shared")
    async with running(bench):
        bench.offer(replace(device("a"), shareable=True), device("b"))
        made = await until_kept(client, bench, "a", "b")
        assert made["spec"]["devices"] == [
            {"name": "a", "allowMultipleAllocations": True},
            {"name": "b"},
        ]
    assert "slice.field_dropped" not in [line["event"] for line in logs]
    client.delete(bench.path)
