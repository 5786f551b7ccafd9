"""A key says at its issue, beside stdout, what it will be refused."""

import pytest

from tests.commands.command_line import RunPlatform


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--scopes lineage:write --source-type compute", "no event of this key will be accepted"),
        ("--scopes lineage:write", "this key can post Gravitino's events alone"),
        ("--scopes lineage:write --source-type gravitino", None),
        ("--scopes arrivals:write,arrivals:read", None),
    ],
)
def test_a_key_that_will_be_refused_says_so_when_it_is_issued(
    run_platform: RunPlatform, options: str, said: str | None
) -> None:
    code, out, err = run_platform("keys", "issue", "spark", *options.split())
    assert code == 0
    assert out.startswith("pk_"), "the key stands alone on stdout, for programs"
    assert out.count("\n") == 1
    if said is None:
        assert err == ""
    else:
        assert err.startswith(f"platform: {said}")
        assert "--tenant" in err, "what to do about it"
