"""The YAML of the documents, as objects: what a reader would apply is what is tested."""

import json
import re

import yaml

from tests.cluster.real.agents import ROOT
from tests.cluster.real.client import Client, Object
from tests.cluster.real.images import BUSYBOX
from tests.cluster.real.objects import collection

BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Documented:
    """The objects of `docs/kubernetes.md`, each under its kind and name."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str], str] = {}
        with open(f"{ROOT}/docs/kubernetes.md", encoding="utf-8") as file:
            for block in BLOCK.findall(file.read()):
                for body in yaml.safe_load_all(block):
                    key = body["kind"], body["metadata"]["name"]
                    assert key not in self._objects, f"{key} is in the document twice"
                    self._objects[key] = json.dumps(body)

    def get(self, kind: str, name: str) -> Object:
        """The object as it is in the document."""
        found: Object = json.loads(self._objects[kind, name])
        return found

    def names(self, kind: str) -> list[str]:
        """The names of all objects of a kind."""
        return [name for of, name in self._objects if of == kind]

    def pod(self, name: str, node: str, script: str | None = None) -> Object:
        """A pod of the document as it runs here: its image is another, as there is no registry;
        it uses the machine's network; it ends quickly.

        Args:
            name: of the pod.
            node: where it has to run.
            script: what its shell runs instead; None for the document's.
        """
        body = self.get("Pod", name)
        body["spec"] |= here(node)
        for container in body["spec"]["containers"]:
            container |= {"image": BUSYBOX, "imagePullPolicy": "Never"}
            if script is not None:
                container["command"] = ["sh", "-c", script]
        return body


def here(node: str) -> Object:
    """What a pod's specification needs on a node of these tests."""
    return {
        "hostNetwork": True,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "nodeSelector": {"kubernetes.io/hostname": node},
    }


def apply(client: Client, body: Object, namespace: str = "default") -> str:
    """Creates an object and returns its path.

    Args:
        client: to create it with.
        body: the object.
        namespace: for one that is in some and does not say in which.
    """
    path = collection(body, namespace)
    client.create(path, body)
    return f"{path}/{body['metadata']['name']}"
