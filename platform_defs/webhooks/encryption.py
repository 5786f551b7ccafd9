"""Encryption of secrets at rest, with a key from PLATFORM_WEBHOOK_KEY or from a file in PLATFORM_HOME.

It is deterministic (AES-SIV), because subscriptions with equal secrets share one delivery: equal texts have equal
ciphertexts, and a ciphertext reveals nothing else.
"""

import base64
import binascii
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.hashes import SHA512
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from platform_defs.errors import SettingsError
from platform_defs.settings import Settings, resolve_secret
from platform_defs.webhooks.errors import NoKey, SecretError

ENCRYPTED = "enc:v1:"
KEY_FILE = "webhook.key"
KEY_BYTES = 64
MIN_KEY = 32


@dataclass(frozen=True)
class Encryption:
    """Reads its key only when it encrypts or decrypts: listing subscriptions needs no key."""

    home: Path
    key: str = field(default="", repr=False)

    def encrypt(self, text: str, purpose: str) -> str:
        """The ciphertext can be decrypted only with the same `purpose`."""
        ciphertext = self._cipher(create=True).encrypt(text.encode(), [purpose.encode()])
        return ENCRYPTED + base64.urlsafe_b64encode(ciphertext).decode("ascii")

    def decrypt(self, stored: str, purpose: str) -> str:
        try:
            ciphertext = base64.urlsafe_b64decode(stored.removeprefix(ENCRYPTED).encode("ascii"))
            return self._cipher(create=False).decrypt(ciphertext, [purpose.encode()]).decode()
        except (InvalidTag, binascii.Error, ValueError):
            raise SecretError("the stored secret does not open with this PLATFORM_WEBHOOK_KEY or key file") from None

    def _cipher(self, *, create: bool) -> AESSIV:
        text = resolve_secret(self.key) if self.key else _key_in_file(self.home / KEY_FILE, create=create)
        if len(text) < MIN_KEY:
            raise SettingsError(f"PLATFORM_WEBHOOK_KEY: expected at least {MIN_KEY} random characters")
        derived = HKDF(algorithm=SHA512(), length=KEY_BYTES, salt=None, info=b"platform webhook secrets v1")
        return AESSIV(derived.derive(text.encode()))


def encryption_from(settings: Settings) -> Encryption:
    return Encryption(settings.home, settings.webhook_key.get_secret_value())


def _key_in_file(path: Path, *, create: bool) -> str:
    if create and not path.exists():
        _create_key_file(path)
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise SettingsError(f"the key of webhook secrets, {path}, cannot be read: {error.strerror}") from None


def _create_key_file(path: Path) -> None:
    """Links a finished draft into place: nobody reads half a key, and of two processes only the first creates one.

    The home must be there. One that is not is no platform's: what a key in it encrypts, no other process could open.
    """
    if not path.parent.is_dir():
        raise NoKey(path.parent)
    draft = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(48) + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            return
    finally:
        draft.unlink()
