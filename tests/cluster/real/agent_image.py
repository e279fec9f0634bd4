"""The agent's image, built from `packaging/Containerfile` without any registry of images.

The base is a Debian that mmdebstrap makes of Debian's packages; what the build itself asks for are
Debian's packages and PyPI's. Base and image are kept: the base for as long as it is there, the
image for as long as all that goes into it is the same.
"""

import fcntl
import glob
import hashlib
import os
import shutil
import subprocess
import tempfile

from tests.cluster.real.agents import ROOT
from tests.cluster.real.programs import cache

IMAGE = "localhost/liken-events:test"

BASE = "localhost/debian-python"

SUITE = "bookworm"
"""Debian 12: the oldest with a Python that the agent runs on."""

PACKAGES = {"podman": "podman", "runc": "runc", "mmdebstrap": "mmdebstrap"}
"""Programs that the build needs, and Debian's packages of them."""

SBIN = "/usr/local/sbin:/usr/sbin:/sbin"

AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
"""Whom this machine trusts, as Debian has it; a proxy's authority may be among them."""

BASE_SECONDS, BUILD_SECONDS, STEP_SECONDS = 600.0, 600.0, 120.0
"""Bounds. On two free cores it takes a minute each, and some seconds."""

LIMITS = ("nofile=1024:1024", "nproc=1024:1024")
"""podman's own are higher than a machine without CAP_SYS_RESOURCE can give."""


class NotBuilt(Exception):
    """The image cannot be had; the message ends with what the failing command said."""


def what_is_missing() -> str | None:
    """One sentence that says what to install for building; None if nothing is missing."""
    path = os.pathsep.join([os.environ.get("PATH", ""), SBIN])
    packages = [name for tool, name in PACKAGES.items() if shutil.which(tool, path=path) is None]
    if not packages:
        return None
    return f"The agent's image cannot be built here: apt install {' '.join(packages)}"


def build() -> str:
    """Builds the image, unless it is there. Another process that does the same is waited for.

    Returns:
        The path of its archive, which is one of `docker save`.

    Raises:
        NotBuilt: a command failed.
    """
    directory = os.path.join(cache(), "image")
    os.makedirs(directory, exist_ok=True)
    archive = f"{directory}/image-{_digest()}.tar"
    with open(f"{directory}/lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(archive):
            for older in glob.glob(f"{directory}/image-*.tar"):
                os.unlink(older)
            _make(archive, _base(directory))
    return archive


def _make(archive: str, base: str) -> None:
    """Builds the image. Its archive appears when it is complete."""
    with tempfile.TemporaryDirectory(prefix="podman-") as scratch:
        made = f"{scratch}/image.tar"
        _podman(scratch, "import", "--change", f"ENV PIP_CERT={AUTHORITIES}", base, BASE)
        _podman(
            *(scratch, "build", "--network", "host", "--tag", IMAGE),
            *(word for limit in LIMITS for word in ("--ulimit", limit)),
            *("--build-arg", f"BASE={BASE}", "-f", f"{ROOT}/packaging/Containerfile", ROOT),
            seconds=BUILD_SECONDS,
        )
        _podman(scratch, "save", "--format", "docker-archive", "--output", made, IMAGE)
        shutil.move(made, f"{archive}.new")
    os.rename(f"{archive}.new", archive)


def _base(directory: str) -> str:
    """The archive of the base, which is made if it is not there."""
    path = f"{directory}/{SUITE}.tar"
    if not os.path.exists(path):
        _run(
            *("mmdebstrap", "--quiet", "--variant=minbase"),
            "--include=python3,python3-venv,ca-certificates",
            f"--customize-hook=upload {AUTHORITIES} {AUTHORITIES}",
            *(SUITE, f"{path}.new.tar"),
            seconds=BASE_SECONDS,
        )
        os.rename(f"{path}.new.tar", path)
    return path


def _podman(scratch: str, *words: str, seconds: float = STEP_SECONDS) -> None:
    """Runs podman with all that is its own in a directory."""
    places = ("--root", f"{scratch}/storage", "--runroot", f"{scratch}/run")
    own = (*places, "--tmpdir", f"{scratch}/tmp")
    _run("podman", *own, "--runtime", "runc", "--cgroup-manager", "cgroupfs", *words,
         seconds=seconds)  # fmt: skip


def _run(*line: str, seconds: float) -> None:
    try:
        ran = subprocess.run(
            line,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NotBuilt(f"{' '.join(line)}: took more than {seconds:g} s") from error
    if ran.returncode != 0:
        said = ran.stdout.decode(errors="replace").splitlines()[-20:]
        raise NotBuilt("\n".join([f"{' '.join(line)}: status {ran.returncode}", *said]))


def _digest() -> str:
    """Tells apart what goes into the image."""
    names = ("pyproject.toml", "README.md", "LICENSE", "packaging/Containerfile")
    found = glob.glob(f"{ROOT}/liken_events/**", recursive=True)
    total = hashlib.sha256()
    for path in sorted([*(f"{ROOT}/{name}" for name in names), *found]):
        if os.path.isfile(path) and "__pycache__" not in path:
            with open(path, "rb") as file:
                total.update(f"{os.path.relpath(path, ROOT)}\n".encode() + file.read())
    return total.hexdigest()[:16]
