"""Kubeconfig files."""

from pathlib import Path

TEMPLATE = """\
apiVersion: v1
kind: Config
clusters:
- {{name: here, cluster: {{server: "{server}"{cluster}}}}}
users:
- {{name: me, user: {{{user}}}}}
contexts:
- {{name: it, context: {{cluster: here, user: me}}}}
current-context: it
"""


def write_kubeconfig(
    path: Path, server: str, *, user: str = "token: some", certificate: str | None = None
) -> str:
    """Writes a kubeconfig and returns its path."""
    cluster = f', certificate-authority: "{certificate}"' if certificate else ""
    path.write_text(TEMPLATE.format(server=server, cluster=cluster, user=user))
    return str(path)
