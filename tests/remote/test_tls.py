"""Certificates: a server that nobody vouches for is not spoken to."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import dgent
from dgent.errors import InputError, Unavailable
from dgent.universe.gate import Principal
from dgent.universe.token import create_token
from tests.http.process import serve


def make_certificate(folder: Path, host: str) -> tuple[Path, Path]:
    """Write a certificate that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dgent test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    file, key_file = folder / f"{host}.pem", folder / f"{host}.key"
    file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return file, key_file


async def test_only_a_trusted_certificate_for_this_very_host(store_path: Path) -> None:
    store = f"sqlite:///{store_path / 'store.db'}"
    async with dgent.open(store) as here:
        _, token = await create_token(here, Principal("scout", "partner"))
    file, key = make_certificate(store_path, "127.0.0.1")
    other, _ = make_certificate(store_path, "127.0.0.2")
    async with serve(store, store_path, ["--tls-cert", str(file), "--tls-key", str(key)]) as server:
        url = f"https://127.0.0.1:{server.port}"
        async with dgent.open(f"{url}?ca={file}", token=token) as u:
            made = await u.remember({"n": 1})
            assert (await u.get(made.id)).data == {"n": 1}
        for refused in (url, f"{url}?ca={other}", f"https://localhost:{server.port}?ca={file}"):
            with pytest.raises(Unavailable, match="certificate") as caught:
                await dgent.open(refused, token=token)
            assert token not in str(caught.value)
        with pytest.raises(Unavailable):
            await dgent.open(f"http://127.0.0.1:{server.port}?timeout=5", token=token)
        with pytest.raises(InputError, match=r"none\.pem"):
            await dgent.open(f"{url}?ca={store_path}/none.pem", token=token)
