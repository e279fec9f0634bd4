import subprocess
from pathlib import Path
from typing import Literal

import pytest
import trio

from liken_events.cluster import BadConfiguration, Unavailable
from liken_events.cluster import kubernetes_access as access
from liken_events.cluster.kubernetes_access import Client, InCluster, Kubeconfig
from liken_events.core.model.names import printable
from tests.cluster.conftest import set_token
from tests.fakes.apifaults import Close, Hold, Lines, Raw
from tests.fakes.apiserver import ApiServer
from tests.fakes.certificates import make_certificate
from tests.fakes.kubeconfig import write_kubeconfig
from tests.fakes.waiting import until

NODE_PATH = "/api/v1/nodes/n1"


def client_for(api: ApiServer, tmp_path: Path, user: str = "token: some") -> Client:
    path = write_kubeconfig(tmp_path / "kubeconfig", api.url, user=user)
    return Client(Kubeconfig(path=path), connections=2)


def pod_load(api: ApiServer, pod: Path) -> InCluster:
    environ = {
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(api.port),
    }
    return InCluster(environ=environ, directory=str(pod))


def status(client: Client) -> int:
    return client.call("GET", NODE_PATH).status


def reason_of(client: Client) -> str:
    with pytest.raises(Unavailable) as caught:
        client.call("GET", NODE_PATH)
    return caught.value.reason


def test_a_pod_is_let_in_with_its_token_over_tls(pod: Path, certificate: tuple[str, str]) -> None:
    with ApiServer(token="first", certificate=certificate) as api:
        api.state.add_node("n1")
        client = Client(pod_load(api, pod), connections=1)
        assert status(client) == 200
        assert api.requests[0].headers["user-agent"].startswith("liken-events/")
        client.close()


def test_a_token_that_was_replaced_is_used_for_the_very_next_request(
    pod: Path, certificate: tuple[str, str]
) -> None:
    with ApiServer(token="first", certificate=certificate) as api:
        api.state.add_node("n1")
        client = Client(pod_load(api, pod), connections=1)
        assert status(client) == 200
        set_token(pod, "second")
        api.token = "second"
        assert [status(client), status(client)] == [200, 200]
        assert api.connections == 1
        client.close()


def test_a_token_that_is_refused_before_its_file_changed_is_given_up_on_without_a_restart(
    pod: Path, certificate: tuple[str, str]
) -> None:
    with ApiServer(token="second", certificate=certificate) as api:
        api.state.add_node("n1")
        client = Client(pod_load(api, pod), connections=1)
        assert [status(client), status(client)] == [401, 401]
        set_token(pod, "second")
        assert status(client) == 200
        client.close()


@pytest.mark.parametrize("content", [None, "", "\n", "bad\ntoken", "t\xf6ken"])
def test_a_moment_without_a_good_token_file_is_survived(
    pod: Path, certificate: tuple[str, str], content: str | None
) -> None:
    with ApiServer(token="first", certificate=certificate) as api:
        api.state.add_node("n1")
        client = Client(pod_load(api, pod), connections=1)
        token = pod / "token"
        token.unlink()
        if content is not None:
            token.write_text(content, encoding="latin-1")
        assert status(client) == 200
        client.close()


def test_a_pod_whose_files_are_gone_at_a_refusal_comes_back_with_them(
    pod: Path, certificate: tuple[str, str]
) -> None:
    with ApiServer(token="first", certificate=certificate) as api:
        api.state.add_node("n1")
        client = Client(pod_load(api, pod), connections=1)
        api.token = "second"
        assert status(client) == 401
        (pod / "token").unlink()
        assert reason_of(client).startswith(f"{pod}/token is missing")
        set_token(pod, "second")
        (pod / "token").symlink_to("..data/token")
        assert status(client) == 200
        client.close()


def test_a_server_that_another_authority_signed_is_not_trusted(pod: Path, tmp_path: Path) -> None:
    stranger = make_certificate(str(tmp_path), "stranger")
    with ApiServer(certificate=stranger) as api:
        client = Client(pod_load(api, pod), connections=1)
        assert reason_of(client).startswith(f"no trusted connection to {api.url}: ")
        assert "certificate verify failed" in reason_of(client)
        assert api.requests == []


def test_an_address_of_ipv6_is_written_as_a_url_wants_it(pod: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    client = Client(InCluster(environ=environ, directory=str(pod)), connections=1)
    assert client.host == "https://[fd00::1]:443"


@pytest.mark.parametrize("missing", ["token", "ca.crt"])
def test_a_pod_without_a_file_is_told_which(pod: Path, missing: str) -> None:
    (pod / missing).unlink()
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
    with pytest.raises(BadConfiguration) as caught:
        InCluster(environ=environ, directory=str(pod))()
    assert f"{pod}/{missing} is missing" in caught.value.reason


@pytest.mark.parametrize(("file", "why"), [("token", "holds no token"), ("ca.crt", "certificate")])
def test_a_pod_with_an_empty_file_is_told_which(pod: Path, file: str, why: str) -> None:
    (pod / file).unlink()
    (pod / file).write_text("")
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
    with pytest.raises(BadConfiguration) as caught:
        InCluster(environ=environ, directory=str(pod))()
    assert f"{pod}/{file}" in caught.value.reason
    assert why in caught.value.reason


def test_a_process_outside_of_a_pod_is_told_what_is_not_set(pod: Path) -> None:
    with pytest.raises(BadConfiguration, match="KUBERNETES_SERVICE_HOST"):
        InCluster(environ={}, directory=str(pod))()


GOOD_CLUSTER = "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n"
GOOD_CONTEXT = "contexts: [{name: x, context: {cluster: c, user: u}}]\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is no use"),
        ("{", "is no use"),
        ("just text", "is no use"),
        ("[1, 2]", "is no use"),
        ("\x00", "is no use"),
        (GOOD_CLUSTER + GOOD_CONTEXT, "current-context"),
        (GOOD_CLUSTER + GOOD_CONTEXT + "current-context: other", "other"),
        (GOOD_CLUSTER + "contexts: [{name: x, context: text}]\ncurrent-context: x", "is no use"),
        (GOOD_CLUSTER + "contexts: {x: y}\ncurrent-context: x", "is no use"),
        (
            "clusters: [{name: c, cluster: {}}]\n" + GOOD_CONTEXT + "current-context: x",
            "no server",
        ),
        (
            "clusters: [{name: c, cluster: {server: 'https://h', certificate-authority: gone}}]\n"
            + GOOD_CONTEXT
            + "current-context: x",
            "gone",
        ),
        (
            "clusters: [{name: c, cluster: {server: 'https://h',"
            " certificate-authority-data: a}}]\n" + GOOD_CONTEXT + "current-context: x",
            "is no use",
        ),
    ],
)
def test_a_bad_kubeconfig_is_named_with_what_is_wrong(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(BadConfiguration) as caught:
        Kubeconfig(path=str(path))()
    reason = caught.value.reason
    assert reason.startswith(f"{path} ")
    assert why in reason
    assert reason == printable(reason)


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none"
    with pytest.raises(BadConfiguration, match="does not exist"):
        Kubeconfig(path=str(path))()


def test_a_certificate_that_is_none_is_named_at_the_start(tmp_path: Path) -> None:
    bad = tmp_path / "ca.crt"
    bad.write_text("no certificate")
    path = write_kubeconfig(tmp_path / "kubeconfig", "https://127.0.0.1:1", certificate=str(bad))
    with pytest.raises(BadConfiguration) as caught:
        Kubeconfig(path=path)()
    assert caught.value.reason.startswith(f"{path} is no use: {bad} is no certificate: ")


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(
    tmp_path: Path, certificate: tuple[str, str]
) -> None:
    locked = tmp_path / "locked.key"
    command = ["openssl", "ec", "-aes256", "-passout", "pass:secret", "-in", certificate[1]]
    subprocess.run([*command, "-out", str(locked)], check=True, capture_output=True)
    user = f'client-certificate: "{certificate[0]}", client-key: "{locked}"'
    path = write_kubeconfig(tmp_path / "kubeconfig", "https://127.0.0.1:1", user=user)
    with pytest.raises(BadConfiguration, match="is no certificate"):
        Kubeconfig(path=path)()


def test_several_kubeconfigs_are_merged_and_a_context_may_be_chosen(tmp_path: Path) -> None:
    first = write_kubeconfig(tmp_path / "first", "http://127.0.0.1:1")
    second = tmp_path / "second"
    second.write_text(
        "clusters: [{name: there, cluster: {server: 'http://127.0.0.1:2'}}]\n"
        "contexts: [{name: that, context: {cluster: there}}]\n"
    )
    paths = f"{first}:{second}:{tmp_path / 'missing'}"
    assert Kubeconfig(path=paths)().host == "http://127.0.0.1:1"
    assert Kubeconfig(path=paths, context="that")().host == "http://127.0.0.1:2"


def test_a_kubeconfig_is_read_again_after_a_refusal(api: ApiServer, tmp_path: Path) -> None:
    api.state.add_node("n1")
    api.token = "new"
    client = client_for(api, tmp_path, user="token: old")
    assert status(client) == 401
    client_for(api, tmp_path, user="token: new")
    assert status(client) == 200
    client.close()


def test_a_token_file_of_a_kubeconfig_is_read_again_after_a_refusal(
    api: ApiServer, tmp_path: Path
) -> None:
    api.state.add_node("n1")
    api.token = "new"
    token = tmp_path / "token"
    token.write_text("old")
    client = client_for(api, tmp_path, user=f'tokenFile: "{token}"')
    assert status(client) == 401
    token.write_text("new")
    assert status(client) == 200
    client.close()


def test_a_program_that_makes_tokens_is_run_again_after_a_refusal(
    api: ApiServer, tmp_path: Path
) -> None:
    api.state.add_node("n1")
    api.token = "made-2"
    count = tmp_path / "count"
    program = tmp_path / "program"
    credential = (
        '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",'
        ' "status": {"token": "made-%s"}}'
    )
    program.write_text(f"#!/bin/sh\necho . >> {count}\nprintf '{credential}' $(wc -l < {count})\n")
    program.chmod(0o755)
    made_by = f'{{apiVersion: client.authentication.k8s.io/v1, command: "{program}"}}'
    client = client_for(api, tmp_path, user=f"exec: {made_by}")
    assert status(client) == 401
    assert status(client) == 200
    client.close()


def test_a_client_certificate_is_shown(tmp_path: Path, certificate: tuple[str, str]) -> None:
    user = f'client-certificate: "{certificate[0]}", client-key: "{certificate[1]}"'
    with ApiServer(certificate=certificate, trusted_clients=certificate[0]) as api:
        api.state.add_node("n1")
        path = write_kubeconfig(
            tmp_path / "kubeconfig", api.url, user=user, certificate=certificate[0]
        )
        client = Client(Kubeconfig(path=path), connections=1)
        assert status(client) == 200
        client.close()


def test_one_connection_serves_many_calls_whatever_they_are_answered(
    api: ApiServer, tmp_path: Path
) -> None:
    api.state.add_node("n1")
    client = client_for(api, tmp_path)
    for path in (NODE_PATH, "/nonsense", "/api/v1/nodes/n2", NODE_PATH):
        client.call("GET", path)
    assert len(api.requests) == 4
    assert api.connections == 1
    client.close()


def test_a_connection_that_the_server_closed_meanwhile_is_replaced(
    api: ApiServer, tmp_path: Path
) -> None:
    api.state.add_node("n1")
    client = client_for(api, tmp_path)
    assert status(client) == 200
    api.stop()
    api.start()
    assert status(client) == 200
    client.close()


def test_a_refused_connection_is_said_in_the_systems_words(api: ApiServer, tmp_path: Path) -> None:
    client = client_for(api, tmp_path)
    api.stop()
    assert reason_of(client) == f"no connection to {api.url}: Connection refused"


def test_the_same_trouble_is_told_in_the_same_words(api: ApiServer, tmp_path: Path) -> None:
    client = client_for(api, tmp_path)
    api.fail(Close(), times=2)
    first, second = reason_of(client), reason_of(client)
    assert first == second
    assert first.startswith(f"the connection to {api.url} broke: ")


def test_a_name_that_does_not_exist_is_named(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "kubeconfig", "http://nowhere.invalid:1")
    client = Client(Kubeconfig(path=path), connections=1)
    assert reason_of(client).startswith("the name in http://nowhere.invalid:1 cannot be resolved")


def test_a_server_that_does_not_answer_is_given_up_on(
    api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "ANSWER_SECONDS", 0.05)
    client = client_for(api, tmp_path)
    hold = Hold()
    api.fail(hold)
    assert reason_of(client) == f"{api.url} did not answer in time"
    hold.released.set()


@pytest.mark.parametrize(("end", "why"), [("break", "broke"), ("silence", "did not answer")])
def test_an_answer_that_stops_in_the_middle_is_no_answer(
    api: ApiServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    end: Literal["break", "silence"],
    why: str,
) -> None:
    if end == "silence":
        monkeypatch.setattr(access, "ANSWER_SECONDS", 0.1)
    client = client_for(api, tmp_path)
    api.fail(Lines(chunks=(b'{"half":',), end=end))
    assert why in reason_of(client)


def test_a_redirect_is_an_answer_and_not_followed(api: ApiServer, tmp_path: Path) -> None:
    client = client_for(api, tmp_path)
    api.fail(Raw(body=b"", status=302, headers={"Location": f"{api.url}/elsewhere"}))
    assert status(client) == 302
    assert len(api.requests) == 1
    client.close()


def test_a_path_in_the_servers_url_is_kept(api: ApiServer, tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "kubeconfig", f"{api.url}/k8s/clusters/one/")
    client = Client(Kubeconfig(path=path), connections=1)
    client.call("GET", NODE_PATH, query={"a": "b c"})
    assert api.requests[0].path == f"/k8s/clusters/one{NODE_PATH}?a=b+c"
    client.close()


async def test_a_refusal_in_one_thread_breaks_no_call_of_another(
    api: ApiServer, tmp_path: Path
) -> None:
    api.state.add_node("n1")
    client = client_for(api, tmp_path)
    hold = Hold()
    api.fail(hold)
    slow: list[int] = []
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:

            async def call_slowly() -> None:
                slow.append(await trio.to_thread.run_sync(status, client))

            nursery.start_soon(call_slowly)
            await until(lambda: api.requests)
            api.token = "other"
            assert await trio.to_thread.run_sync(status, client) == 401
            api.token = None
            hold.released.set()
    assert slow == [200]
    client.close()
