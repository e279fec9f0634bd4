"""The control plane by itself: it is a real one, and it leaves nothing."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.cluster.real.agents import SLICES
from tests.cluster.real.client import RESOURCE, Client, Refused
from tests.cluster.real.control_plane import ControlPlane
from tests.cluster.real.objects import claim, device_class, node, pod, resource_slice
from tests.cluster.real.polling import poll
from tests.cluster.real.processes import Process, ProgramFailed
from tests.cluster.real.programs import Programs

CLAIMS = f"{RESOURCE}/namespaces/default/resourceclaims"
PODS = "/api/v1/namespaces/default/pods"

KILLED = """
import os, signal, sys
from tests.cluster.real.control_plane import ControlPlane
from tests.cluster.real.programs import find
with ControlPlane(find(), sys.argv[1]) as started:
    print(*started.pids.values(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
"""A harness that dies in the middle."""


def processes_of(directory: str) -> list[str]:
    """Command lines of processes that know a directory; those of zombies are empty."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_text(errors="replace"))
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended
    return [line.replace("\0", " ") for line in lines if directory in line]


def test_the_programs_are_those_that_were_built(client: Client, programs: Programs) -> None:
    assert client.get("/version")["gitVersion"] == programs.version


def test_a_slice_is_kept_and_one_of_too_many_devices_refused(client: Client) -> None:
    client.create(SLICES, resource_slice("kept", "kept.example", "nowhere", 128))
    listed = client.items(SLICES, fieldSelector="spec.driver=kept.example")
    assert [len(item["spec"]["devices"]) for item in listed] == [128]
    with pytest.raises(Refused, match="Too many: 129: must have at most 128 items") as refusal:
        client.create(SLICES, resource_slice("refused", "kept.example", "nowhere", 129))
    assert (refusal.value.status, refusal.value.reason) == (422, "Invalid")
    client.delete(f"{SLICES}/kept")
    client.until_gone(f"{SLICES}/kept")


def test_a_claim_is_allocated_and_its_pod_is_bound(client: Client) -> None:
    """By the scheduler, to a node that is said to be ready; no kubelet is needed for that."""
    client.create("/api/v1/nodes", node("empty"))
    ready = {"type": "Ready", "status": "True", "reason": "Said", "message": ""}
    room = {"pods": "10", "cpu": "1", "memory": "1Gi"}
    client.patch(
        "/api/v1/nodes/empty/status",
        {"status": {"capacity": room, "allocatable": room, "conditions": [ready]}},
    )
    client.create(f"{RESOURCE}/deviceclasses", device_class("bound", "bound.example"))
    client.create(SLICES, resource_slice("bound", "bound.example", "empty", 1))
    client.create(CLAIMS, claim("bound", "bound"))
    client.create(PODS, pod("bound", "empty", claims=("bound",)))
    bound = client.until(f"{PODS}/bound", lambda it: it["spec"].get("nodeName"), seconds=30)
    assert bound["spec"]["nodeName"] == "empty"
    results = client.get(f"{CLAIMS}/bound")["status"]["allocation"]["devices"]["results"]
    assert [(item["driver"], item["device"]) for item in results] == [
        ("bound.example", "device-0")
    ]
    client.delete(f"{PODS}/bound", grace=0)
    client.until_gone(f"{PODS}/bound")
    client.delete("/api/v1/nodes/empty")


def test_an_account_gets_a_token_and_only_its_own_rights(
    control_plane: ControlPlane, client: Client
) -> None:
    token = client.account_token("default", "default")
    account = Client(control_plane.url, control_plane.credentials.certificate, token)
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    seen = account.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
    assert seen["status"]["userInfo"]["username"] == "system:serviceaccount:default:default"
    with pytest.raises(Refused, match="cannot list resource") as refusal:
        account.items(SLICES)
    assert (refusal.value.status, refusal.value.reason) == (403, "Forbidden")
    account.close()


def test_an_api_server_that_was_restarted_has_objects_but_no_past(
    control_plane: ControlPlane, client: Client
) -> None:
    path = f"{SLICES}/stays"
    made = client.create(SLICES, resource_slice("stays", "stays.example", "nowhere", 1))
    version = made["metadata"]["resourceVersion"]
    last = client.patch(path, {"spec": {"devices": []}})
    exactly = {"resourceVersion": version, "resourceVersionMatch": "Exact"}
    listed = client.items(SLICES, **exactly)
    assert version in [item["metadata"]["resourceVersion"] for item in listed]
    assert control_plane.compact() > int(version)
    control_plane.restart_api_server()
    assert client.get(path) == last
    query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "5"}
    event = client.request("GET", SLICES, query=query)
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
    with pytest.raises(Refused) as refusal:
        client.items(SLICES, **exactly)
    assert (refusal.value.status, refusal.value.reason) == (410, "Expired")
    client.delete(path)


def test_nothing_is_left_of_one_that_ended(programs: Programs) -> None:
    with tempfile.TemporaryDirectory(prefix="control-plane-") as directory:
        with ControlPlane(programs, directory) as started:
            names = [*started.pids]
            assert len(processes_of(directory)) == len(names)
        assert names == ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"]
        assert processes_of(directory) == []
        assert sorted(os.listdir(directory)) == sorted(
            ["credentials", "etcd", *(f"{name}.log" for name in names)]
        )


def test_a_harness_that_is_killed_takes_its_programs_along() -> None:
    with tempfile.TemporaryDirectory(prefix="control-plane-") as directory:
        line = [sys.executable, "-c", KILLED, directory]
        ran = subprocess.run(line, check=False, capture_output=True, text=True)
        assert (ran.returncode, ran.stderr) == (-signal.SIGKILL, "")
        assert len(ran.stdout.split()) == 4
        assert poll(lambda: not processes_of(directory), 10)


def test_a_program_that_ends_is_named_with_its_log(tmp_path: Path) -> None:
    failing = Process("failing", ["sh", "-c", "echo why >&2"], str(tmp_path))
    with pytest.raises(ProgramFailed, match=r"failing ended before a miracle.*\nwhy"):
        failing.until(lambda: None, "a miracle", seconds=10)
    failing.stop()
    asleep = Process("asleep", ["sleep", "1000"], str(tmp_path))
    with pytest.raises(ProgramFailed, match=r"asleep took more than 0.1 s for a miracle"):
        asleep.until(lambda: None, "a miracle", seconds=0.1)
    asleep.stop()
    assert not asleep.is_running()
