from dataclasses import replace

import pytest

from liken_events.core.model.host_devices import (
    KVM,
    MOST_UNITS,
    SOCKET_LENGTH,
    BadHostDevice,
    HostDevice,
    check_together,
    checked,
    from_table,
    from_text,
)

NET = HostDevice(resource="ate.dev/net", paths=("/dev/net/tun", "/dev/vhost-net"), count=3)
EVENTS = HostDevice(resource="ate.dev/input", paths=("/dev/input/event*",))


def named(resource: str) -> HostDevice:
    return HostDevice(resource=resource, paths=("/dev/kvm",))


def at(*paths: str) -> HostDevice:
    return HostDevice(resource="ate.dev/kvm", paths=paths)


def test_the_default_is_kvm_for_any_number_of_pods() -> None:
    assert checked(KVM) == KVM
    assert (KVM.resource, KVM.paths, KVM.count) == ("ate.dev/kvm", ("/dev/kvm",), 4096)
    assert KVM.permissions == "rw"
    assert KVM.socket == "ate.dev-kvm.sock"
    assert not KVM.is_pattern
    assert str(KVM) == "ate.dev/kvm=/dev/kvm"


@pytest.mark.parametrize(
    "resource",
    [
        "ate.dev/kvm",
        "a/b",
        "devices.kubevirt.io/kvm",
        "a-b.c-d/E_f.g-1",
        "0.1/2",
        "requests/x",
        "kubernetes.io.a.b/x",
        f"a.b/{'x' * 63}",
        f"{'a' * 244}/{'x' * 63}",
    ],
)
def test_a_resource_has_a_name_that_kubernetes_takes(resource: str) -> None:
    assert checked(named(resource)).resource == resource


NO_NAME = "the resource has to be a domain, '/' and a name, such as ate.dev/kvm"
NO_LAST = "the name after '/' has to have at most 63 letters"
THEIRS = "domains that end with 'kubernetes.io' are Kubernetes' own"


@pytest.mark.parametrize(
    ("resource", "complaint"),
    [
        ("", NO_NAME),
        ("kvm", NO_NAME),
        ("/kvm", NO_NAME),
        ("Ate.dev/kvm", NO_NAME),
        ("ate_dev/kvm", NO_NAME),
        ("ate..dev/kvm", NO_NAME),
        (".ate.dev/kvm", NO_NAME),
        ("ate.dev./kvm", NO_NAME),
        ("-ate.dev/kvm", NO_NAME),
        ("ate-.dev/kvm", NO_NAME),
        ("ate.dev\n/kvm", NO_NAME),
        ("äte.dev/kvm", NO_NAME),
        ("ate.dev/", NO_LAST),
        ("ate.dev/a/b", NO_LAST),
        ("ate.dev/-kvm", NO_LAST),
        ("ate.dev/kvm.", NO_LAST),
        ("ate.dev/k v", NO_LAST),
        ("ate.dev/kvm\n", NO_LAST),
        ("ate.dev/٣", NO_LAST),
        (f"a.b/{'x' * 64}", NO_LAST),
        (f"{'a' * 245}/x", "the domain before '/' has more than 244 characters"),
        ("kubernetes.io/kvm", THEIRS),
        ("a.kubernetes.io/kvm", THEIRS),
        ("mykubernetes.io/kvm", THEIRS),
        ("requests.a.b/kvm", "a domain that begins with 'requests.' means quotas to Kubernetes"),
    ],
)
def test_a_name_that_kubernetes_would_refuse_is_refused(resource: str, complaint: str) -> None:
    with pytest.raises(BadHostDevice) as caught:
        checked(named(resource))
    assert str(caught.value).startswith(complaint)


@pytest.mark.parametrize(
    "path",
    ["/dev/kvm", "/dev/net/tun", "/dev/ttyUSB*", "/dev/a/[0-9]?", "/dev/...", "/dev/ä b,c+d"],
)
def test_a_path_is_any_name_under_dev(path: str) -> None:
    assert checked(at(path)).paths == (path,)


OUTSIDE = "is no path under /dev"
CROOKED = "is no plain path: leave out '.', '..', doubled '/' and a '/' at the end"
WILD = "has a pattern in another part than its last"
UNSHOWN = "has a character that cannot be shown"


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("", OUTSIDE),
        ("kvm", OUTSIDE),
        ("/dev", OUTSIDE),
        ("/dev/", OUTSIDE),
        ("/etc/passwd", OUTSIDE),
        ("/device/kvm", OUTSIDE),
        ("//dev/kvm", OUTSIDE),
        ("/dev/../etc/passwd", CROOKED),
        ("/dev/a/..", CROOKED),
        ("/dev/./kvm", CROOKED),
        ("/dev//kvm", CROOKED),
        ("/dev/kvm/", CROOKED),
        ("/dev/*/kvm", WILD),
        ("/dev/a?/b/kvm*", WILD),
        ("/dev/[ab]/kvm", WILD),
        ("/dev/kv\0m", UNSHOWN),
        ("/dev/kv\nm", UNSHOWN),
        ("/dev/kv\udcffm", UNSHOWN),
    ],
)
def test_any_other_path_is_refused_by_its_name(path: str, complaint: str) -> None:
    with pytest.raises(BadHostDevice) as caught:
        checked(at("/dev/good", path))
    assert str(caught.value).endswith(f"' {complaint}")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("device", "complaint"),
    [
        (at(), "it names no path"),
        (at("/dev/a", "/dev/b", "/dev/a"), "it names a path twice"),
        (replace(KVM, count=0), f"the count has to be 1 to {MOST_UNITS}"),
        (replace(KVM, count=-1), f"the count has to be 1 to {MOST_UNITS}"),
        (replace(KVM, count=MOST_UNITS + 1), f"the count has to be 1 to {MOST_UNITS}"),
        (
            replace(EVENTS, count=8),
            "with a pattern each node is one unit, so there is no count to give",
        ),
        (replace(KVM, permissions=""), "permissions are letters of 'rwm', each once"),
        (replace(KVM, permissions="rwx"), "permissions are letters of 'rwm', each once"),
        (replace(KVM, permissions="rr"), "permissions are letters of 'rwm', each once"),
        (replace(KVM, permissions="RW"), "permissions are letters of 'rwm', each once"),
        (replace(KVM, permissions="r w"), "permissions are letters of 'rwm', each once"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(device: HostDevice, complaint: str) -> None:
    with pytest.raises(BadHostDevice) as caught:
        checked(device)
    assert str(caught.value) == complaint


@pytest.mark.parametrize(("count", "permissions"), [(1, "r"), (MOST_UNITS, "rwm"), (2, "mw")])
def test_the_ends_of_what_can_be_are_taken(count: int, permissions: str) -> None:
    device = replace(KVM, count=count, permissions=permissions)
    assert checked(device) == device


@pytest.mark.parametrize(
    ("text", "resource", "paths"),
    [
        ("ate.dev/kvm=/dev/kvm", "ate.dev/kvm", ("/dev/kvm",)),
        ("a.b/net=/dev/net/tun+/dev/vhost-net", "a.b/net", ("/dev/net/tun", "/dev/vhost-net")),
        ("a.b/tty=/dev/ttyUSB*", "a.b/tty", ("/dev/ttyUSB*",)),
        ("a.b/c=/dev/x=y", "a.b/c", ("/dev/x=y",)),
    ],
)
def test_a_text_names_the_resource_and_its_nodes(
    text: str, resource: str, paths: tuple[str, ...]
) -> None:
    device = from_text(text)
    assert device == HostDevice(resource=resource, paths=paths)
    assert str(device) == text


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "this is not of the form RESOURCE=PATH"),
        ("none", "this is not of the form RESOURCE=PATH"),
        ("/dev/kvm", "this is not of the form RESOURCE=PATH"),
        ("=/dev/kvm", NO_NAME),
        ("a.b/c=", f"'' {OUTSIDE}"),
        ("a.b/c=/dev/a+", f"'' {OUTSIDE}"),
        ("a.b/c=/dev/a+/dev/a", "it names a path twice"),
        ("a.b/c =/dev/a", NO_LAST),
        (
            "a.b/c=/dev/a,a.b/d=/dev/b",
            "give each resource by itself, and a path with ',' in a file's table",
        ),
    ],
)
def test_any_other_text_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(BadHostDevice) as caught:
        from_text(text)
    assert str(caught.value).startswith(complaint)


def test_a_table_may_say_everything_or_only_what_it_must() -> None:
    assert from_table({"resource": "ate.dev/kvm", "path": "/dev/kvm"}) == KVM
    everything = {
        "resource": "a.b/c",
        "paths": ["/dev/net/tun", "/dev/a,b+c"],
        "count": 7,
        "permissions": "r",
    }
    assert from_table(everything) == HostDevice(
        resource="a.b/c", paths=("/dev/net/tun", "/dev/a,b+c"), count=7, permissions="r"
    )


GOOD: dict[str, object] = {"resource": "a.b/c", "path": "/dev/a"}
EITHER = "it takes either 'path' or 'paths'"
TEXTS = "'path' has to be a text, 'paths' a list of texts"


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({}, EITHER),
        ({"resource": "a.b/c"}, EITHER),
        ({**GOOD, "paths": ["/dev/b"]}, EITHER),
        ({**GOOD, "path": 1}, TEXTS),
        ({**GOOD, "path": ["/dev/a"]}, TEXTS),
        ({"resource": "a.b/c", "paths": "/dev/a"}, TEXTS),
        ({"resource": "a.b/c", "paths": ["/dev/a", 1]}, TEXTS),
        ({"resource": "a.b/c", "paths": []}, "it names no path"),
        ({"path": "/dev/a"}, "'resource' has to be a text"),
        ({**GOOD, "resource": 1}, "'resource' has to be a text"),
        ({**GOOD, "count": "1"}, "'count' has to be a whole number"),
        ({**GOOD, "count": 1.0}, "'count' has to be a whole number"),
        ({**GOOD, "count": True}, "'count' has to be a whole number"),
        ({**GOOD, "permissions": ["r"]}, "'permissions' has to be a text"),
        ({**GOOD, "permisions": "r", "Count": 1}, "there is no key 'Count'"),
        ({**GOOD, "\x1b": 1}, r"there is no key '\x1b'"),
        ({**GOOD, "count": 0}, f"the count has to be 1 to {MOST_UNITS}"),
    ],
)
def test_any_other_table_is_refused(table: dict[str, object], complaint: str) -> None:
    with pytest.raises(BadHostDevice) as caught:
        from_table(table)
    assert str(caught.value) == complaint


def test_a_long_resource_has_a_short_socket_of_its_own() -> None:
    """DP-14: a name of 90 characters."""
    one, other = (named(f"{'a' * 40}.dev/{'b' * 44}{end}") for end in "xy")
    assert len(one.resource) == 90
    assert len(one.socket) == len(other.socket) == SOCKET_LENGTH
    assert one.socket != other.socket
    assert one.socket.endswith(".sock")
    assert len(f"/var/lib/kubelet/device-plugins/{one.socket}") <= 107


def test_a_socket_is_plainly_named_while_that_fits() -> None:
    name = "x" * (SOCKET_LENGTH - len("a.b-.sock"))
    assert named(f"a.b/{name}").socket == f"a.b-{name}.sock"
    assert named(f"a.b/{name}y").socket != f"a.b-{name}y.sock"


@pytest.mark.parametrize(
    ("resources", "complaint"),
    [
        (
            ("a.b/c-d", "x.y/z", "a.b-c/d"),
            "a.b/c-d and a.b-c/d would share the socket a.b-c-d.sock",
        ),
        (("a.b/c", "a.b/c"), "a.b/c is given twice"),
    ],
)
def test_two_resources_on_one_socket_are_refused(
    resources: tuple[str, ...], complaint: str
) -> None:
    with pytest.raises(BadHostDevice) as caught:
        check_together(named(resource) for resource in resources)
    assert str(caught.value) == complaint


def test_several_resources_may_have_one_node() -> None:
    check_together([KVM, named("devices.kubevirt.io/kvm"), named("ate.dev/KVM"), NET])
