"""Certificate, keys, tokens and kubeconfigs of a control plane, in one directory.

There is one certificate: the API server serves with it, and it is the authority that everybody
trusts. There is one secret, the token of the cluster's administrator. Everybody else is
impersonated with it, which the API server's authorizers judge as if they had come by themselves.
"""

import json
import os
import secrets
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

HOST_OF_A_GUEST = "10.0.2.2"
"""Where this machine's loopback is for a guest of QEMU with user networking."""

FIRST_SERVICE = "10.96.0.1"
"""The `kubernetes` service: the first address of the service network."""

NAMES = (
    *("IP:127.0.0.1", f"IP:{HOST_OF_A_GUEST}", f"IP:{FIRST_SERVICE}"),
    *("DNS:localhost", "DNS:kubernetes.default.svc"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Files in a directory that only its owner reads.

    Attributes:
        directory: where they are.
        token: the administrator's.
    """

    directory: str
    token: str

    @classmethod
    def make(cls, directory: str) -> Self:
        """Makes them anew, with the openssl command."""
        os.mkdir(directory, mode=0o700)
        made = cls(directory=directory, token=secrets.token_hex(16))
        curve = ("-pkeyopt", "ec_paramgen_curve:P-256")
        _openssl(
            *("req", "-x509", "-newkey", "ec", *curve, "-nodes", "-days", "2"),
            *("-subj", "/CN=kube-apiserver", "-keyout", made.key, "-out", made.certificate),
            *("-addext", f"subjectAltName={','.join(NAMES)}"),
            # Python's strict verification (3.13) wants what an authority has to have.
            *("-addext", "keyUsage=critical,keyCertSign,digitalSignature"),
        )
        _openssl("genpkey", "-algorithm", "EC", *curve, "-out", made.account_key)
        _openssl("pkey", "-in", made.account_key, "-pubout", "-out", made.account_public)
        with open(made.tokens, "w", encoding="ascii") as file:
            file.write(f"{made.token},admin,admin,system:masters\n")
        return made

    @property
    def certificate(self) -> str:
        return os.path.join(self.directory, "apiserver.crt")

    @property
    def key(self) -> str:
        return os.path.join(self.directory, "apiserver.key")

    @property
    def account_key(self) -> str:
        """Signs the tokens of service accounts."""
        return os.path.join(self.directory, "sa.key")

    @property
    def account_public(self) -> str:
        """Checks the tokens of service accounts."""
        return os.path.join(self.directory, "sa.pub")

    @property
    def tokens(self) -> str:
        """What the API server's `--token-auth-file` reads."""
        return os.path.join(self.directory, "tokens.csv")

    def kubeconfig(
        self,
        name: str,
        server: str,
        *,
        token: str | None = None,
        user: str | None = None,
        groups: Sequence[str] = (),
    ) -> str:
        """Writes a kubeconfig and returns its path.

        Args:
            name: of the file.
            server: URL of the API server.
            token: whose; None for the administrator's.
            user: who is impersonated, such as `system:node:` and the node's name; None for nobody.
            groups: whose member that user is.
        """
        who: dict[str, object] = {"token": token or self.token}
        if user is not None:
            who |= {"as": user, "as-groups": [*groups, "system:authenticated"]}
        cluster = {"server": server, "certificate-authority": self.certificate}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "here", "cluster": cluster}],
            "users": [{"name": "me", "user": who}],
            "contexts": [{"name": "it", "context": {"cluster": "here", "user": "me"}}],
            "current-context": "it",
        }
        path = os.path.join(self.directory, f"{name}.kubeconfig")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(content, file)  # JSON is YAML
        return path


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
