"""The files of `packaging/kustomize`, as a cluster gets them."""

from typing import Any

import yaml

from tests.cluster.real.agents import ROOT
from tests.cluster.real.client import PATCHES, Client, Object
from tests.cluster.real.objects import collection

DIRECTORY = f"{ROOT}/packaging/kustomize"

NAMESPACE = "liken-events"


def read(name: str) -> list[dict[str, Any]]:
    """The objects of a file."""
    with open(f"{DIRECTORY}/{name}", encoding="utf-8") as file:
        return [*yaml.safe_load_all(file)]


def apply(client: Client, name: str, **query: str) -> list[Object]:
    """Makes the objects of a file, or has them as it says, and returns them. A field that the API
    server does not know is an error.

    Args:
        client: who does it.
        name: of the file.
        query: what else the API server is to know, such as `dryRun`.
    """
    query |= {"fieldManager": "test", "force": "true", "fieldValidation": "Strict"}
    return [
        client.request(
            "PATCH",
            f"{collection(body, NAMESPACE)}/{body['metadata']['name']}",
            body,
            content_type=PATCHES["apply"],
            query=query,
        )
        for body in read(name)
    ]
