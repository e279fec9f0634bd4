"""Images for pods, made of programs of this machine: no registry is asked for anything."""

import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Mapping

BUSYBOX = "localhost/busybox:1"
"""What pods run: a shell and its usual commands."""

PAUSE = "localhost/pause:1"
"""What keeps a pod's namespaces."""

BUSYBOX_PROGRAM = "/bin/busybox"
"""Of Debian's busybox-static, which needs no libraries."""

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Go's names of what the kernel calls a machine."""


def write_images(directory: str, pause: str) -> list[str]:
    """Writes the archives of both images and returns their paths.

    Args:
        directory: where to.
        pause: the program's path.
    """
    applets = subprocess.run(
        [BUSYBOX_PROGRAM, "--list"], check=True, capture_output=True, text=True
    ).stdout.split()
    links = {f"bin/{name}": "busybox" for name in applets if name != "busybox"}
    return [
        _write(f"{directory}/pause.tar", PAUSE, pause, "pause", {}, ["/pause"]),
        _write(
            f"{directory}/busybox.tar", BUSYBOX, BUSYBOX_PROGRAM, "bin/busybox", links, ["/bin/sh"]
        ),
    ]


def _write(
    path: str, name: str, program: str, inside: str, links: Mapping[str, str], command: list[str]
) -> str:
    """Writes an archive as `docker save` does: one layer with one program and links to it."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        entry = tarfile.TarInfo(inside)
        entry.mode, entry.size = 0o755, os.path.getsize(program)
        with open(program, "rb") as file:
            tar.addfile(entry, file)
        for link, target in links.items():
            entry = tarfile.TarInfo(link)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    config = {
        "architecture": ARCHITECTURES[os.uname().machine],
        "os": "linux",
        "config": {"Cmd": command, "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    described = json.dumps(config).encode()
    config_name = f"{hashlib.sha256(described).hexdigest()}.json"
    layer_name = f"{digest}/layer.tar"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": [layer_name]}]
    with tarfile.open(path, mode="w") as tar:
        for member, content in (
            (config_name, described),
            (layer_name, layer.getvalue()),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            entry = tarfile.TarInfo(member)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path
