"""What the role of `packaging/kustomize` allows: all that an agent does, and nothing more."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
import trio

from liken_events.cluster import Unavailable
from liken_events.cluster.kubernetes import KubernetesCluster
from liken_events.core.model.claims import ClaimReference
from tests.cluster.real.access.conftest import ACCOUNT, NODE, Run
from tests.cluster.real.accounts import FORCE_SECONDS, AgentPod
from tests.cluster.real.agents import NODES
from tests.cluster.real.client import RESOURCE, Client
from tests.cluster.real.manifests import NAMESPACE
from tests.cluster.real.objects import COLLECTIONS, claim
from tests.cluster.real.polling import poll
from tests.fakes.agents import STICK, STICK_NAME, Build
from tests.fakes.devices import tty, usb
from tests.fakes.machines import empty_vm, machine

OTHER = usb("1-2:1.0", "10c4:ea60", "ff0000", "cp210x", 3, serial="Z2", nodes=[tty("ttyUSB1", 1)])
OTHER_NAME = "usb-1-2-1-0"

ROLE = f"{COLLECTIONS['ClusterRole']}/liken-events"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
CLAIMS = f"{RESOURCE}/namespaces/default/resourceclaims"

RIGHTS = {
    *(("resourceslices", verb) for verb in ("list", "watch", "create", "patch", "delete")),
    ("resourceclaims", "get"),
    ("nodes", "get"),
}
"""Each is taken away by one of the tests here."""


def is_allowed(client: Client, resource: str, verb: str) -> bool:
    """What the authorizers say of the account."""
    group = "" if resource == "nodes" else "resource.k8s.io"
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}",
            "resourceAttributes": {"group": group, "resource": resource, "verb": verb},
        },
    }
    allowed: bool = client.create(REVIEWS, review)["status"]["allowed"]
    return allowed


@contextmanager
def without(client: Client, resource: str, verb: str) -> Iterator[None]:
    """The account lacks one right meanwhile."""
    whole = client.get(ROLE)["rules"]
    less = [
        rule
        if rule["resources"] != [resource]
        else {**rule, "verbs": [each for each in rule["verbs"] if each != verb]}
        for rule in whole
    ]
    client.patch(ROLE, {"rules": [rule for rule in less if rule["verbs"]]})
    try:
        assert poll(lambda: not is_allowed(client, resource, verb), FORCE_SECONDS)
        yield
    finally:
        client.patch(ROLE, {"rules": whole})
        assert poll(lambda: is_allowed(client, resource, verb), FORCE_SECONDS)


def refusal(verb: str, resource: str = "resourceslices") -> str:
    return f"not allowed to {verb} {resource} (RBAC: verb {verb}, resource {resource})"


def test_the_role_has_the_rights_that_are_tested_and_no_more(
    pod: AgentPod, client: Client
) -> None:
    rules = client.get(ROLE)["rules"]
    assert all(len(rule["resources"]) == len(rule["apiGroups"]) == 1 for rule in rules)
    assert {(rule["resources"][0], verb) for rule in rules for verb in rule["verbs"]} == RIGHTS
    assert not is_allowed(client, "resourceslices", "update")


def test_the_life_of_a_slice_needs_no_other_right(
    client: Client, build: Build, run_agent: Run
) -> None:
    with run_agent(build(empty_vm())) as agent:
        agent.until_published()
        agent.say(agent.tree.plug(STICK))
        made = agent.until_offered([STICK_NAME])
        owner = client.get(f"{NODES}/{NODE}")["metadata"]["uid"]
        assert [each["uid"] for each in made["metadata"]["ownerReferences"]] == [owner]
        agent.say(agent.tree.plug(OTHER))
        agent.until_offered([STICK_NAME, OTHER_NAME])
        client.delete(agent.path)
        agent.until_offered([STICK_NAME, OTHER_NAME])
        agent.say(agent.tree.unplug("1-9"))
        agent.say(agent.tree.unplug("1-2"))
        agent.until_logged("slice.deleted")
        assert client.find(agent.path) is None
        assert agent.troubles == []


def test_without_list_nothing_is_published(client: Client, build: Build, run_agent: Run) -> None:
    with ExitStack() as taken:
        taken.enter_context(without(client, "resourceslices", "list"))
        with run_agent(build(machine([STICK]))) as agent:
            agent.until_logged("watch.lost", reason=refusal("list"))
            assert client.find(agent.path) is None
            taken.close()
            agent.until_offered([STICK_NAME])


def test_without_watch_what_others_do_is_seen_by_lists(
    client: Client, build: Build, run_agent: Run
) -> None:
    with without(client, "resourceslices", "watch"), run_agent(build(machine([STICK]))) as agent:
        agent.until_logged("watch.lost", reason=refusal("watch"))
        agent.until_offered([STICK_NAME])
        client.delete(agent.path)
        agent.until_offered([STICK_NAME])
        assert agent.logged("watch.restored") == []


@pytest.mark.parametrize("verb", ["create", "patch", "delete"])
def test_without_a_right_to_write_the_slice_stays_as_it_is(
    client: Client, build: Build, run_agent: Run, verb: str
) -> None:
    """And follows when the right is granted."""
    with run_agent(build(machine([] if verb == "create" else [STICK]))) as agent:
        agent.until_published()
        there = client.find(agent.path)
        with without(client, "resourceslices", verb):
            tree = agent.tree
            agent.say(tree.unplug("1-9") if verb == "delete" else tree.plug(OTHER))
            agent.until_logged("slices.retrying", reason=refusal(verb))
            assert client.find(agent.path) == there
        agent.until_logged("slices.recovered")
        wanted = {"create": {OTHER_NAME}, "patch": {STICK_NAME, OTHER_NAME}, "delete": set()}
        assert agent.offered == wanted[verb]


def test_without_get_of_nodes_the_slice_has_no_owner(
    client: Client, build: Build, run_agent: Run
) -> None:
    with without(client, "nodes", "get"), run_agent(build(machine([STICK]))) as agent:
        agent.until_published()
        assert "ownerReferences" not in client.get(agent.path)["metadata"]
        assert agent.logged("slice.no_owner", reason=refusal("get", "nodes"))


async def test_without_get_of_claims_none_is_read(pod: AgentPod, client: Client) -> None:
    made = client.create(CLAIMS, claim("read", "any"))
    reference = ClaimReference(namespace="default", name="read", uid=made["metadata"]["uid"])
    cluster = KubernetesCluster(pod.access)
    with trio.fail_after(30):
        body = await cluster.read_claim(reference)
        assert body is not None
        assert body["metadata"] == made["metadata"]
        with without(client, "resourceclaims", "get"):
            with pytest.raises(Unavailable) as refused:
                await cluster.read_claim(reference)
            assert refused.value.reason.startswith(refusal("get", "resourceclaims"))
    cluster.close()
    client.delete(f"{CLAIMS}/read")
