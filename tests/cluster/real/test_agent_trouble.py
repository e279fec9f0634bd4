"""The agent while the API server, its memory or its own credentials go away."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from liken_events.core.model.snapshot import Device
from tests.cluster.real.accounts import AgentPod
from tests.cluster.real.agents import Agent, generation, writes
from tests.cluster.real.client import Client, Refused
from tests.cluster.real.control_plane import ControlPlane
from tests.cluster.real.polling import poll
from tests.cluster.real.programs import Programs
from tests.fakes.agents import STICK, STICK_NAME, Build
from tests.fakes.devices import tty, usb
from tests.fakes.machines import machine

BACK_SECONDS = 30.0
"""How long an agent may take to be back. Its pauses double from 0.5 s (writes) and 0.8 s (watch)
on, so the last one is about as long as the outage: an API server's start, which takes 3 s on two
free cores."""

BELIEVED_SECONDS = 15.0
"""An API server believes a token for 10 s before it looks for its pod again
(`TokenSuccessCacheTTL`)."""

BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


def stick(number: int) -> Device:
    """One of many serial adapters."""
    return usb(
        f"1-{number}:1.0",
        "10c4:ea60",
        "ff0000",
        "cp210x",
        number + 1,
        nodes=[tty(f"ttyUSB{number}", number)],
    )


def name_of(number: int) -> str:
    return f"usb-1-{number}-1-0"


def comes_back(agent: Agent, client: Client) -> bool:
    """Deletes the slice and waits for it; whether it is what it was."""
    found = client.get(agent.path)
    client.delete(agent.path)
    back = client.until(agent.path, lambda it: it["metadata"]["uid"] != found["metadata"]["uid"])
    return bool(back["spec"]["devices"] == found["spec"]["devices"])


@pytest.mark.parametrize("end", ["stop_api_server", "kill_api_server"])
def test_only_the_newest_state_is_sent_after_an_outage(
    control_plane: ControlPlane, client: Client, build: Build, end: str
) -> None:
    name = f"away-{end.partition('_')[0]}"
    with Agent(control_plane, build(machine([stick(1), stick(2)])), name) as agent:
        agent.until_published()
        before = client.get(agent.path)
        getattr(control_plane, end)()
        agent.say(agent.tree.plug(stick(3)))
        agent.until_logged("slices.retrying")
        for number in (4, 5):
            agent.say(agent.tree.plug(stick(number)))
            agent.say(agent.tree.unplug(f"1-{number}"))
        agent.say(agent.tree.unplug("1-1"))
        agent.say(agent.tree.plug(stick(6)))
        agent.until_logged("watch.lost")
        control_plane.start_api_server()
        wanted = [name_of(number) for number in (2, 3, 6)]
        after = agent.until_offered(wanted, seconds=BACK_SECONDS)
        assert (writes(after), generation(after)) == (writes(before) + 1, generation(before) + 1)
        agent.until_logged("slices.recovered")
        agent.until_logged("watch.restored", seconds=BACK_SECONDS)
        assert comes_back(agent, client)
    client.delete(agent.path)


def test_a_watch_whose_past_is_forgotten_is_begun_anew(
    programs: Programs, control_plane: ControlPlane, client: Client, build: Build
) -> None:
    """The agent sleeps while its watch ends in order, its slice is changed, and etcd and the new
    API server know nothing of the version that it goes on from."""
    if programs.is_old:
        pytest.skip(f"the API server of {programs.version} answered no 410 here")
    with Agent(control_plane, build(machine([stick(1)])), "forgotten") as agent:
        agent.until_published()
        before = client.get(agent.path)
        agent.pause()
        client.patch(agent.path, {"spec": {"devices": []}})
        control_plane.compact()
        control_plane.restart_api_server()
        agent.resume()
        agent.until_offered([name_of(1)], seconds=BACK_SECONDS)
        agent.until_logged("watch.lost", reason="410")
        assert generation(client.get(agent.path)) == generation(before) + 1
        agent.until_logged("watch.restored", seconds=BACK_SECONDS)
        assert comes_back(agent, client)
    client.delete(agent.path)


@pytest.fixture
def pod(control_plane: ControlPlane, client: Client, tmp_path: Path) -> Iterator[AgentPod]:
    """A pod of an account that may do everything."""
    client.create(ACCOUNTS, {"metadata": {"name": "rotated"}})
    role = {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "cluster-admin",
    }
    subject = {"kind": "ServiceAccount", "name": "rotated", "namespace": "default"}
    body = {"metadata": {"name": "rotated"}, "roleRef": role, "subjects": [subject]}
    client.create(BINDINGS, body)
    directory = tmp_path / "account"
    directory.mkdir()
    with AgentPod(control_plane, str(directory), "rotated", "default", "rotated") as made:
        yield made
    client.delete(f"{BINDINGS}/rotated")
    client.delete(f"{ACCOUNTS}/rotated")


def until_refused(control_plane: ControlPlane, token: str) -> None:
    """Waits until nobody is let in with a token any more."""
    user = Client(control_plane.url, control_plane.credentials.certificate, token)

    def is_refused() -> bool:
        try:
            user.get("/api/v1/namespaces/default")
        except Refused as error:
            return error.status == 401
        return False

    assert poll(is_refused, BELIEVED_SECONDS)
    user.close()


def test_a_token_that_is_replaced_in_time_is_not_missed(
    control_plane: ControlPlane, client: Client, build: Build, pod: AgentPod
) -> None:
    tree = build(machine([stick(1)]))
    with Agent(control_plane, tree, "rotated", account=pod.directory) as agent:
        agent.until_published()
        old = pod.token
        pod.begin()
        pod.end(1)
        until_refused(control_plane, old)
        agent.say(agent.tree.plug(STICK))
        agent.until_offered([name_of(1), STICK_NAME])
        assert comes_back(agent, client)
        assert agent.troubles == []


def test_a_token_that_is_refused_is_waited_out(
    control_plane: ControlPlane, client: Client, build: Build, pod: AgentPod
) -> None:
    tree = build(machine([stick(1)]))
    with Agent(control_plane, tree, "rotated", account=pod.directory) as agent:
        agent.until_published()
        before = client.get(agent.path)
        pod.end(1)
        until_refused(control_plane, pod.token)
        agent.say(agent.tree.plug(STICK))
        agent.until_logged("slices.retrying", reason="our credentials are not accepted (401)")
        assert client.get(agent.path) == before
        pod.begin()
        agent.until_offered([name_of(1), STICK_NAME], seconds=BACK_SECONDS)
        agent.until_logged("slices.recovered")
        assert comes_back(agent, client)
