"""A control plane on loopback: etcd, API server, scheduler and controllers, as they are released.

They have a directory of their own, free ports and no state from before. What a test cannot
have from a real one in good time is made here: an API server that is away for a moment, and an
etcd that forgets old revisions at once.
"""

import json
import os
import random
import socket
from types import TracebackType
from typing import Self

import urllib3

from tests.cluster.real.client import Client
from tests.cluster.real.credentials import FIRST_SERVICE, Credentials
from tests.cluster.real.processes import Process
from tests.cluster.real.programs import Programs

LOOPBACK = "127.0.0.1"

PORTS = range(20_000, 32_768)
"""Below those that Linux takes for connections: while a server is away for a moment, a client of
another may not get its port."""

START_SECONDS = 60.0
"""Bound for each program's start. On two free cores all of them take 5 s together."""

ELECTION_MS = 100
"""Ten heartbeats, as usual; usual are 1,000 ms."""

ANSWER_SECONDS = 5.0

ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"
"""Made by the controllers; without it no pod is admitted."""


class ControlPlane:
    """A control plane that runs. Use as a context manager, in the main thread.

    Args:
        programs: what it runs.
        directory: for all files; it must exist.

    Attributes:
        client: the administrator.
        credentials: and how to make kubeconfigs for others.
        url: of the API server; from a guest of QEMU it is `HOST_OF_A_GUEST` instead of loopback.
        port: the API server's.

    Raises:
        ProgramFailed: on entering, if a program does not start.
    """

    def __init__(self, programs: Programs, directory: str) -> None:
        self._programs = programs
        self._directory = directory
        self._processes: dict[str, Process] = {}
        self._etcd, self._peer, self.port, self._controllers, self._scheduler = free_ports(5)
        self.url = f"https://{LOOPBACK}:{self.port}"

    def __enter__(self) -> Self:
        self.credentials = Credentials.make(os.path.join(self._directory, "credentials"))
        self._pool = urllib3.PoolManager(
            ca_certs=self.credentials.certificate, retries=False, timeout=ANSWER_SECONDS
        )
        self.client = Client(self.url, self.credentials.certificate, self.credentials.token)
        try:
            self.start_etcd()
            self.start_api_server()
            self._start_controllers()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    @property
    def pids(self) -> dict[str, int]:
        """The programs' process numbers."""
        return {name: process.pid for name, process in self._processes.items()}

    def logs(self) -> dict[str, str]:
        """The ends of the programs' logs, to be shown when a test fails."""
        return {name: process.log_end() for name, process in self._processes.items()}

    def start_etcd(self) -> None:
        """Starts etcd, with what it held when it was stopped."""
        mine, peers = f"http://{LOOPBACK}:{self._etcd}", f"http://{LOOPBACK}:{self._peer}"
        etcd = self._start(
            "etcd",
            self._programs.etcd,
            *(f"--data-dir={self._directory}/etcd", "--log-level=warn"),
            *(f"--listen-client-urls={mine}", f"--advertise-client-urls={mine}"),
            *(f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}"),
            *("--name=only", f"--initial-cluster=only={peers}"),
            # It waits so long before it elects itself.
            *("--heartbeat-interval=10", f"--election-timeout={ELECTION_MS}"),
            "--unsafe-no-fsync",  # no power cut is tested here
        )
        etcd.until(lambda: self._answers(f"{mine}/health"), "its health", seconds=START_SECONDS)

    def stop_etcd(self) -> None:
        """Ends etcd: the API server answers 500 and the like until it is started again."""
        self._processes["etcd"].stop()

    def start_api_server(self) -> None:
        """Starts the API server and waits until it is ready."""
        files = self.credentials
        server = self._start(
            "kube-apiserver",
            *self._programs.kubernetes("kube-apiserver"),
            f"--etcd-servers=http://{LOOPBACK}:{self._etcd}",
            "--etcd-compaction-interval=0",  # only `compact` forgets
            *(f"--bind-address={LOOPBACK}", f"--secure-port={self.port}"),
            *(f"--tls-cert-file={files.certificate}", f"--tls-private-key-file={files.key}"),
            f"--service-account-key-file={files.account_public}",
            f"--service-account-signing-key-file={files.account_key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--token-auth-file={files.tokens}",
            "--authorization-mode=Node,RBAC",
            f"--service-cluster-ip-range={FIRST_SERVICE}/16",
            "--allow-privileged=true",
            # Ends watches when it is stopped; without, it waits a minute for them to end.
            "--shutdown-watch-termination-grace-period=5s",
            # Loopback is no endpoint of the `kubernetes` service, and nobody uses that here.
            *("--endpoint-reconciler-type=none", f"--advertise-address={LOOPBACK}"),
        )
        server.until(
            lambda: self._answers(f"{self.url}/readyz"), "being ready", seconds=START_SECONDS
        )

    def stop_api_server(self) -> None:
        """Ends the API server in order: watches end, connections are refused."""
        self._processes["kube-apiserver"].stop()

    def kill_api_server(self) -> None:
        """Ends the API server as a crash does: connections break."""
        self._processes["kube-apiserver"].kill()

    def restart_api_server(self) -> None:
        """Ends the API server and starts it again, on the same port. The new one knows no events
        from before: a watch of an older version is answered with 410."""
        self.stop_api_server()
        self.start_api_server()

    def compact(self) -> int:
        """Has etcd forget all revisions but the newest, whose number is returned. An API server
        has its own memory of them until it is restarted: a list at an older version, or one that
        goes on from there, is answered with 410 after both."""
        revision = int(self._ask_etcd("maintenance/status", {})["header"]["revision"])
        self._ask_etcd("kv/compaction", {"revision": str(revision), "physical": True})
        return revision

    def _start_controllers(self) -> None:
        """Starts the controllers and the scheduler, and waits until pods are admitted."""
        files = self.credentials
        kubeconfig = files.kubeconfig("admin", self.url)
        common = (
            f"--kubeconfig={kubeconfig}",
            "--leader-elect=false",
            f"--bind-address={LOOPBACK}",
            f"--tls-cert-file={files.certificate}",
            f"--tls-private-key-file={files.key}",
        )
        controllers = self._start(
            "kube-controller-manager",
            *self._programs.kubernetes("kube-controller-manager"),
            *(*common, f"--secure-port={self._controllers}"),
            f"--service-account-private-key-file={files.account_key}",
            f"--root-ca-file={files.certificate}",
            "--use-service-account-credentials=false",
        )
        scheduler = self._start(
            "kube-scheduler",
            *self._programs.kubernetes("kube-scheduler"),
            *(*common, f"--secure-port={self._scheduler}"),
        )
        controllers.until(
            lambda: self.client.find(ACCOUNT), "making an account", seconds=START_SECONDS
        )
        ready = f"https://{LOOPBACK}:{self._scheduler}/readyz"
        scheduler.until(lambda: self._answers(ready), "being ready", seconds=START_SECONDS)

    def _start(self, name: str, *line: str) -> Process:
        environment = {"PATH": os.environ["PATH"], "HOME": self._directory}
        process = Process(name, line, self._directory, environment)
        self._processes[name] = process
        return process

    def _end(self) -> None:
        """Ends all, those first that use others: none may wait for one that is gone."""
        for process in reversed(self._processes.values()):
            process.stop()
        self.client.close()
        self._pool.clear()

    def _answers(self, url: str) -> bool:
        try:
            return self._pool.request("GET", url).status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def _ask_etcd(self, method: str, body: dict[str, object]) -> dict[str, dict[str, str]]:
        """Calls etcd's API, which takes JSON too."""
        answer = self._pool.request(
            "POST", f"http://{LOOPBACK}:{self._etcd}/v3/{method}", body=json.dumps(body)
        )
        content: dict[str, dict[str, str]] = json.loads(answer.data)
        assert answer.status == 200, content
        return content


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nobody listens on."""
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise AssertionError(f"no {count} ports of {PORTS} are free")
