"""A gateway for tests: makes key files and signs assertions, right or wrong."""

import time
import uuid
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

ISSUER = "https://gateway.example"
AUDIENCE = "platform"


class SigningKey:
    def __init__(self, kid: str, folder: Path) -> None:
        self.kid = kid
        self.private = Ed25519PrivateKey.generate()
        self.path = folder / f"{kid}.pem"
        self.path.write_bytes(self.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))

    @property
    def setting(self) -> str:
        return f"{self.kid}=file:{self.path}"

    def sign(self, *, kid: str | None = None, without: str = "", **changes: Any) -> str:
        """A valid assertion for POST /api/openlineage, except for what the arguments change."""
        now = time.time()
        claims: dict[str, Any] = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "iat": int(now),
            "exp": int(now) + 60,
            "jti": uuid.uuid4().hex,
            "sub": "spark-prod",
            "method": "POST",
            "path": "/api/openlineage",
            **changes,
        }
        claims.pop(without, None)
        return jwt.encode(claims, self.private, algorithm="EdDSA", headers={"kid": kid or self.kid})
