"""Bodies of objects that tests put into a cluster."""

from tests.cluster.real.client import RESOURCE, Object

COLLECTIONS = {
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "DaemonSet": "/apis/apps/v1/namespaces/{namespace}/daemonsets",
    "DeviceClass": f"{RESOURCE}/deviceclasses",
    "Namespace": "/api/v1/namespaces",
    "Pod": "/api/v1/namespaces/{namespace}/pods",
    "ResourceClaim": f"{RESOURCE}/namespaces/{{namespace}}/resourceclaims",
    "ResourceClaimTemplate": f"{RESOURCE}/namespaces/{{namespace}}/resourceclaimtemplates",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ValidatingAdmissionPolicy": (
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    ),
    "ValidatingAdmissionPolicyBinding": (
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    ),
}
"""Where objects of a kind are in the API."""


def collection(body: Object, namespace: str) -> str:
    """The path of the collection that an object is in.

    Args:
        body: the object.
        namespace: of one that is in some and does not say in which.
    """
    named = body["metadata"].get("namespace", namespace)
    return COLLECTIONS[body["kind"]].format(namespace=named)


def device(number: int) -> Object:
    """A device of a slice, with one attribute."""
    return {"name": f"device-{number}", "attributes": {"number": {"int": number}}}


def resource_slice(name: str, driver: str, node: str, devices: int) -> Object:
    """A slice that is all of its node's pool."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [device(number) for number in range(devices)],
        },
    }


def device_class(name: str, driver: str) -> Object:
    """A class of all devices of a driver."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{driver}'"}}]},
    }


def claim(name: str, of_class: str) -> Object:
    """A claim for one device of a class; its request is `device`."""
    request = {"name": "device", "exactly": {"deviceClassName": of_class}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [request]}},
    }


def pod(name: str, node: str, *, claims: tuple[str, ...] = ()) -> Object:
    """A pod that sleeps on a node, with claims that are there."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "hostNetwork": True,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "nodeSelector": {"kubernetes.io/hostname": node},
            "resourceClaims": [{"name": each, "resourceClaimName": each} for each in claims],
            "containers": [
                {
                    "name": "sleeper",
                    "image": "localhost/busybox:1",
                    "imagePullPolicy": "Never",
                    "command": ["sleep", "100000"],
                    "resources": {"claims": [{"name": each} for each in claims]},
                }
            ],
        },
    }


def node(name: str) -> Object:
    """A node without a kubelet."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
    }
