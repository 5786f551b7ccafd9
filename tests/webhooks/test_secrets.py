"""Secrets: what a triple may be, how it is stored, opened and shown, and the key it is stored under."""

import base64
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from platform_defs.arrivals.notify.kpi_message import MESSAGE_FIELDS
from platform_defs.errors import SettingsError
from platform_defs.webhooks import secrets
from platform_defs.webhooks.encryption import KEY_FILE, Encryption
from platform_defs.webhooks.errors import NoKey, SecretError
from platform_defs.webhooks.masking import mask_spellings, spellings_of
from platform_defs.webhooks.secrets import Secret, SecretKind


def storable(text: str, encryption: Encryption) -> str:
    return secrets.storable_secret(text, encryption, message_fields=MESSAGE_FIELDS)


@pytest.mark.parametrize(
    ("text", "kind", "key", "value"),
    [
        ("Query,token,abc123", SecretKind.QUERY, "token", "abc123"),
        ("Header,Authorization,Bearer a,b,c", SecretKind.HEADER, "Authorization", "Bearer a,b,c"),
        ('Body,json,{"appId":"x","n":[1,2]}', SecretKind.BODY, "json", '{"appId":"x","n":[1,2]}'),
        ("header, X-Key, spaced", SecretKind.HEADER, "X-Key", "spaced"),
    ],
)
def test_a_literal_is_stored_encrypted_shown_masked_and_opened_as_it_was(
    tmp_path: Path, text: str, kind: SecretKind, key: str, value: str
) -> None:
    kept = storable(text, Encryption(tmp_path))
    assert kept.startswith(f"{kind},{key},enc:v1:")
    assert value not in kept
    assert secrets.mask_secret(kept) == f"{kind},{key},***"
    assert secrets.reveal_secret(kept, Encryption(tmp_path)) == Secret(kind, key, value)
    assert value not in repr(secrets.reveal_secret(kept, Encryption(tmp_path)))


def test_equal_secrets_are_stored_equally_and_open_only_where_they_belong(tmp_path: Path) -> None:
    encryption = Encryption(tmp_path)
    kept = storable("Header,X-Key,same", encryption)
    assert kept == storable("Header,X-Key,same", encryption)
    assert kept != storable("Header,X-Key,other", encryption)
    moved = kept.replace("X-Key", "X-Echo")
    with pytest.raises(SecretError, match="does not open"):
        secrets.reveal_secret(moved, encryption)


def test_a_reference_stays_readable_and_is_read_when_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = storable("Header,Authorization,env:HOOK", Encryption(tmp_path))
    assert kept == secrets.mask_secret(kept) == "Header,Authorization,env:HOOK"
    with pytest.raises(SecretError, match="env:HOOK is not set"):
        secrets.reveal_secret(kept, Encryption(tmp_path))
    monkeypatch.setenv("HOOK", "Bearer later")
    assert secrets.reveal_secret(kept, Encryption(tmp_path)).value == "Bearer later"
    monkeypatch.setenv("HOOK", "two\r\nlines")
    with pytest.raises(SecretError, match="printable ASCII"):
        secrets.reveal_secret(kept, Encryption(tmp_path))
    assert not (tmp_path / KEY_FILE).exists(), "a reference needs no key"


def test_what_looks_encrypted_already_is_a_literal_like_any_other(tmp_path: Path) -> None:
    encryption = Encryption(tmp_path)
    kept = storable("Header,X-Key,enc:v1:AAAA", encryption)
    assert secrets.reveal_secret(kept, encryption).value == "enc:v1:AAAA"


@pytest.mark.parametrize(
    "text",
    [
        "hunter2",
        "Header,X-Key",
        "Cookie,a,hunter2",
        "Header,,hunter2",
        "Header,X Key,hunter2",
        "Header,Host,hunter2",
        "Header,content-length,hunter2",
        "Header,Transfer-Encoding,hunter2",
        "Header,Proxy-Authorization,hunter2",
        "Header,webhook-signature,hunter2",
        "Header,X-Key,hunter2\r\nX-Other: 1",
        "Header,X-Key,hünter2",
        "Header,X-Key,",
        "Query,,hunter2",
        "Body,json,hunter2",
        'Body,json,["hunter2"]',
        'Body,xml,{"a":"hunter2"}',
        'Body,json,{"event":"hunter2"}',
        "Header,X-Key,env:not a hunter2 name",
        "Header,X-Key," + "hunter2" * 400,
    ],
)
def test_a_triple_that_cannot_be_sent_is_refused_without_a_word_of_it(tmp_path: Path, text: str) -> None:
    with pytest.raises(SecretError) as caught:
        storable(text, Encryption(tmp_path))
    assert "hunter2" not in str(caught.value)


def test_a_signing_secret_is_that_of_standard_webhooks(tmp_path: Path) -> None:
    encryption = Encryption(tmp_path)
    text = "whsec_" + base64.b64encode(b"k" * 32).decode()
    kept = secrets.storable_signing_secret(text, encryption)
    assert kept.startswith("enc:v1:")
    assert secrets.reveal_signing_secret(kept, encryption) == text
    for wrong in ("hunter2", "whsec_", "whsec_!!!!", "whsec_" + base64.b64encode(b"short").decode()):
        with pytest.raises(SecretError, match="expected whsec_"):
            secrets.storable_signing_secret(wrong, encryption)


def test_processes_that_start_at_once_agree_on_one_key_that_only_its_owner_reads(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with ThreadPoolExecutor(8) as pool:
        sealed = set(pool.map(lambda _: Encryption(home).encrypt("x", "p"), range(16)))
    assert len(sealed) == 1
    assert [path.name for path in home.iterdir()] == [KEY_FILE]
    assert stat.S_IMODE((home / KEY_FILE).stat().st_mode) == 0o600


def test_a_key_is_created_only_in_a_home_that_is_there(tmp_path: Path) -> None:
    home = tmp_path / "elsewhere"
    with pytest.raises(NoKey, match="no key") as refused:
        Encryption(home).encrypt("x", "p")
    assert str(home) in refused.value.advice
    assert "PLATFORM_WEBHOOK_KEY" in refused.value.advice
    assert not home.exists()
    assert Encryption(home, "k" * 32).encrypt("x", "p")
    assert not home.exists()


def test_the_key_may_come_from_the_environment_and_a_wrong_one_opens_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_KEY", "k" * 32)
    sealed = Encryption(tmp_path, "env:THE_KEY").encrypt("x", "p")
    assert not list(tmp_path.iterdir())
    assert Encryption(tmp_path, "k" * 32).decrypt(sealed, "p") == "x"
    with pytest.raises(SecretError, match="does not open"):
        Encryption(tmp_path, "q" * 32).decrypt(sealed, "p")
    with pytest.raises(SettingsError, match="at least 32"):
        Encryption(tmp_path, "short").encrypt("x", "p")
    with pytest.raises(SettingsError, match="cannot be read"):
        Encryption(tmp_path / "absent").decrypt(sealed, "p")


@pytest.mark.parametrize(
    "echo",
    [
        "you sent Bearer s3cr/et+1",
        "token=s3cr%2Fet%2B1&x",
        '{"authorization": "s3cr\\/et+1", "raw": "s3cr/et+1"}'.replace("\\/", "/"),
        "basic QmVhcmVyIHMzY3IvZXQrMQ==",
    ],
)
def test_an_echoed_secret_is_masked_in_every_spelling(echo: str) -> None:
    forms = spellings_of(Secret(SecretKind.HEADER, "Authorization", "Bearer s3cr/et+1"), None)
    kept = mask_spellings(echo, forms)
    assert "s3cr" not in kept
    assert "QmVhcmVy" not in kept
    assert "***" in kept


def test_the_beginning_of_a_secret_at_the_end_of_a_cut_answer_is_masked() -> None:
    forms = spellings_of(Secret(SecretKind.BODY, "json", '{"appId":"hunter2hunter2"}'), None)
    assert mask_spellings("you said hunter2hun", forms, cut=True) == "you said ***"
    assert mask_spellings("you said hunter2hunter2", forms) == "you said ***"
