"""What people put into manifests by mistake, and what is said about it.

The exact lines are a promise: they name the object, the cause and, where there is one, the remedy.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from nodeagent.api import Pod

POD: Final = """apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: main
    image: busybox
"""
_QUANTITY = (
    "is not a quantity: a number, optionally followed by one of n u m k M G T P E Ki Mi Gi Ti Pi"
    " Ei or an exponent such as e3"
)
_NAME_RULE = (
    "must consist of lower-case letters, digits, '-' and '.', and each part must start and end"
    " with a letter or digit"
)
_UID_RULE: Final = (
    "must consist of letters, digits, '-' and '.', and start and end with a letter or digit"
)
_LONG_NAME: Final = "a" * 63 + "." + "b" * 63 + "." + "c" * 63 + "." + "d" * 61


@dataclass(frozen=True)
class Refused:
    """A manifest that is refused.

    Attributes:
        what: what is wrong with it.
        data: the file.
        lines: all that is said, without the file's name.
    """

    what: str
    data: bytes
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Accepted:
    """A manifest that looks odd and is good.

    Attributes:
        what: what is odd about it.
        data: the file.
        read: what it means.
        look: where to find that.
        warnings: all that is said, without the file's name.
    """

    what: str
    data: bytes
    read: Any
    look: Callable[[Pod], Any]
    warnings: tuple[str, ...] = ()


def refused(what: str, text: str | bytes, *lines: str) -> Refused:
    return Refused(what, text.encode() if isinstance(text, str) else text, lines)


def accepted(
    what: str, text: str | bytes, read: Any, look: Callable[[Pod], Any], *warnings: str
) -> Accepted:
    return Accepted(what, text.encode() if isinstance(text, str) else text, read, look, warnings)


def with_port(written: str) -> str:
    return f"{POD}    ports:\n    - containerPort: {written}\n"


def with_memory(written: str) -> str:
    return f"{POD}    resources:\n      limits:\n        memory: {written}\n"


def with_value(written: str) -> str:
    return f"{POD}    env:\n    - name: A\n      value: {written}\n"


def bad_port(written: str, told: str) -> Refused:
    path = "spec.containers[0].ports[0].containerPort"
    return refused(f"port {written}", with_port(written), f"{path}: {told} (line 10)")


def bad_memory(written: str, told: str) -> Refused:
    path = "spec.containers[0].resources.limits[memory]"
    return refused(f"quantity {written}", with_memory(written), f"{path}: {told} (line 11)")


def bad_value(written: str, told: str) -> Refused:
    path = "spec.containers[0].env[0].value"
    told = f"{path}: expected a string, got {told} (line 11)"
    return refused(f"value {written}", with_value(written), told)


_LONGEST: Final = 255 - len("default_" + "-n1_") - 32
_NAME_ADDED: Final = (
    f"must have at most {_LONGEST} characters, as namespace, node and UID are added to it in the"
    " name of its log directory"
)


def bad_uid(written: str, told: str) -> Refused:
    text = POD.replace("  name: web", f"  name: web\n  uid: {written}")
    told = f"metadata.uid: invalid value {json.dumps(written)}: {told} (line 5)"
    return refused(f"uid {written}", text, told)


def port(pod: Pod) -> int:
    return pod.spec.containers[0].ports[0].container_port


def memory(pod: Pod) -> str:
    resources = pod.spec.containers[0].resources
    assert resources is not None
    return str(resources.limits["memory"])


def value(pod: Pod) -> str:
    return pod.spec.containers[0].env[0].value


def mode(pod: Pod) -> int | None:
    source = pod.spec.volumes[0].downward_api
    assert source is not None
    return source.default_mode


def images(pod: Pod) -> list[str]:
    return [container.image for container in pod.spec.containers]


def _bomb() -> str:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]\n"]
    for before, letter in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{letter}: &{letter} [{', '.join([f'*{before}'] * 9)}]\n")
    return "".join(lines) + POD


def _json(**space: Any) -> str:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    }
    return json.dumps(pod, **space)


REFUSED: Final = [
    refused("nothing", "", "empty: no documents"),
    refused("comments only", "# web.yaml\n\n# soon\n", "empty: no documents"),
    refused("markers only", "---\n---\n...\n", "empty: no documents"),
    refused(
        "cut off in the containers",
        POD[: POD.index("    image")],
        "spec.containers[0].image: required (line 7)",
    ),
    refused(
        "cut off in a value",
        '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"conta',
        "not valid JSON: a string that does not end, or holds a bad escape (line 1, column 75)",
    ),
    refused(
        "a program",
        b"\x7fELF\x02\x01\x01\0\0",
        "not valid YAML: character U+007F (line 1, column 1)",
    ),
    refused("compressed", b"\x1f\x8b\x08\0abc", "not UTF-8 text: byte 0x8b (line 1, column 2)"),
    refused("zeros", b"\0" * 64, "not valid YAML: a NUL byte, this is no text (line 1, column 1)"),
    refused("UTF-16", POD.encode("utf-16"), "UTF-16 text, must be UTF-8 (line 1)"),
    refused(
        "Latin-1",
        POD.replace("busybox", "caf\xe9").encode("latin-1"),
        "not UTF-8 text: byte 0xe9 (line 8, column 15)",
    ),
    refused(
        "another kind",
        POD.replace("Pod", "DaemonSet"),
        'kind: a "DaemonSet" cannot be run from a manifest, expected Pod, List or PodList (line 2)',
    ),
    refused(
        "a kind written wrongly",
        POD.replace("Pod", "pod"),
        'kind: a "pod" cannot be run from a manifest, did you mean Pod? (line 2)',
    ),
    refused(
        "an unknown version",
        POD.replace("v1", "v2"),
        'apiVersion: unknown apiVersion for a Pod: "v2", expected "v1" (line 1)',
    ),
    refused(
        "neither kind nor version",
        POD.removeprefix("apiVersion: v1\nkind: Pod\n"),
        "apiVersion: required (line 1)",
        "kind: required (line 1)",
    ),
    refused(
        "a key twice",
        POD + "    image: other\n",
        "spec.containers[0].image: duplicate key, first on line 8 (line 9)",
    ),
    refused("aliases that explode", _bomb(), "aliases expand to more than 100000 values (line 6)"),
    refused(
        "an alias in itself",
        POD + "    env: &e [*e]\n",
        "an anchor contains itself (line 9)",
    ),
    refused("deep", "a: " + "[" * 200 + "]" * 200, "nested more than 100 levels deep (line 1)"),
    refused(
        "no metadata",
        POD.replace("metadata:\n  name: web", "metadata: null"),
        "metadata.name: required (line 3)",
    ),
    refused(
        "no containers",
        POD.partition("  containers")[0] + "  containers: []\n",
        "spec.containers: required (line 6)",
    ),
    refused(
        "no spec",
        POD.partition("spec:")[0] + "spec:\n",
        "spec.containers: required (line 5)",
    ),
    refused(
        "a list of nothing known",
        "- a\n- b\n",
        "expected an object with apiVersion and kind, got a list (line 1)",
    ),
    bad_value("false", 'the boolean false; put it in quotes: "false"'),
    bad_value("yes", 'the boolean true (written yes); put it in quotes: "yes"'),
    bad_value("0644", "a number; put it in quotes"),
    bad_value("1e3", "a number; put it in quotes"),
    bad_value("12", "a number; put it in quotes"),
    bad_value("[1]", "a list"),
    refused(
        "an unquoted octal as an image",
        POD.replace("busybox", "0123"),
        "spec.containers[0].image: expected a string, got a number; put it in quotes (line 8)",
    ),
    refused(
        "a date as a time",
        POD.replace("  name: web", "  name: web\n  creationTimestamp: 2024-01-01"),
        "metadata.creationTimestamp: '2024-01-01' is not a time like 2006-01-02T15:04:05Z (line 5)",
    ),
    bad_port('"8080"', 'expected an integer, got the string "8080"; remove the quotes'),
    bad_port("http", 'expected an integer, got the string "http"'),
    bad_port("0", "required"),
    bad_port("65536", "invalid value 65536: must be between 1 and 65535"),
    bad_port("-1", "invalid value -1: must be between 1 and 65535"),
    bad_port("true", "expected an integer, got the boolean true"),
    bad_port("1:30", 'expected an integer, got the string "1:30"'),
    bad_port("yes", "expected an integer, got the boolean true (written yes)"),
    bad_port("8080.5", "expected an integer, got the number 8080.5"),
    bad_memory("-1", 'invalid value "-1": must not be negative'),
    bad_memory("1Gi2", f"'1Gi2' {_QUANTITY}"),
    bad_memory('"1 Gi"', f"'1 Gi' {_QUANTITY}"),
    bad_memory("1gi", f"'1gi' {_QUANTITY}"),
    refused(
        "two containers of one name",
        POD + "  - {name: main, image: other}\n",
        'spec.containers[1].name: duplicate value "main" (line 9)',
    ),
    refused(
        "an init container of the same name",
        POD + "  initContainers: [{name: main, image: other}]\n",
        'spec.initContainers[0].name: duplicate value "main" (line 9)',
    ),
    refused(
        "a name of 253 characters",
        POD.replace("web", _LONG_NAME),
        f'metadata.name: invalid value "{_LONG_NAME[:76]}...: {_NAME_ADDED} (line 4)',
    ),
    refused(
        "a name one character too long",
        POD.replace("web", _LONG_NAME[: _LONGEST + 1]),
        f'metadata.name: invalid value "{_LONG_NAME[:76]}...: {_NAME_ADDED} (line 4)',
    ),
    refused(
        "an accented name",
        POD.replace("name: web", "name: caf\xe9"),
        f'metadata.name: invalid value "caf\\u00e9": {_NAME_RULE} (line 4)',
    ),
    refused(
        "an accented name written the other way",
        POD.replace("name: web", "name: cafe\u0301"),
        f'metadata.name: invalid value "cafe\\u0301": {_NAME_RULE} (line 4)',
    ),
    bad_uid("../../etc", _UID_RULE),
    bad_uid("a_b", _UID_RULE),
    bad_uid("caf\u00e9", _UID_RULE),
    bad_uid("u" * 64, "must have at most 63 characters"),
    refused(
        "tabs",
        POD.replace("    image", "\timage"),
        "not valid YAML: a tab cannot indent YAML, use blanks (line 8, column 1)",
    ),
]

ACCEPTED: Final = [
    accepted(
        "unknown fields",
        POD + "    imagePullPolcy: Always\n  hostNetwrok: true\n",
        ["busybox"],
        images,
        "spec.containers[0].imagePullPolcy: unknown field, did you mean imagePullPolicy? (line 9)",
        "spec.hostNetwrok: unknown field, did you mean hostNetwork? (line 10)",
    ),
    accepted(
        "an anchor",
        POD + "    env: &e\n    - {name: A, value: b}\n  - {name: two, image: x, env: *e}\n",
        [[("A", "b")], [("A", "b")]],
        lambda pod: [[(e.name, e.value) for e in c.env] for c in pod.spec.containers],
    ),
    accepted("a date as a value", with_value("2024-01-01"), "2024-01-01", value),
    accepted("sixties as a value", with_value("1:30"), "1:30", value),
    accepted("nothing as a value", with_value("~"), "", value),
    accepted("port 1e3", with_port("1e3"), 1000, port),
    accepted("port 0o17", with_port("0o17"), 15, port),
    *(
        accepted(f"quantity {written}", with_memory(written), read, memory)
        for written, read in [
            ("129e6", "129M"),
            ("1E", "1E"),
            ("1e3", "1k"),
            ("128974848000m", "128974848"),
            ("100n", "1m"),
            ("0.5Gi", "512Mi"),
            (".5", "500m"),
            ("1.", "1"),
        ]
    ),
    accepted(
        "a name as long as it may be",
        POD.replace("web", _LONG_NAME[:_LONGEST]),
        _LONGEST,
        lambda pod: len(pod.metadata.name) - len("-n1"),
    ),
    accepted("a byte order mark", "\ufeff" + POD, ["busybox"], images),
    accepted("CRLF", POD.replace("\n", "\r\n"), ["busybox"], images),
    accepted("tabs between words", POD.replace("image: ", "image:\t"), ["busybox"], images),
    accepted("JSON", _json(), ["busybox"], images),
    accepted("JSON indented with tabs", _json(indent="\t"), ["busybox"], images),
    accepted(
        "an octal mode",
        POD + "  volumes:\n  - name: v\n    downwardAPI: {defaultMode: 0644}\n",
        0o644,
        mode,
    ),
]
