"""A real API server that writes down what it is asked, and by which node.

Its metrics count requests and cannot tell one client from another; its audit log names each
request. Only the agents' account is written down: the cluster's own controllers ask a lot.

This file runs such a control plane, with that account, and reads the log. The account may do what
the agent may, and replace whole slices besides, to compare with.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from liken_events.core.plan.slice_body import slice_name
from tests.cluster.real.client import Object
from tests.cluster.real.control_plane import ControlPlane
from tests.cluster.real.objects import node
from tests.cluster.real.processes import Process

NAMESPACE, ACCOUNT = "default", "bench"
USER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"

TOKEN_SECONDS = 6 * 3600
"""Longer than any benchmark."""

RBAC = "/apis/rbac.authorization.k8s.io/v1"

STARTED, COMPLETE = "ResponseStarted", "ResponseComplete"

POLICY: Mapping[str, object] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "users": [USER]}, {"level": "None"}],
}

RULES = [
    {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["resourceslices"],
        "verbs": ["list", "watch", "create", "patch", "update", "delete"],
    },
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request. Times are seconds of the system's clock.

    Attributes:
        node: whose agent sent it; `""` if the request does not say.
        verb: Kubernetes' own: `list`, `watch`, `get`, `create`, `patch`, `update`, `delete`.
        status: of HTTP.
        received: when it came.
        answered: when its answer was complete; of a watch, when it began.
    """

    node: str
    verb: str
    status: int
    received: float
    answered: float

    @classmethod
    def from_event(cls, event: Mapping[str, Any]) -> Self:
        """Reads one event of the audit log."""
        return cls(
            node=_node(event),
            verb=event["verb"],
            status=event.get("responseStatus", {}).get("code", 0),
            received=_seconds(event["requestReceivedTimestamp"]),
            answered=_seconds(event["stageTimestamp"]),
        )


class AuditedControlPlane(ControlPlane):
    """A control plane whose API server keeps an audit log. Use as `ControlPlane`.

    Attributes:
        token: of the agents' account.
    """

    token = ""

    def __enter__(self) -> Self:
        self._policy = os.path.join(self._directory, "policy.json")
        self._log = os.path.join(self._directory, "audit.log")
        self._read = 0
        self._unfinished: set[str] = set()
        with open(self._policy, "w", encoding="utf-8") as file:
            json.dump(POLICY, file)  # JSON is YAML
        super().__enter__()
        self._make_account()
        return self

    def account_kubeconfig(self, name: str, server: str) -> str:
        """A kubeconfig of the agents' account, for a server at this URL; its path."""
        return self.credentials.kubeconfig(name, server, token=self.token)

    def add_nodes(self, names: Iterable[str]) -> None:
        """Makes Node objects: they own the slices."""
        for name in names:
            self.client.create("/api/v1/nodes", node(name))

    def requests(self) -> list[Request]:
        """What the agents asked since this was called last, a watch once it was answered."""
        found = []
        for event in self._events():
            # A watch is written down at its start and at its end, everything else at its end.
            if event["stage"] == STARTED:
                self._unfinished.add(event["auditID"])
            elif event["auditID"] in self._unfinished:
                self._unfinished.remove(event["auditID"])
                continue
            found.append(Request.from_event(event))
        return found

    def _events(self) -> Iterator[dict[str, Any]]:
        with open(self._log, "rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    break  # it is being written
                self._read += len(line)
                yield json.loads(line)

    def _start(self, name: str, *line: str) -> Process:
        if name == "kube-apiserver":
            line = (*line, f"--audit-policy-file={self._policy}", f"--audit-log-path={self._log}")
        elif name == "kube-controller-manager":
            # It would write to each Node that it has no kubelet, which is not what is measured.
            line = (*line, "--controllers=*,-node-lifecycle-controller")
        return super()._start(name, *line)

    def _make_account(self) -> None:
        rbac: Object = {"apiVersion": "rbac.authorization.k8s.io/v1"}
        named: Object = {"metadata": {"name": ACCOUNT}}
        subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}
        role = {
            "kind": "ClusterRole",
            "name": ACCOUNT,
            "apiGroup": "rbac.authorization.k8s.io",
        }
        accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
        self.client.create(accounts, {"apiVersion": "v1", "kind": "ServiceAccount", **named})
        self.client.create(
            f"{RBAC}/clusterroles", {**rbac, **named, "kind": "ClusterRole", "rules": RULES}
        )
        self.client.create(
            f"{RBAC}/clusterrolebindings",
            {
                **rbac,
                **named,
                "kind": "ClusterRoleBinding",
                "roleRef": role,
                "subjects": [subject],
            },
        )
        self.token = self.client.account_token(NAMESPACE, ACCOUNT, seconds=TOKEN_SECONDS)


def _node(event: Mapping[str, Any]) -> str:
    """By what is asked for: a Node, a slice by its name, or slices by a field selector."""
    name: str = event["objectRef"].get("name", "")
    if event["objectRef"]["resource"] == "nodes":
        return name
    selector = parse_qs(urlsplit(event["requestURI"]).query).get("fieldSelector", [""])[0]
    _, _, selected = selector.partition("spec.nodeName=")
    return selected or name.removesuffix(slice_name(""))


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()
