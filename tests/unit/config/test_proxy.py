"""Which proxy the environment asks for."""

from __future__ import annotations

import pytest

from nodeagent.config import environment_proxy


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("http://example.com/x", "http://proxy:1"),
        ("https://example.com/x", "http://secure:2"),
        ("http://inside.example.org/", None),
        ("http://127.0.0.1:8080/", None),
        ("http://[::1]/", None),
        ("http://localhost/", None),
        ("http://10.0.0.1/", "http://proxy:1"),
    ],
)
def test_the_environment_names_the_proxy(
    monkeypatch: pytest.MonkeyPatch, url: str, proxy: str | None
) -> None:
    for name in ("http", "https", "no", "all"):
        for spelt in (f"{name}_proxy", f"{name}_proxy".upper()):
            monkeypatch.delenv(spelt, raising=False)
    monkeypatch.setenv("http_proxy", "http://proxy:1")
    monkeypatch.setenv("HTTPS_PROXY", "secure:2")
    monkeypatch.setenv("NO_PROXY", "example.org")
    assert environment_proxy(url) == proxy
    monkeypatch.delenv("http_proxy")
    monkeypatch.delenv("HTTPS_PROXY")
    assert environment_proxy(url) is None
