"""docs/behaviour/decoding.md, "Kinds": ConfigMaps and Secrets that lie beside pods."""

from __future__ import annotations

import base64

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nodeagent.api.documents import OBJECTS, Identity, Verdict, decode_manifest
from nodeagent.api.objects import ConfigMap, Secret
from nodeagent.api.validation.objects import (
    MAX_BYTES,
    validate_change,
    validate_config_map,
    validate_secret,
)

HIDDEN = "xyzzy-plugh"

MAP = """apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
"""
SECRET = """apiVersion: v1
kind: Secret
metadata: {name: login}
"""
TWICE = MAP + "data: {a: x}\nbinaryData: {a: eA==}"
TLS = SECRET + "type: kubernetes.io/tls\ndata: {tls.crt: eA==}"
DOCKER = SECRET + "type: kubernetes.io/dockerconfigjson\ndata: {.dockerconfigjson: eA==}"
ACCOUNT = SECRET + "type: kubernetes.io/service-account-token"
STRING = "stringData[a]: expected a string, got {}; put it in quotes"
SLIP = 'kind: a "Secrett" cannot be run from a manifest, did you mean Secret?'
VERSION = 'apiVersion: unknown apiVersion for a ConfigMap: "v2", expected "v1"'
UP = "must not be '.' nor start with '..'"
LETTERS = "must consist of letters, digits, '-', '_' and '.'"


def judge(text: str | bytes) -> Verdict:
    data = text.encode() if isinstance(text, str) else text
    (verdict,) = decode_manifest(data, "x.yaml", kinds=OBJECTS)
    return verdict


def lines(text: str | bytes) -> list[str]:
    return [line.removeprefix("x.yaml: ") for line in judge(text).error_lines()]


def test_a_config_map_has_text_and_bytes() -> None:
    """decoding.md, "Kinds"."""
    verdict = judge(MAP + "data: {a: one, b: ''}\nbinaryData: {c: AAH/}\nimmutable: true\n")
    assert verdict.identity == Identity("default", "settings", "ConfigMap")
    assert verdict.pod is None
    found = verdict.config
    assert isinstance(found, ConfigMap)
    assert found.data == {"a": "one", "b": ""}
    assert found.binary_data == {"c": b"\x00\x01\xff"}
    assert found.immutable is True


def test_a_secret_has_bytes_in_base64_and_text() -> None:
    folded = base64.encodebytes(b"x" * 100).decode().replace("\n", "\n    ")
    verdict = judge(SECRET + f"data:\n  long: |\n    {folded}\nstringData: {{b: two}}\n")
    found = verdict.config
    assert isinstance(found, Secret)
    assert found.data == {"long": b"x" * 100}
    assert found.string_data == {"b": "two"}


def test_where_an_api_server_gives_objects_they_are_other_kinds() -> None:
    (verdict,) = decode_manifest(MAP.encode(), "x.yaml")
    assert verdict.foreign
    (told,) = verdict.error_lines()
    assert told.startswith('x.yaml: kind: a "ConfigMap" cannot be run from a manifest, expected')


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (MAP + "data: {a: 1}", "data[a]: expected a string, got a number; put it in quotes"),
        (MAP + "data: {a: [x]}", "data[a]: expected a string, got a list"),
        (MAP + "data: [x]", "data: expected an object, got a list"),
        (MAP + "binaryData: {a: '?!'}", "binaryData[a]: not base64 text"),
        (MAP + "binaryData: {a: abc}", "binaryData[a]: not base64 text"),
        (SECRET + f"data: {{a: '{HIDDEN} ?'}}", "data[a]: not base64 text"),
        (SECRET + "data: {a: 123}", "data[a]: expected base64 text, got a number"),
        (SECRET + "data: {a: true}", "data[a]: expected base64 text, got a boolean"),
        (SECRET + f"data: {HIDDEN}", "data: expected an object, got a string"),
        (SECRET + "stringData: {a: yes}", STRING.format("a boolean")),
        (SECRET + "stringData: {a: 123}", STRING.format("a number")),
        (SECRET.replace("Secret", "Secrett"), SLIP),
        (MAP.replace("v1", "v2"), VERSION),
    ],
)
def test_what_is_wrong_is_told_without_values(text: str, told: str) -> None:
    """decoding.md, "Kinds"."""
    found = lines(text)
    assert len(found) == 1
    assert found[0].startswith(told + " (line "), found
    assert HIDDEN not in found[0]


@given(
    st.integers(0, 400),
    st.sampled_from(['"', "'", "{", "]", ":", "\n", "\t", "&", "*", "%", "\x00", "\ud800", "-"]),
)
@example(21, '"')
@example(12, '"')
def test_no_broken_secret_shows_what_is_in_it(at: int, what: str) -> None:
    text = SECRET + f"type: Opaque\nstringData:\n  password: {HIDDEN}\n  'other': \"{HIDDEN}\"\n"
    text += f"data:\n  more: {base64.b64encode(HIDDEN.encode()).decode()}\n"
    broken = (text[:at] + what + text[at:]).encode(errors="surrogatepass")
    for verdict in decode_manifest(broken, "x.yaml", kinds=OBJECTS):
        told = "\n".join((*verdict.error_lines(), *verdict.warning_lines(), repr(verdict)))
        assert HIDDEN not in told.replace("\\n", "")


def test_a_document_that_breaks_off_is_known_by_its_name() -> None:
    verdict = judge(MAP + "data:\n  a: {\n")
    assert verdict.errors
    assert verdict.identity == Identity("default", "settings", "ConfigMap")
    assert not verdict.may_concern(Identity("default", "settings"))
    assert verdict.may_concern(Identity("default", "settings", "ConfigMap"))


def test_a_kind_with_a_slip_may_be_any() -> None:
    verdict = judge(MAP.replace("ConfigMap", "Configmap"))
    assert verdict.may_concern(Identity("default", "settings", "ConfigMap"))
    assert verdict.may_concern(Identity("default", "settings", "Secret"))
    assert not verdict.may_concern(Identity("default", "other", "ConfigMap"))


def faults(text: str) -> list[str]:
    verdict = judge(text.replace("metadata: {", "metadata: {namespace: default, "))
    assert verdict.config is not None, verdict.error_lines()
    if isinstance(verdict.config, Secret):
        return [str(e) for e in validate_secret(verdict.config)]
    return [str(e) for e in validate_config_map(verdict.config)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (MAP + "data: {'..': x}", f'data[..]: invalid value "..": {UP}'),
        (MAP + "data: {'..data': x}", f'data[..data]: invalid value "..data": {UP}'),
        (MAP + "data: {'a/../b': x}", f'data[a/../b]: invalid value "a/../b": {LETTERS}'),
        (
            MAP + "data: {/etc/passwd: x}",
            'data[/etc/passwd]: invalid value "/etc/passwd"',
        ),
        (MAP + "data: {'': x}", "data[]: required: a key has at least one character"),
        (TWICE, 'data[a]: invalid value "a": is a key of binaryData, too'),
        (MAP.replace("settings", "Settings"), "metadata.name: invalid"),
        (TLS, "data[tls.key]: required: a Secret of type kubernetes.io/tls"),
        (DOCKER, "data[.dockerconfigjson]: invalid: is no JSON object"),
        (SECRET + "type: kubernetes.io/basic-auth", "data[username]: required: or data[password]"),
        (ACCOUNT, "metadata.annotations[kubernetes.io/service-account.name]: required"),
    ],
)
def test_objects_are_held_to_the_rules_of_the_api(text: str, told: str) -> None:
    """decoding.md, "Kinds"."""
    found = faults(text)
    assert len(found) == 1, found
    assert found[0].startswith(told)


def test_a_key_has_at_most_253_characters() -> None:
    assert faults(MAP + f"data: {{{'k' * 253}: x}}") == []
    (told,) = faults(MAP + f"data: {{{'k' * 256}: x}}")
    assert told.endswith("must have at most 253 characters")


def test_all_values_together_have_at_most_a_mebibyte() -> None:
    half = "x" * (MAX_BYTES // 2)
    coded = base64.b64encode(half.encode()).decode()
    whole = MAP + f"data: {{a: {half}}}\nbinaryData: {{b: {coded}}}\n"
    assert faults(whole) == []
    assert faults(whole.replace("{a: ", "{a: x")) == [
        "data: too long: must have at most 1048576 bytes"
    ]
    assert faults(SECRET + f"data: {{b: {coded}}}") == []


def change(before: str, after: str) -> list[str]:
    old, new = judge(before).config, judge(after).config
    assert old is not None
    assert new is not None
    return [str(e) for e in validate_change(old, new)]


def test_some_fields_never_change() -> None:
    """decoding.md, "Kinds"."""
    assert change(SECRET + "type: a", SECRET + "type: b") == [
        'type: invalid value "b": never changes; remove the Secret first, or give it another name'
    ]
    never = "forbidden: never changes when `immutable` is set; remove the object first"
    fixed = MAP + "immutable: true\n"
    assert change(fixed, fixed.replace("true", "false")) == [f"immutable: {never}"]
    assert change(fixed, fixed + "data: {a: b}") == [f"data: {never}"]
    assert change(fixed, fixed + "binaryData: {a: eA==}") == [f"binaryData: {never}"]
    assert change(fixed, fixed.replace("{name", "{labels: {a: b}, name")) == []
    assert change(MAP, MAP + "data: {a: b}") == []


def test_half_a_surrogate_pair_is_no_reason_to_fail() -> None:
    found = judge(MAP + 'data: {a: "\\ud800"}').config
    if found is not None:
        assert isinstance(found, ConfigMap)
        assert len(list(validate_config_map(found))) <= 1
