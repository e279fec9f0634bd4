"""A client with all rights, by which tests see and change a cluster.

It shares no code with the agent's own: what the agent says of the cluster is compared with what is
here.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

import urllib3

from tests.cluster.real.polling import poll

ANSWER_SECONDS = 30.0
"""Bound for one answer. Deleting a namespace and the like is answered at once, and awaited."""

PATCHES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}

RESOURCE = "/apis/resource.k8s.io/v1"

Object = dict[str, Any]


class Refused(Exception):
    """The API server said no.

    Attributes:
        status: of HTTP.
        reason: Kubernetes' own, such as `Conflict`; empty if there is none.
        message: what it says to people.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class Late(Exception):
    """What was waited for did not come in time; the message has what was seen last."""


class Client:
    """An API server, as one user sees it. May be used by several threads.

    Args:
        url: of the server.
        certificate: the path of the authority that is trusted.
        token: the bearer token.
    """

    def __init__(self, url: str, certificate: str, token: str) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._pool = urllib3.PoolManager(
            ca_certs=certificate, retries=False, timeout=ANSWER_SECONDS, maxsize=8
        )

    def close(self) -> None:
        """Closes the connections."""
        self._pool.clear()

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Any:
        """Sends a request and returns what the answer's JSON holds, or its text if it is none.

        Raises:
            Refused: the answer's status says no.
            urllib3.exceptions.HTTPError: there was no answer.
        """
        url = self._url + path + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body).encode()
        headers = (
            self._headers if data is None else {**self._headers, "Content-Type": content_type}
        )
        answer = self._pool.request(method, url, body=data, headers=headers)
        text = answer.data.decode(errors="replace")
        try:
            content = json.loads(text)
        except ValueError:
            content = text
        if answer.status >= 300:
            said = content if isinstance(content, dict) else {}
            raise Refused(answer.status, said.get("reason", ""), said.get("message", text))
        return content

    def find(self, path: str) -> Object | None:
        """The object at a path; None if there is none."""
        try:
            found: Object = self.request("GET", path)
        except Refused as error:
            if error.status == 404:
                return None
            raise
        return found

    def get(self, path: str) -> Object:
        """The object at a path."""
        found: Object = self.request("GET", path)
        return found

    def items(self, path: str, **query: str) -> list[Object]:
        """The objects of a collection; `fieldSelector` and the like choose among them."""
        items: list[Object] = self.request("GET", path, query=query)["items"]
        return items

    def create(self, path: str, body: Object) -> Object:
        """Adds an object to the collection at a path."""
        made: Object = self.request("POST", path, body)
        return made

    def patch(self, path: str, body: object, *, kind: str = "merge") -> Object:
        """Changes the object at a path.

        Args:
            path: of the object.
            body: the patch.
            kind: one of `merge`, `json` (a list of operations) and `apply` (of the field manager
                `test`).
        """
        query = {"fieldManager": "test", "force": "true"} if kind == "apply" else None
        made: Object = self.request("PATCH", path, body, content_type=PATCHES[kind], query=query)
        return made

    def delete(self, path: str, *, grace: int | None = None) -> None:
        """Deletes the object at a path, or all of a collection.

        Args:
            path: of the object or collection.
            grace: seconds that a pod is given to end; None for its own number.
        """
        options = {} if grace is None else {"gracePeriodSeconds": grace}
        self.request("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions", **options})

    def until(
        self,
        path: str,
        condition: Callable[[Object], object],
        *,
        seconds: float = 10.0,
    ) -> Object:
        """Waits until there is an object at a path for which the condition holds; returns it.

        Raises:
            Late: there was none within `seconds`.
        """
        seen: Object | None = None

        def holds() -> bool:
            nonlocal seen
            seen = self.find(path)
            return seen is not None and bool(condition(seen))

        if not poll(holds, seconds) or seen is None:
            raise Late(f"{path} after {seconds:g} s: {json.dumps(seen)}")
        return seen

    def until_gone(self, path: str, *, seconds: float = 10.0) -> None:
        """Waits until there is no object at a path.

        Raises:
            Late: there is one after `seconds`.
        """
        if not poll(lambda: self.find(path) is None, seconds):
            raise Late(f"{path} is there after {seconds:g} s")

    def account_token(self, namespace: str, name: str, *, seconds: int = 3600) -> str:
        """A token of a service account, by the TokenRequest API.

        Args:
            namespace: of the account.
            name: of the account.
            seconds: how long it holds; the API server takes no less than 600.
        """
        answer = self.create(
            f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": seconds},
            },
        )
        token: str = answer["status"]["token"]
        return token
