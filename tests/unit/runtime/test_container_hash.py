"""Hashes (docs/behaviour/runtime.md, "Hash")."""

from __future__ import annotations

import pytest

from nodeagent.runtime.hash import container_hash, fnv1a_32, fnv_64a


def test_the_hash_is_the_kubelets() -> None:
    assert container_hash("test_container", "foo/image:v1") == "8e45cbd0"


@pytest.mark.parametrize(("name", "image"), [("a", "b"), ("test_container", ""), ("x", "foo<&>")])
def test_name_and_image_make_the_hash(name: str, image: str) -> None:
    value = container_hash(name, image)
    assert value == f"{int(value, 16):x}"
    assert value != container_hash(name + "x", image)
    assert value != container_hash(name, image + "x")


def test_the_hash_functions_have_their_published_values() -> None:
    assert fnv1a_32(b"") == 0x811C9DC5
    assert fnv1a_32(b"foobar") == 0xBF9CF968
    assert fnv_64a(b"") == 0xCBF29CE484222325
    assert fnv_64a(b"foobar") == 0x85944171F73967E8
