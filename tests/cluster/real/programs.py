"""The programs of a cluster, built from their Go modules into directories that are kept.

`tests/cluster/programs` holds a few lines of Go for each. `go.mod` and `go.sum` name what they are
built of, every module with its checksum: the newest releases. A pair like `v1.34.mod` and
`v1.34.sum` names another release of Kubernetes, to be used with the newest of everything else.
What is built once is found again by a hash over all of it.
"""

import fcntl
import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass

MODULE = "tests.cluster.real.programs"
"""Run by itself, it builds."""

SOURCES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "programs")

NEWEST = "go"
"""The name of the pair for the newest releases."""

GO_PATH = "/usr/local/go/bin"
"""Where Go's own archive puts the go command, which is seldom in the path of root."""

EVERY_PROGRAM = ("containerd", "containerd-shim-runc-v2", "etcd", "kubernetes", "pause")

TAGS = (
    *("no_btrfs", "no_devmapper", "no_zfs", "no_tracing", "no_rdt"),  # parts of containerd
    "grpcnotrace",  # keeps html/template out, with which the linker can leave out less
)

FLAGS = (
    *("-buildvcs=false", "-trimpath", "-mod=readonly"),
    f"-tags={','.join(TAGS)}",
    "-gcflags=all=-dwarf=false",  # the linker would drop it after all: a fifth of the compiling
)

OLD = ("v1.34.", "v1.35.")
"""Releases in which much of what the agent can use is off unless it is asked for."""

GATES = (
    "DRAConsumableCapacity",  # devices for several claims
    "DRAPartitionableDevices",  # slices of several nodes, which the policy is to refuse
)
"""What is asked for. How devices fare (`ResourceHealthStatus`) is not: these kubelets show it only
of a claim that the container calls as the cluster does."""

KUBERNETES = re.compile(r"^\s*k8s\.io/kubernetes (v(\d+)\.(\d+)\.\S+)$", re.MULTILINE)


class NotBuilt(Exception):
    """The programs cannot be had; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """Programs that are there.

    Attributes:
        directory: where they are; it belongs into the PATH of containerd, which starts its shim.
        version: the release of Kubernetes, such as `v1.37.2`.
        multiple: the program that is all of Kubernetes, of that release.
    """

    directory: str
    version: str
    multiple: str

    @property
    def etcd(self) -> str:
        return os.path.join(self.directory, "etcd")

    @property
    def containerd(self) -> str:
        return os.path.join(self.directory, "containerd")

    @property
    def pause(self) -> str:
        return os.path.join(self.directory, "pause")

    def kubernetes(self, name: str) -> tuple[str, ...]:
        """The first words of a command line for one of `kube-apiserver`,
        `kube-controller-manager`, `kube-scheduler` and `kubelet`."""
        gates = GATES if self.is_old else ()
        return self.multiple, name, *(f"--feature-gates={gate}=true" for gate in gates)

    @property
    def is_old(self) -> bool:
        """Whether it is a release that lacks some of what is tested, see `OLD`."""
        return self.version.startswith(OLD)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Build:
    """What a pair of files is built into.

    Attributes:
        release: the pair's name.
        version: the release of Kubernetes.
        directory: where it is, or is to be.
    """

    release: str
    version: str
    directory: str

    @property
    def names(self) -> tuple[str, ...]:
        """The programs: all, or Kubernetes alone."""
        return EVERY_PROGRAM if self.release == NEWEST else ("kubernetes",)

    @property
    def is_made(self) -> bool:
        return os.path.isdir(self.directory)


def what_is_missing() -> str | None:
    """One sentence that says what to install for building; None if nothing is missing."""
    if _go() is None:
        return (
            "Go is missing, which builds Kubernetes for the tests on a real cluster: "
            f"1.21 or later, as {GO_PATH}/go or in the path"
        )
    return None


def find(release: str = NEWEST) -> Programs | None:
    """What `build` made before; None if it has to be made.

    Raises:
        NotBuilt: no such release is known.
    """
    builds = _read(NEWEST), _read(release)
    return _joined(*builds) if all(each.is_made for each in builds) else None


def build(release: str = NEWEST) -> Programs:
    """Builds the programs, unless they are there.

    It takes many minutes the first time, most of them compiling; what the go command keeps in its
    own caches is used. Another process that builds the same meanwhile is waited for.

    Args:
        release: the name of a pair of `.mod` and `.sum` files.

    Raises:
        NotBuilt: no such release is known, or a module cannot be had or does not compile; the
            message ends with what the go command said.
    """
    builds = _read(NEWEST), _read(release)
    for each in builds:
        os.makedirs(cache(), exist_ok=True)
        with open(f"{each.directory}.lock", "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not each.is_made:
                _make(each)
    return _joined(*builds)


def _make(build: _Build) -> None:
    """Builds into a directory beside the right one, which appears when it is complete."""
    go = _go()
    if go is None:
        raise NotBuilt(what_is_missing())
    with tempfile.TemporaryDirectory(prefix="building-", dir=cache()) as directory:
        made = os.path.join(directory, "bin")
        line = [
            *(go, "build", f"-modfile={build.release}.mod", *FLAGS),
            f"-ldflags={' '.join(['-s', '-w', *_stamps(build.version)])}",
            *("-o", f"{made}/", *(f"./{name}" for name in build.names)),
        ]
        environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"}
        ran = subprocess.run(
            line,
            cwd=SOURCES,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if ran.returncode != 0:
            said = ran.stderr.decode(errors="replace").splitlines()[-20:]
            raise NotBuilt("\n".join([f"{' '.join(line)}: status {ran.returncode}", *said]))
        os.rename(made, build.directory)


def _stamps(version: str) -> list[str]:
    """Flags for the linker: the version that the programs report, which no source file has."""
    match = re.fullmatch(r"v(\d+)\.(\d+)\..*", version)
    assert match is not None
    values = {"gitVersion": version, "gitMajor": match[1], "gitMinor": match[2]}
    return [
        f"-X {package}.{name}={value}"
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        for name, value in values.items()
    ]


def _read(release: str) -> _Build:
    """What a pair says.

    Raises:
        NotBuilt: there is no such pair.
    """
    paths = [f"{SOURCES}/{release}.mod", f"{SOURCES}/{release}.sum"]
    if not all(os.path.exists(path) for path in paths):
        known = sorted(os.path.basename(path)[:-4] for path in glob.glob(f"{SOURCES}/*.sum"))
        raise NotBuilt(f"no release {release!r} in {SOURCES}; there are: {', '.join(known)}")
    total = hashlib.sha256(repr(FLAGS).encode())
    for path in [*paths, *sorted(glob.glob(f"{SOURCES}/*/*.go"))]:
        with open(path, "rb") as file:
            total.update(file.read())
    with open(paths[0], encoding="utf-8") as file:
        required = KUBERNETES.search(file.read())
    assert required is not None, f"{paths[0]} requires no k8s.io/kubernetes"
    directory = os.path.join(cache(), total.hexdigest()[:16])
    return _Build(release=release, version=required[1], directory=directory)


def _joined(newest: _Build, wanted: _Build) -> Programs:
    return Programs(
        directory=newest.directory,
        version=wanted.version,
        multiple=os.path.join(wanted.directory, "kubernetes"),
    )


def cache() -> str:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(home, "liken-events", "cluster")


def _go() -> str | None:
    return shutil.which("go", path=os.pathsep.join([os.environ.get("PATH", ""), GO_PATH]))


def main(releases: list[str]) -> None:
    """Builds what is named, or the newest, and says where it is."""
    for release in releases or [NEWEST]:
        try:
            programs = build(release)
        except NotBuilt as error:
            sys.exit(str(error))
        sys.stdout.write(f"{programs.version} {programs.multiple}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
