"""Logins and the images they are for (docs/behaviour/images.md, "Credentials")."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.runtime.keyring import (
    Keyring,
    Login,
    MalformedLoginError,
    covers,
    parse_docker_config,
    registry_key,
    repository,
)


def login(name: str) -> Login:
    return Login(name, "secret")


def names(ring: Keyring[Login], image: str) -> list[str]:
    return [found.username for found in ring.lookup(repository(image))]


@pytest.mark.parametrize(
    ("image", "full"),
    [
        ("busybox", "docker.io/library/busybox"),
        ("busybox:1", "docker.io/library/busybox"),
        ("team/app:1", "docker.io/team/app"),
        ("docker.io/busybox", "docker.io/library/busybox"),
        ("index.docker.io/team/app", "docker.io/team/app"),
        ("localhost/app", "localhost/app"),
        ("127.0.0.1:5000/a/b:2", "127.0.0.1:5000/a/b"),
        (f"ghcr.io/a/b@sha256:{'a' * 64}", "ghcr.io/a/b"),
    ],
)
def test_ik3_a_repository_has_one_full_name(image: str, full: str) -> None:
    assert repository(image) == full


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("https://index.docker.io/v1/", "index.docker.io"),
        ("http://registry.test:5000/v2/", "registry.test:5000"),
        ("registry.test/v1/team", "registry.test/team"),
        ("registry.test/v1", "registry.test/v1"),
        ("registry.test/", "registry.test"),
        ("registry.test", "registry.test"),
    ],
)
def test_ik3_a_key_loses_scheme_and_version(key: str, place: str) -> None:
    assert registry_key(key) == place


@pytest.mark.parametrize(
    ("pattern", "image", "fits"),
    [
        ("registry.test", "registry.test/a", True),
        ("registry.test/a", "registry.test/a/b", True),
        ("registry.test/b", "registry.test/a/b", False),
        ("*.registry.test", "eu.registry.test/a", True),
        ("*.registry.test", "a.eu.registry.test/a", False),
        ("*.registry.test", "registry.test/a", False),
        ("*-docker.pkg.test/p", "eu-docker.pkg.test/p/a", True),
        ("*.*.test", "a.b.test/x", True),
        ("registry.test:5000", "registry.test/a", False),
        ("registry.test", "registry.test:5000/a", False),
        ("registry.test:5000", "registry.test:5000/a", True),
        ("[::1]:5000", "[::1]:5000/a", True),
        ("https://registry.test", "registry.test/a", True),
        ("r[0-9].test", "r7.test/a", True),
        ("r[^0-9].test", "r7.test/a", False),
    ],
)
def test_ik4_a_pattern_covers_host_labels_port_and_the_beginning_of_the_path(
    pattern: str, image: str, fits: bool
) -> None:
    assert covers(pattern, image) is fits


def test_ik5_longer_keys_come_first() -> None:
    ring = Keyring(
        [
            ("registry.test", login("all")),
            ("registry.test/team/app", login("app")),
            ("registry.test/team", login("team")),
            ("other.test", login("other")),
        ]
    )
    assert names(ring, "registry.test/team/app:1") == ["app", "team", "all"]
    assert names(ring, "registry.test/else") == ["all"]
    assert names(ring, "third.test/a") == []


def test_ik5_all_logins_of_a_key_are_tried_once_each() -> None:
    ring = Keyring(
        [("r.test", login("a")), ("https://r.test/v1/", login("b")), ("r.test", login("a"))]
    )
    assert names(ring, "r.test/x") == ["a", "b"]


def test_ik6_images_without_a_registry_have_that_of_docker() -> None:
    ring = Keyring([("https://index.docker.io/v1/", login("hub"))])
    for image in ("busybox", "team/app", "docker.io/team/app", "index.docker.io/a/b"):
        assert names(ring, image) == ["hub"]
    assert names(ring, "quay.test/a") == []
    both = Keyring([("index.docker.io", login("hub")), ("docker.io/team", login("team"))])
    assert names(both, "team/app") == ["team"]


@given(st.lists(st.sampled_from(["r.test", "r.test/a", "r.test/a/b", "*.test", "x.test"])))
def test_ik5_what_is_found_covers_the_image_and_longer_paths_come_first(keys: list[str]) -> None:
    found = Keyring((key, login(key)) for key in keys).lookup("r.test/a/b/c")
    used = [f.username for f in found]
    assert set(used) == {key for key in keys if covers(key, "r.test/a/b/c")}
    exact = [key for key in used if not key.startswith("*")]
    assert exact == sorted(exact, key=len, reverse=True)


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("entry", "pair"),
    [
        ({"username": "u", "password": "p", "email": "x"}, ("u", "p")),
        ({"auth": encoded("u:p")}, ("u", "p")),
        ({"auth": encoded("u:p:q")}, ("u", "p:q")),
        ({"auth": encoded("us:p").rstrip("=")}, ("us", "p")),
        ({"auth": encoded("u:p"), "username": "other"}, ("u", "p")),
        ({}, ("", "")),
    ],
)
def test_ik2_an_entry_has_a_name_and_a_password(
    entry: dict[str, str], pair: tuple[str, str]
) -> None:
    for data, legacy in (({"auths": {"r.test": entry}}, False), ({"r.test": entry}, True)):
        ((key, found),) = parse_docker_config(json.dumps(data).encode(), legacy=legacy)
        assert (key, found.username, found.password) == ("r.test", *pair)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("{", "it is not JSON"),
        ("[]", "it is no object of registries"),
        ('{"auths": 1}', "it is no object of registries"),
        ('{"auths": {"r.test": "x"}}', "the entry of r.test is no object"),
        ('{"auths": {"r.test": {"auth": "!"}}}', "not base64 of user:password"),
        ('{"auths": {"r.test": {"auth": 5}}}', "not base64 of user:password"),
        (f'{{"auths": {{"r.test": {{"auth": "{encoded("nocolon")}"}}}}}}', "user:password"),
        (f'{{"auths": {{"r.test": {{"auth": "{encoded("x")[:-3]}"}}}}}}', "user:password"),
    ],
)
def test_ik7_what_is_malformed_is_said_without_showing_it(text: str, cause: str) -> None:
    with pytest.raises(MalformedLoginError) as caught:
        parse_docker_config(text.encode())
    assert cause in str(caught.value)
    assert "nocolon" not in str(caught.value)


def test_a_configuration_without_logins_has_none() -> None:
    assert parse_docker_config(b'{"credHelpers": {"r.test": "x"}}') == []


def test_a_login_does_not_show_itself() -> None:
    assert "secret" not in repr(login("user"))


@given(st.binary(max_size=64))
def test_no_bytes_are_a_traceback(data: bytes) -> None:
    try:
        parse_docker_config(data)
    except MalformedLoginError:
        return
