import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from liken_events.cluster.kubernetes import KubernetesCluster
from liken_events.cluster.kubernetes_access import Client, Kubeconfig
from tests.cluster.following import QUICK
from tests.fakes.apiserver import ApiServer
from tests.fakes.certificates import make_certificate
from tests.fakes.kubeconfig import write_kubeconfig


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client library looks for proxies and for a cluster in the environment."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith(("KUBE", "SSL_")):
            monkeypatch.delenv(name)


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture
def cluster(api: ApiServer, tmp_path: Path) -> Iterator[KubernetesCluster]:
    path = write_kubeconfig(tmp_path / "kubeconfig", api.url)
    made = KubernetesCluster(Kubeconfig(path=path), pace=QUICK)
    yield made
    made.close()


@pytest.fixture
def client(api: ApiServer, tmp_path: Path) -> Iterator[Client]:
    path = write_kubeconfig(tmp_path / "kubeconfig", api.url)
    made = Client(Kubeconfig(path=path), connections=1)
    yield made
    made.close()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate and its key, as paths."""
    return make_certificate(str(tmp_path_factory.mktemp("tls")), "right")


@pytest.fixture
def pod(tmp_path: Path, certificate: tuple[str, str]) -> Path:
    """What the kubelet mounts: files behind a symlink that it swaps. The token is `first`."""
    set_token(tmp_path, "first")
    (tmp_path / "token").symlink_to("..data/token")
    (tmp_path / "ca.crt").write_text(Path(certificate[0]).read_text())
    return tmp_path


def set_token(pod: Path, token: str) -> None:
    """Replaces the token as the kubelet does: a new directory, and one rename of a symlink."""
    data = pod / f"..{token}"
    data.mkdir()
    (data / "token").write_text(token)
    (pod / "..data_tmp").symlink_to(data.name)
    (pod / "..data_tmp").rename(pod / "..data")
