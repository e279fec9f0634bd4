"""The admission policy of `packaging/kustomize`, and whether its DaemonSet is admitted."""

from contextlib import closing

import pytest

from tests.cluster.real import manifests
from tests.cluster.real.access.conftest import ACCOUNT, NODE
from tests.cluster.real.accounts import FORCE_SECONDS, AgentPod, user_of
from tests.cluster.real.agents import SLICES, names
from tests.cluster.real.client import Client, Object, Refused
from tests.cluster.real.control_plane import ControlPlane
from tests.cluster.real.objects import resource_slice
from tests.cluster.real.polling import poll

POLICY = "liken-events-own-slices"

PODS = f"/api/v1/namespaces/{manifests.NAMESPACE}/pods"
NAMESPACE = f"/api/v1/namespaces/{manifests.NAMESPACE}"
LEVEL = "pod-security.kubernetes.io/enforce"


def check(refused: Refused, message: str) -> None:
    """The policy refused something, and said this."""
    where = f"ValidatingAdmissionPolicy '{POLICY}' with binding '{POLICY}'"
    assert refused.message.endswith(f" is forbidden: {where} denied request: {message}")
    assert (refused.status, refused.reason) == (422, "Invalid")


def test_a_slice_of_another_node_is_refused(mine: Client, client: Client) -> None:
    message = f"the agent on node '{NODE}' may not write a slice of node 'theirs'"
    path, body = f"{SLICES}/theirs", resource_slice("theirs", "liken.sh", "theirs", 1)
    with pytest.raises(Refused) as refused:
        mine.create(SLICES, body)
    check(refused.value, message)
    made = client.create(SLICES, body)  # others are not hindered
    changes: list[Object] = [{"spec": {"devices": []}}, {"metadata": {"labels": {"a": "b"}}}]
    for change in changes:
        with pytest.raises(Refused) as refused:
            mine.patch(path, change)
        check(refused.value, message)
    with pytest.raises(Refused) as refused:
        mine.delete(path)
    check(refused.value, message)
    assert client.get(path) == made
    assert names(client.patch(path, {"spec": {"devices": []}})) == []
    client.delete(path)
    assert client.find(path) is None


def test_a_slice_of_another_node_does_not_become_ours(mine: Client, client: Client) -> None:
    """The policy sees what it is to be; that a slice keeps its node is a rule of the API."""
    made = client.create(SLICES, resource_slice("moved", "liken.sh", "theirs", 1))
    with pytest.raises(Refused, match="field is immutable") as refused:
        mine.patch(f"{SLICES}/moved", {"spec": {"nodeName": NODE}})
    assert refused.value.status == 422
    assert client.get(f"{SLICES}/moved") == made
    client.delete(f"{SLICES}/moved")


def test_a_slice_of_this_node_is_written(mine: Client, client: Client) -> None:
    """Whatever its name is."""
    path = f"{SLICES}/ours"
    mine.create(SLICES, resource_slice("ours", "liken.sh", NODE, 1))
    assert names(mine.patch(path, {"spec": {"devices": []}})) == []
    mine.delete(path)
    assert client.find(path) is None


@pytest.mark.parametrize("kind", ["allNodes", "nodeSelector", "perDeviceNodeSelection"])
def test_a_slice_of_no_one_node_is_refused(mine: Client, kind: str) -> None:
    body = resource_slice("everywhere", "liken.sh", NODE, 1)
    del body["spec"]["nodeName"]
    here = {"key": "metadata.name", "operator": "In", "values": [NODE]}
    selector = {"nodeSelectorTerms": [{"matchFields": [here]}]}
    body["spec"][kind] = selector if kind == "nodeSelector" else True
    if kind == "perDeviceNodeSelection":
        body["spec"]["devices"][0]["nodeName"] = NODE
    with pytest.raises(Refused) as refused:
        mine.create(SLICES, body)
    check(refused.value, f"the agent on node '{NODE}' may not write a slice of node ''")


def test_a_slice_of_another_driver_is_refused(mine: Client, client: Client) -> None:
    body = resource_slice("gpu", "gpu.example", NODE, 1)
    with pytest.raises(Refused) as refused:
        mine.create(SLICES, body)
    check(refused.value, "the agent may not write a slice of driver 'gpu.example'")
    client.create(SLICES, body)
    client.delete(f"{SLICES}/gpu")


def test_a_slice_of_another_nodes_pool_is_refused_and_can_be_removed(
    mine: Client, client: Client
) -> None:
    body = resource_slice("pool", "liken.sh", NODE, 1)
    body["spec"]["pool"] |= {"name": "theirs", "generation": 99}
    with pytest.raises(Refused) as refused:
        mine.create(SLICES, body)
    check(refused.value, f"the agent on node '{NODE}' may not write a slice of pool 'theirs'")
    client.create(SLICES, body)
    mine.delete(f"{SLICES}/pool")
    assert client.find(f"{SLICES}/pool") is None


def test_a_token_of_no_pod_writes_nothing(
    pod: AgentPod, control_plane: ControlPlane, client: Client
) -> None:
    token = client.account_token(manifests.NAMESPACE, ACCOUNT)
    with closing(user_of(control_plane, token)) as user, pytest.raises(Refused) as refused:
        user.create(SLICES, resource_slice("of-no-pod", "liken.sh", NODE, 1))
    check(
        refused.value,
        "the token does not say on which node its pod runs (it must be a pod's own token)",
    )


def test_a_pod_of_the_daemon_set_is_admitted(pod: AgentPod, client: Client) -> None:
    """No field is unknown; and it is the namespace's label that lets the pod in."""
    (made,) = manifests.apply(client, "daemonset.yaml", dryRun="All")
    template = made["spec"]["template"]
    body = {"metadata": {**template["metadata"], "name": "one"}, "spec": template["spec"]}

    def create() -> Object:
        admitted: Object = client.request("POST", PODS, body, query={"dryRun": "All"})
        return admitted

    def is_refused() -> bool:
        try:
            create()
        except Refused as error:
            return 'violates PodSecurity "baseline:latest"' in error.message
        return False

    assert create()["spec"]["serviceAccountName"] == ACCOUNT
    client.patch(NAMESPACE, {"metadata": {"labels": {LEVEL: "baseline"}}})
    try:
        assert poll(is_refused, FORCE_SECONDS)
    finally:
        client.patch(NAMESPACE, {"metadata": {"labels": {LEVEL: "privileged"}}})
    assert poll(lambda: not is_refused(), FORCE_SECONDS)
