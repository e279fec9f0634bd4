"""Pods of a service account: their rights, their tokens, and the directory with a pod's own."""

import os
import shutil
from contextlib import closing
from types import TracebackType
from typing import Self

import yaml

from liken_events.cluster.kubernetes_access import InCluster
from tests.cluster.real.agents import NODES, SLICES
from tests.cluster.real.client import Client, Object, Refused
from tests.cluster.real.control_plane import LOOPBACK, ControlPlane
from tests.cluster.real.documented import apply
from tests.cluster.real.manifests import DIRECTORY
from tests.cluster.real.objects import node, pod, resource_slice
from tests.cluster.real.polling import poll

FORCE_SECONDS = 10.0
"""For authorizer and admission to hear of a change; they watch."""

NODE_ACCOUNT = "node-agent"
"""Of the agent that runs on a node: the name of its account and all that belongs to it."""


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
        self._namespace = namespace
        self._account = account
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
        self._client.create(self._pods, _pod_of(name, self._node, self._account))
        self.token = bound_token(self._client, self._namespace, self._account, name)
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


def admit(
    control_plane: ControlPlane, node: str, account: str = NODE_ACCOUNT, server: str = ""
) -> str:
    """Gives an agent on a node what the package gives it: an account with its rights, the
    policy that keeps it to its node, and the token of a pod that is there.

    Args:
        control_plane: where.
        node: the name of the node, which must be there.
        account: its name, and that of its namespace, rights and policy.
        server: URL of the API server for the agent; empty for the one on loopback.

    Returns:
        The path of a kubeconfig with that token.
    """
    client = control_plane.client
    apply(client, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": account}})
    for name in ("access.yaml", "admission.yaml"):
        with open(f"{DIRECTORY}/{name}", encoding="utf-8") as file:
            text = file.read().replace("liken-events", account)
        for body in yaml.safe_load_all(text):
            apply(client, body)
    apply(client, _pod_of(node, node, account), account)
    token = bound_token(client, account, account, node)
    with closing(user_of(control_plane, token)) as user:
        assert poll(lambda: is_kept_to_its_node(user), FORCE_SECONDS)
        assert writes_slice_of(user, node)
    return control_plane.credentials.kubeconfig(account, server or control_plane.url, token=token)


def bound_token(client: Client, namespace: str, account: str, name: str) -> str:
    """The token that the kubelet would give a pod: the API server puts the pod's node into it.

    Args:
        client: with all rights.
        namespace: of account and pod.
        account: whose token it is.
        name: of the pod. The token ends with it.
    """
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name}},
    }
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    token: str = client.create(path, request)["status"]["token"]
    return token


def user_of(control_plane: ControlPlane, token: str) -> Client:
    """The API server as the owner of a token sees it."""
    return Client(control_plane.url, control_plane.credentials.certificate, token)


def is_kept_to_its_node(user: Client) -> bool:
    """Whether the policy keeps a user from writing slices of a node that is not theirs."""
    return not writes_slice_of(user, "theirs")


def writes_slice_of(user: Client, node: str) -> bool:
    """Whether a user may write slices of a node, or only the policy is against it.

    Raises:
        Refused: for another reason.
    """
    try:
        body = resource_slice("probe", "liken.sh", node, 1)
        user.request("POST", SLICES, body, query={"dryRun": "All"})
    except Refused as error:
        if error.status == 422:
            return False
        raise
    return True


def _pod_of(name: str, node: str, account: str) -> Object:
    """A pod of an account on a node, ready or not."""
    body = pod(name, node)
    body["spec"] |= {
        "nodeName": node,
        "serviceAccountName": account,
        "tolerations": [{"operator": "Exists"}],
    }
    return body
