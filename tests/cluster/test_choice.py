import subprocess
import sys

import pytest

from liken_events.cluster.choice import in_cluster, kubeconfig

HOST = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
PORT = {"KUBERNETES_SERVICE_PORT": "443"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({**HOST, **PORT}, True),
        (HOST, False),
        (PORT, False),
        ({**HOST, "KUBERNETES_SERVICE_PORT": ""}, False),
        ({}, False),
    ],
)
def test_a_pod_knows_the_address_of_its_api_server(
    environ: dict[str, str], expected: bool
) -> None:
    assert in_cluster(environ) is expected


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"KUBECONFIG": "/etc/agent.yaml"}, "/etc/agent.yaml"),
        ({"KUBECONFIG": "/a:/b"}, "/a:/b"),
        ({"KUBECONFIG": " "}, None),
        ({}, None),
    ],
)
def test_a_kubeconfig_is_one_that_the_environment_names(
    environ: dict[str, str], expected: str | None
) -> None:
    assert kubeconfig(environ) == expected


@pytest.mark.parametrize("module", ["choice", "directory"])
def test_a_machine_without_a_cluster_never_loads_the_client_library(module: str) -> None:
    code = (
        f"import sys, liken_events.cluster.{module}\n"
        "print(sorted({'kubernetes', 'urllib3'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
