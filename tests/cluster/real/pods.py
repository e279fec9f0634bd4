"""Pods of one namespace on a node: what they were given, what they say, how they fare."""

import json
import re
from collections.abc import Callable, Mapping, Sequence

import pytest

from tests.cluster.real.client import RESOURCE, Client, Object
from tests.cluster.real.documented import apply, here
from tests.cluster.real.images import BUSYBOX
from tests.cluster.real.kubelet_node import KubeletNode
from tests.cluster.real.polling import poll

RUN_SECONDS = 40.0
"""Bound for a pod to run. On two free cores it takes 1 s; one that failed is tried again after
10 s (`syncFrequency`)."""

END_SECONDS = 40.0

CDI = "/run/cdi"
"""Where a node's CDI specs are."""

HAVE = """\
for node in $(find /dev -type c ! -path '/dev/pts/*'); do stat -c 'has %n %t:%T' $node; done
"""
"""A shell script that says which devices a container has, with numbers in hex."""

SAY = f"""\
{HAVE}\
for node in /dev/ttyUSB*; do
    test ! -e $node || echo "read $node $(head -c 4 $node | wc -c)"
done
echo that is all
"""
"""The same, and reads from the container's serial adapters."""

SPEC_SECONDS = 10.0
"""Bound for a spec to follow the machine. On two free cores it takes 0.5 s for a device that came,
which has to settle."""

SAID_SECONDS = 10.0
"""Bound for that, once the container runs."""

SLEEP = f"{SAY}trap exit TERM; sleep 100000 & wait"
"""The same, and sleeps until it is to end."""

READ = """\
trap exit TERM
while head -c 4 /dev/ttyUSB9 > /dev/null; do echo could; sleep 0.2; done
echo could not
"""
"""A script that reads from the stick for as long as it can."""

STANDARD = frozenset(
    f"/dev/{name}" for name in ("full", "null", "random", "tty", "urandom", "zero")
)
"""Devices of every container (OCI runtime specification, `config-linux.md`)."""

Nodes = Mapping[str, tuple[int, int] | None]
"""Device nodes of a spec: path to numbers, or to None where it has none."""


NOT_YET_ITS_OWN = "no relationship found between node"
"""What the API server's node authorizer says to a kubelet about a claim of a pod that it does not
know to be on that node yet."""


class Pods:
    """The pods.

    Args:
        client: with all rights.
        node: where they run; its slowness lengthens all bounds.
        namespace: theirs; it must exist.

    Attributes:
        namespace: see there.
    """

    def __init__(self, client: Client, node: KubeletNode, namespace: str) -> None:
        self.namespace = namespace
        self._client = client
        self._node = node
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._claims = f"{RESOURCE}/namespaces/{namespace}/resourceclaims"

    def apply(self, *bodies: Object) -> None:
        """Creates objects, in the namespace if they are to be in any."""
        for body in bodies:
            apply(self._client, body, self.namespace)

    def create(
        self,
        name: str,
        *classes: str,
        script: str = SLEEP,
        seen: Sequence[str] = (),
        capabilities: Sequence[str] = (),
    ) -> None:
        """Creates a pod with a claim for a device of each class; both have the class's name, the
        claim's after that of the pod.

        Args:
            name: of the pod.
            classes: see above.
            script: what its shell runs.
            seen: directories of the node that it sees, under the same paths.
            capabilities: that it has beside the usual ones.
        """
        for of_class in classes:
            request = {"name": "device", "exactly": {"deviceClassName": of_class}}
            self.apply(
                {
                    "apiVersion": "resource.k8s.io/v1",
                    "kind": "ResourceClaim",
                    "metadata": {"name": f"{name}-{of_class}"},
                    "spec": {"devices": {"requests": [request]}},
                }
            )
        container = {
            "name": "main",
            "image": BUSYBOX,
            "imagePullPolicy": "Never",
            "command": ["sh", "-c", script],
            "resources": {"claims": [{"name": of_class} for of_class in classes]},
            "securityContext": {"capabilities": {"add": list(capabilities)}},
            "volumeMounts": [
                {"name": f"seen-{number}", "mountPath": path, "readOnly": True}
                for number, path in enumerate(seen)
            ],
        }
        claims = [
            {"name": of_class, "resourceClaimName": f"{name}-{of_class}"} for of_class in classes
        ]
        volumes = [
            {"name": f"seen-{number}", "hostPath": {"path": path}}
            for number, path in enumerate(seen)
        ]
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name},
                "spec": {
                    **here(self._node.name),
                    "resourceClaims": claims,
                    "volumes": volumes,
                    "containers": [container],
                },
            }
        )

    def until(self, name: str, condition: Callable[[Object], object]) -> Object:
        """Waits until a condition holds for a pod; returns it."""
        return self._client.until(
            f"{self._pods}/{name}", condition, seconds=self._bound(RUN_SECONDS)
        )

    def until_running(self, name: str, *, restarts: int = 0) -> Object:
        """Waits until a pod's container runs that was started again so often; returns the pod."""

        def runs(pod: Object) -> bool:
            status = container_status(pod)
            return status.get("restartCount") == restarts and "running" in status["state"]

        return self.until(name, runs)

    def until_health(self, name: str, health: str, message: str = "") -> None:
        """Waits until all devices of a pod's claims fare like this, and the status has a text in
        what it says about each. On an old release the test ends here, as skipped."""
        if not self._node.shows_health:
            pytest.skip("the statuses of this release's pods do not say how devices fare")

        def is_so(pod: Object) -> bool:
            found = health_of(pod)
            return bool(found) and all(
                item["health"] == health and message in item.get("message", "") for item in found
            )

        self.until(name, is_so)

    def until_waiting(self, name: str, reason: str) -> str:
        """Waits until a pod's container is not started for a reason; returns the message."""

        def waits(pod: Object) -> bool:
            waiting = container_status(pod).get("state", {}).get("waiting", {})
            return bool(waiting.get("reason") == reason)

        message: str = container_status(self.until(name, waits))["state"]["waiting"]["message"]
        return message

    def until_unschedulable(self, name: str) -> None:
        """Waits until the scheduler has found no node for a pod."""

        def is_so(pod: Object) -> bool:
            found = pod["status"].get("conditions", [])
            return ("PodScheduled", "Unschedulable") in [
                (each["type"], each.get("reason")) for each in found
            ]

        self.until(name, is_so)

    def begin_deletion(self, name: str) -> None:
        """Has a pod end."""
        self._client.delete(f"{self._pods}/{name}")

    def until_ended(self, name: str) -> None:
        """Waits until a pod's container has ended, and the pod is there still."""
        self.until(name, lambda pod: "terminated" in container_status(pod)["state"])

    def until_gone(self, name: str) -> None:
        """Waits until there is no such pod."""
        self._client.until_gone(f"{self._pods}/{name}", seconds=self._bound(END_SECONDS))

    def delete(self, name: str) -> None:
        """Deletes a pod and waits until it is gone."""
        self.begin_deletion(name)
        self.until_gone(name)

    def delete_all(self) -> None:
        """Deletes all pods, waits until they are gone, and then deletes all claims."""
        self._client.delete(self._pods)
        seconds = self._bound(END_SECONDS)
        assert poll(lambda: not self._client.items(self._pods), seconds), self._client.items(
            self._pods
        )
        self._client.delete(self._claims)

    def claim(self, name: str, entry: str) -> Object:
        """The claim behind an entry of a pod's `resourceClaims`."""
        pod = self._client.get(f"{self._pods}/{name}")
        for item in pod["status"].get("resourceClaimStatuses", []):
            if item["name"] == entry:
                return self._client.get(f"{self._claims}/{item['resourceClaimName']}")
        return self._client.get(f"{self._claims}/{name}-{entry}")

    def said(self, name: str, container: str = "main") -> list[str]:
        """The lines that the newest run of a pod's container printed so far."""
        return self._node.pod_log(self.namespace, name, container).splitlines()

    def until_said(
        self, name: str, text: str, *, container: str = "main", seconds: float = SAID_SECONDS
    ) -> list[str]:
        """Waits until a pod's container printed a line with a text; returns all lines.

        Args:
            name: of the pod.
            text: see above.
            container: the container's name.
            seconds: bound, on this machine.
        """

        def is_there() -> bool:
            return any(text in line for line in self.said(name, container))

        assert poll(is_there, self._bound(seconds)), self.said(name, container)
        return self.said(name, container)

    def until_said_more(self, name: str) -> None:
        """Waits until a pod's container has printed another line."""
        before = len(self.said(name))
        seconds = self._bound(SAID_SECONDS)
        assert poll(lambda: len(self.said(name)) > before, seconds), self.said(name)

    def until_devices(self, name: str, container: str = "main") -> dict[str, tuple[int, int]]:
        """Waits until a container said which device nodes it has; returns those that not every one
        has: path to numbers."""
        found = {}
        for line in self.until_said(name, "that is all", container=container):
            if line.startswith("has "):
                _, path, numbers = line.split()
                major, _, minor = numbers.partition(":")
                found[path] = int(major, 16), int(minor, 16)
        return {path: number for path, number in found.items() if path not in STANDARD}

    def kill(self, name: str) -> None:
        """Ends the processes of a pod's container as a crash does."""
        pod = self._client.get(f"{self._pods}/{name}")
        container = container_status(pod)["containerID"].rpartition("/")[2]
        assert re.fullmatch("[0-9a-f]{64}", container), "it would be in others' paths too"
        self._node.place.kill_all(container)

    def failures(self) -> list[str]:
        """What the kubelet said of claims that it could not prepare. It reads a claim itself
        before it asks a driver, and the API server may not have put the two together yet."""
        events = self._client.items(f"/api/v1/namespaces/{self.namespace}/events")
        return [
            event["message"]
            for event in events
            if event["reason"] == "FailedPrepareDynamicResources"
            and NOT_YET_ITS_OWN not in event["message"]
        ]

    def spec_path(self, claim: Object) -> str:
        """Where a claim's CDI spec is on the node."""
        return f"{CDI}/liken.sh-{claim['metadata']['uid']}.json"

    def spec(self, claim: Object) -> Nodes:
        """The nodes in a claim's CDI spec: path to numbers, or to None if it says none; empty if
        there is no spec."""
        try:
            devices = json.loads(self._node.place.read(self.spec_path(claim)))["devices"]
        except FileNotFoundError:
            return {}
        nodes = [node for item in devices for node in item["containerEdits"]["deviceNodes"]]
        return {
            node["path"]: (node["major"], node["minor"]) if "major" in node else None
            for node in nodes
        }

    def until_spec(self, claim: Object, nodes: Nodes) -> None:
        """Waits until a claim's spec says these nodes."""
        seconds = self._bound(SPEC_SECONDS)
        assert poll(lambda: self.spec(claim) == nodes, seconds), self.spec(claim)

    def specs(self) -> list[str]:
        """The names of all specs on the node."""
        return self._node.place.names(CDI)

    def _bound(self, seconds: float) -> float:
        return seconds * self._node.slowness


def container_status(pod: Object) -> Object:
    """The status of a pod's one container; empty before there is any."""
    found: list[Object] = pod["status"].get("containerStatuses", [])
    return found[0] if found else {}


def life(pod: Object) -> tuple[str, int]:
    """What changes if a pod's container is another, or was started again."""
    status = container_status(pod)
    return status["containerID"], status["restartCount"]


def health_of(pod: Object) -> list[Object]:
    """How the devices fare that a pod's container has from claims."""
    return [
        resource
        for item in container_status(pod).get("allocatedResourcesStatus", [])
        if item["name"].startswith("claim:")
        for resource in item["resources"]
    ]


def allocated(claim: Object) -> list[str]:
    """The names of the devices that a claim got."""
    results = claim["status"]["allocation"]["devices"]["results"]
    return [item["device"] for item in results]
