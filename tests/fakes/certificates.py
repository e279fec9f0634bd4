"""Certificates for TLS on loopback, made anew by the openssl command."""

import os
import shutil
import subprocess

import pytest


def make_certificate(directory: str, name: str) -> tuple[str, str]:
    """A self-signed certificate for 127.0.0.1 and its key, as two paths. Skips without openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("the openssl command is not installed")
    certificate = os.path.join(directory, f"{name}.crt")
    key = os.path.join(directory, f"{name}.key")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", f"/CN={name}", "-keyout", key, "-out", certificate),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
            # Python's strict verification (3.13) wants what a CA has to have.
            *("-addext", "keyUsage=critical,keyCertSign,digitalSignature"),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key
