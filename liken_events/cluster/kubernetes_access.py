"""How an API server is reached: address, trust, credentials, connections.

A pod gets a token of about an hour, and the kubelet replaces it on disk by swapping a symlink. A
kubeconfig names certificates, tokens or a program that makes them, and its files are replaced too.
A client that keeps what it read at its start is refused for ever some time later.

This file is the only one that knows the client library: its configuration, its loaders, its TLS
and its proxies. A pod's token is read for each request, which costs some 20 µs; everything else is
read again after a 401, with new connections. Retries are switched off: who calls decides about
them. What an answer means is said in `cluster.kubernetes_answer`.
"""

import os
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

import urllib3
import yaml
from kubernetes.client.configuration import Configuration
from kubernetes.client.rest import RESTClientObject
from kubernetes.config import ConfigException, load_kube_config

from liken_events import __version__
from liken_events.cluster import BadConfiguration, Unavailable
from liken_events.cluster.kubernetes_answer import NO_ANSWER, Answer, no_answer, quoted

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where the kubelet mounts a pod's `token` and the cluster's `ca.crt`."""

CONNECT_SECONDS = 5.0
"""Bound for a connection. Linux repeats a lost SYN after 1 and 3 seconds, so two may be lost."""

ANSWER_SECONDS = 20.0
"""Bound for the silence before an answer or within it. Priority and fairness holds a request back
for up to 15 s (a quarter of the API server's request timeout of 60 s) before it says 429."""

_BAD_KUBECONFIG = (
    ConfigException,
    yaml.YAMLError,
    OSError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
)
"""What the library's loader raises for a bad file: it indexes whatever the YAML happens to hold,
and decodes base64."""

Load = Callable[[], Configuration]


@dataclass(frozen=True, slots=True, kw_only=True)
class InCluster:
    """Loads what a pod has: address from the environment, token and CA from files.

    Attributes:
        environ: with `KUBERNETES_SERVICE_HOST` and `KUBERNETES_SERVICE_PORT`.
        directory: where `token` and `ca.crt` are.
    """

    environ: Mapping[str, str]
    directory: str = SERVICE_ACCOUNT

    def __call__(self) -> Configuration:
        """A fresh configuration. Raises BadConfiguration."""
        host = self.environ.get("KUBERNETES_SERVICE_HOST", "")
        port = self.environ.get("KUBERNETES_SERVICE_PORT", "")
        if not host or not port:
            raise BadConfiguration("KUBERNETES_SERVICE_HOST or KUBERNETES_SERVICE_PORT is not set")
        token = os.path.join(self.directory, "token")
        trusted = os.path.join(self.directory, "ca.crt")
        for path in (token, trusted):
            if not os.path.isfile(path):
                raise BadConfiguration(f"{path} is missing: has the pod a service account token?")
        configuration = Configuration(ssl_ca_cert=trusted)
        configuration.host = (
            f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        )
        read_token = _TokenFile(token)
        read_token(configuration)
        if not configuration.api_key:
            raise BadConfiguration(f"{token} holds no token")
        configuration.refresh_api_key_hook = read_token  # type: ignore[assignment]  # typed None
        return _checked(configuration, self.directory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubeconfig:
    """Loads a kubeconfig.

    Attributes:
        path: a file, or several with `:` between them, of which those that exist are merged.
        context: which of its contexts; None for its current one.
    """

    path: str
    context: str | None = None

    def __call__(self) -> Configuration:
        """A fresh configuration. Raises BadConfiguration."""
        if not any(os.path.isfile(os.path.expanduser(path)) for path in self.path.split(":")):
            raise BadConfiguration(f"{self.path} does not exist")
        configuration = Configuration()
        try:
            load_kube_config(
                config_file=self.path,
                context=self.context,
                client_configuration=configuration,
                persist_config=False,
            )
        except _BAD_KUBECONFIG as error:
            raise BadConfiguration(f"{self.path} is no use: {quoted(str(error))}") from error
        if not configuration.host:
            raise BadConfiguration(f"{self.path} names no server for its current context")
        return _checked(configuration, self.path)


class _TokenFile:
    """A pod's token, as it is on disk at each request.

    While the file is away or empty, which is a moment at most, the last one that was read is used.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, configuration: Configuration) -> None:
        """Puts the token where the library takes it from. This is the library's refresh hook."""
        try:
            with open(self._path, encoding="ascii") as file:
                token = file.read().strip()
        except (OSError, ValueError):
            return
        if token.isprintable() and token:
            configuration.api_key["BearerToken"] = f"Bearer {token}"


class Client:
    """Connections to the API server for one purpose. All methods may block and are thread-safe.

    Attributes:
        host: the server's URL, for people.
    """

    def __init__(
        self, load: Load, *, connections: int, answer_seconds: float | None = None
    ) -> None:
        """Reads the configuration; nothing is sent yet.

        Args:
            load: reads the configuration, also anew after a 401.
            connections: how many are kept open; as many as there may be requests at a time.
            answer_seconds: another bound for silence than `ANSWER_SECONDS`.

        Raises:
            BadConfiguration: see there.
        """
        self._load = load
        self._connections = connections
        self._answer_seconds = ANSWER_SECONDS if answer_seconds is None else answer_seconds
        self._lock = threading.Lock()
        self._current: _Loaded | None = self._reload()
        self.host = str(self._current.configuration.host)

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Answer:
        """Sends a request and reads the answer to its end, so that the connection is used again.

        Raises:
            Unavailable: there was no answer. Every answer, also an error, is returned.
        """
        headers = {"Accept": accept}
        if body is not None:
            headers["Content-Type"] = content_type
        response = self.open(method, path, query=query, body=body, headers=headers)
        try:
            data = response.read()
        except NO_ANSWER as error:
            raise no_answer(error, self.host) from error
        return Answer(status=response.status, headers=response.headers, body=data)

    def open(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> urllib3.BaseHTTPResponse:
        """Sends a request and returns the answer unread: the caller reads or closes it.

        Raises:
            Unavailable: there was no answer.
        """
        loaded = self._loaded()
        url = loaded.configuration.host + path + (f"?{urlencode(query)}" if query else "")
        try:
            response = loaded.rest.pool_manager.request(
                method,
                url,
                body=body,
                headers={**_identity(loaded.configuration), **(headers or {})},
                timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=self._answer_seconds),
                retries=False,
                preload_content=False,
            )
        except NO_ANSWER as error:
            raise no_answer(error, self.host) from error
        if response.status == 401:
            self._forget(loaded)
        return response

    def close(self) -> None:
        """Closes the connections that are not in use."""
        with self._lock:
            if self._current is not None:
                self._current.rest.close()

    def _loaded(self) -> "_Loaded":
        with self._lock:
            if self._current is None:
                try:
                    self._current = self._reload()
                except BadConfiguration as error:
                    raise Unavailable(error.reason) from error
            return self._current

    def _forget(self, refused: "_Loaded") -> None:
        """Has everything read again for the next request, unless another thread did so already."""
        with self._lock:
            if self._current is refused:
                self._current = None
        refused.rest.close()

    def _reload(self) -> "_Loaded":
        configuration = self._load()
        configuration.connection_pool_maxsize = self._connections
        # The kernel's probes find a peer that is gone without a word, and keep a quiet watch in
        # the tables of whatever stands between.
        configuration.keep_alive = True
        return _Loaded(configuration=configuration, rest=RESTClientObject(configuration))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    configuration: Configuration
    rest: RESTClientObject


def _identity(configuration: Configuration) -> dict[str, str]:
    """Headers: who we are. The library runs its refresh hook in here."""
    headers = {"User-Agent": f"liken-events/{__version__}", "Accept": "application/json"}
    try:
        credentials = configuration.get_api_key_with_prefix("BearerToken")
    except _BAD_KUBECONFIG as error:
        raise Unavailable(f"no credentials: {quoted(str(error))}") from error
    if credentials:
        headers["Authorization"] = credentials
    return headers


def _checked(configuration: Configuration, source: str) -> Configuration:
    """Reads the certificates once, so that a bad file is named at the start and not at a call."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    path = configuration.ssl_ca_cert
    try:
        if path:
            context.load_verify_locations(path)
        path = configuration.cert_file
        if path:
            # An empty password keeps OpenSSL from asking for one on the terminal.
            context.load_cert_chain(path, configuration.key_file, password="")
    except OSError as error:
        reason = f"{source} is no use: {path} is no certificate: {quoted(str(error))}"
        raise BadConfiguration(reason) from error
    return configuration
