"""Pods of a service account: their tokens, and the directory in which a pod finds its own."""

import os
import shutil
from types import TracebackType
from typing import Self

from liken_events.cluster.kubernetes_access import InCluster
from tests.cluster.real.agents import NODES
from tests.cluster.real.control_plane import LOOPBACK, ControlPlane
from tests.cluster.real.objects import node, pod


class AgentPod:
    """A pod of an account that is said to be on a node, which has no kubelet. Use as a context
    manager.

    Args:
        control_plane: where all of it is.
        directory: what the pod has as `/var/run/secrets/kubernetes.io/serviceaccount`; it must
            exist and be empty.
        node: the name of the node, which is made.
        namespace, account: whose pod it is.

    Attributes:
        directory: see there.
        token: the one in the directory.
    """

    def __init__(
        self, control_plane: ControlPlane, directory: str, node: str, namespace: str, account: str
    ) -> None:
        self.directory = directory
        self.token = ""
        self._control_plane = control_plane
        self._client = control_plane.client
        self._node = node
        self._account = account
        self._accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._number = 0

    def __enter__(self) -> Self:
        self._client.create(NODES, node(self._node))
        certificate = self._control_plane.credentials.certificate
        shutil.copy(certificate, f"{self.directory}/ca.crt")
        os.symlink("..data/token", f"{self.directory}/token")
        self.begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number in range(1, self._number + 1):
            self.end(number)
        self._client.delete(f"{NODES}/{self._node}")

    @property
    def access(self) -> InCluster:
        """How an agent in the pod reaches the API server."""
        environment = {
            "KUBERNETES_SERVICE_HOST": LOOPBACK,
            "KUBERNETES_SERVICE_PORT": str(self._control_plane.port),
        }
        return InCluster(environ=environment, directory=self.directory)

    def begin(self) -> None:
        """Makes a pod, the next one, and puts its token in the place of what is there."""
        self._number += 1
        name = f"{self._node}-{self._number}"
        body = pod(name, self._node)
        body["spec"] |= {
            "nodeName": self._node,
            "serviceAccountName": self._account,
            "tolerations": [{"operator": "Exists"}],  # the node is never ready
        }
        self._client.create(self._pods, body)
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name}},
        }
        answer = self._client.create(f"{self._accounts}/{self._account}/token", request)
        self.token = answer["status"]["token"]
        # As the kubelet does: a new directory, and one rename of a symlink.
        data = f"{self.directory}/..{self._number}"
        os.mkdir(data)
        with open(f"{data}/token", "w", encoding="ascii") as file:
            file.write(self.token)
        os.symlink(os.path.basename(data), f"{self.directory}/..data_tmp")
        os.rename(f"{self.directory}/..data_tmp", f"{self.directory}/..data")

    def end(self, number: int) -> None:
        """Deletes the pod of this number, from 1 on, if it is there. Its token ends with it."""
        path = f"{self._pods}/{self._node}-{number}"
        if self._client.find(path) is not None:
            self._client.delete(path, grace=0)
            self._client.until_gone(path)
