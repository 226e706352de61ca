"""Random manifests: bytes, valid ones that were damaged, and documents made of the right words."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from nodeagent.api.documents import Identity
from nodeagent.journal import Journal
from nodeagent.runtime.unsupported import unsupported_fields
from nodeagent.sources.file_book import FileBook
from nodeagent.sources.keeping import FileVerdicts
from nodeagent.sources.manifest_scan import FileSeen, PathSeen
from nodeagent.sources.origin import Origin, UrlOrigin
from nodeagent.sources.selection import InForce, Selection, select
from nodeagent.sources.verdict_report import VerdictReport

GOOD: Final = """\
apiVersion: v1
kind: Pod
metadata: &m {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 1e1
  initContainers:
  - {name: first, image: busybox, restartPolicy: Always}
  containers:
  - name: web
    image: "nginx:1.27"
    command: [sh, -c, "sleep 1"]
    env: [{name: A, value: "1"}, {name: B, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    resources: {limits: {cpu: 0.5, memory: 1Gi}}
    ports: [{containerPort: 80, name: http}]
    livenessProbe: {httpGet: {port: http}, periodSeconds: 3}
    volumeMounts: [{name: v, mountPath: /v}]
    securityContext: {runAsUser: 1000, capabilities: {drop: [ALL]}}
  volumes:
  - name: v
    emptyDir: {}
  tolerations: [{operator: Exists}]
"""
_WORDS: Final = re.findall(
    r"\w+",
    """
    apiVersion kind metadata spec status items name namespace uid labels annotations generateName
    deletionTimestamp containers initContainers ephemeralContainers image command args env value
    valueFrom fieldRef fieldPath ports containerPort hostPort protocol resources limits requests
    cpu memory livenessProbe readinessProbe startupProbe httpGet tcpSocket exec grpc port volumes
    volumeMounts mountPath emptyDir hostPath configMap secret projected sizeLimit securityContext
    runAsUser fsGroup sysctls capabilities restartPolicy hostNetwork dnsConfig tolerations
    affinity nodeSelector priority overhead terminationGracePeriodSeconds activeDeadlineSeconds
    lifecycle postStart preStop hostAliases schedulingGates resourceClaims os hostUsers
    """,
)
_LEAVES: Final[Sequence[Any]] = (
    *(None, True, False, 0, 1, 80, 65535, 65536, -1, 1.5, 1e3, 2**31, 2**63, 2**70, -(2**70)),
    *("", "v1", "Pod", "List", "PodList", "web", "db", "a" * 300, "http", "1Gi", "100n", "-1"),
    *("Always", "Never", "TCP", "/v", "../..", "$(A)", "2024-01-01T00:00:00Z", "é\0", "\ud800"),
    *("metadata.name", "status.podIP", "\n", "---\nkind: Pod", "{{ .Values }}", "yes", "1:30"),
)
_PIECES: Final = (
    *(
        b"\n---\n",
        b"\n...\n",
        b"*m",
        b"&m ",
        b"<<: *m\n",
        b"~",
        b"[",
        b"]",
        b"{}",
        b"{",
        b"'",
        b'"',
    ),
    *(
        b"\t",
        b"\r",
        b"\0",
        b"\xff",
        b"\xef\xbb\xbf",
        b"!!binary ",
        b"!!x ",
        b"|",
        b">",
        b"%YAML 1.1\n",
    ),
    *(
        b"? ",
        b": ",
        b"- ",
        b"#",
        b"\xc2\x85",
        b"\xe2\x80\xa8",
        b"1e999",
        b".inf",
        b"0o9",
        b"\\u0000",
    ),
)


def random_tree(rng: Random, depth: int = 0) -> Any:
    """Lists and objects of words that manifests are made of."""
    kind = rng.random()
    if depth > 5 or kind < 0.4:
        return rng.choice(_LEAVES)
    if kind < 0.55:
        return [random_tree(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(_WORDS): random_tree(rng, depth + 1) for _ in range(rng.randrange(5))}


def random_pod(rng: Random) -> dict[str, Any]:
    """A pod that is good but for some places."""
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": rng.choice(["web", "db", "web-1", "Web", ""])},
        "spec": {"containers": [{"name": "c", "image": "busybox"}]},
    }
    if rng.random() < 0.3:
        pod["metadata"]["uid"] = rng.choice(["one", "two", "", "../x"])
    if rng.random() < 0.3:
        pod["metadata"]["namespace"] = rng.choice(["default", "other", "", "Bad_Name"])
    for _ in range(rng.randrange(4)):
        place: Any = pod
        while isinstance(place, dict) and place and rng.random() < 0.7:
            inner = place[rng.choice(list(place))]
            inner = inner[0] if isinstance(inner, list) and inner else inner
            if not isinstance(inner, dict):
                break
            place = inner
        place[rng.choice(_WORDS)] = random_tree(rng, 2)
    return pod


def damaged(rng: Random, data: bytes) -> bytes:
    """The bytes with some cut out, put in, doubled or cut off."""
    for _ in range(rng.randrange(1, 4)):
        start = rng.randrange(len(data) + 1)
        end = min(len(data), start + rng.randrange(40))
        match rng.randrange(4):
            case 0:
                data = data[:start] + data[end:]
            case 1:
                data = data[:start] + rng.choice(_PIECES) + data[start:]
            case 2:
                data = data[:end] + data[start:]
            case _:
                data = data[:start]
    return data


def random_manifest(rng: Random) -> bytes:
    """A manifest file or the answer of a URL."""
    makers: list[Callable[[], bytes]] = [
        lambda: rng.randbytes(rng.randrange(200)),
        lambda: GOOD.encode(),
        lambda: damaged(rng, GOOD.encode()),
        lambda: _text(random_pod(rng)),
        lambda: damaged(rng, _text(random_pod(rng))),
        lambda: _text(random_tree(rng)),
        lambda: b"\n---\n".join(_text(random_pod(rng)) for _ in range(rng.randrange(4))),
        lambda: _text({"kind": "PodList", "apiVersion": "v1", "items": _items(rng)}),
        lambda: _text({"kind": "List", "apiVersion": "v1", "items": _items(rng)}),
        lambda: b"".join(rng.choice(_PIECES) for _ in range(rng.randrange(30))),
    ]
    return rng.choice(makers)()


def _items(rng: Random) -> list[Any]:
    return [
        random_pod(rng) if rng.random() < 0.8 else random_tree(rng, 3)
        for _ in range(rng.randrange(4))
    ]


def _text(tree: Any) -> bytes:
    return json.dumps(tree).encode()


class Books:
    """A source's judgement without its input and output: what is in force after each look."""

    def __init__(self) -> None:
        self.book = FileBook()
        self.journal = Journal()
        self.report = VerdictReport("fuzz", self.journal)
        self.selection = Selection({}, (), {})
        self.now = 0.0

    def look(self, files: dict[str, bytes]) -> None:
        """Look at these files and check what must always hold."""
        self.now += 10.0
        seen = tuple(
            FileSeen(Path("/m") / name, (hash(data), len(data)), data)
            for name, data in sorted(files.items())
        )
        paths = [PathSeen(Path("/m"), seen)]
        before = self.selection.pods
        supplying: set[Origin] = {document.origin for document in before.values()}
        self._take(self.book.judge(paths, supplying, self.now), paths)

    def answer(self, data: bytes) -> None:
        """Take the answer of a URL."""
        from nodeagent.api.documents import decode_manifest

        verdicts = tuple(decode_manifest(data, "http://x/"))
        self._take([FileVerdicts(UrlOrigin("http://x/"), verdicts)], [])

    def _take(self, files: list[FileVerdicts], paths: list[PathSeen]) -> None:
        before = self.selection.pods
        self.selection = select(files, before, "n1", unsupported_fields)
        self.report.report(paths, self.selection)
        self.book.slim(self.selection)
        check(self.selection, before)


def check(selection: Selection, before: dict[Identity, InForce] | Any) -> None:
    """What holds whatever the manifests say."""
    uids = [document.uid for document in selection.pods.values()]
    assert len(uids) == len(set(uids)), "two pods have one UID"
    names = [(d.pod.metadata.namespace, d.pod.metadata.name) for d in selection.pods.values()]
    assert len(names) == len(set(names)), "two pods have one name"
    for identity in selection.kept:
        assert selection.pods[identity] is before[identity], "what is kept has changed"
    for file in selection.verdicts:
        for verdict in file.verdicts:
            assert not (verdict.pod is not None and verdict.errors)
            for line in (*verdict.error_lines(), *verdict.warning_lines()):
                assert "\n" not in line, "a remark of two lines"
                line.encode()
        all_bad = file.verdicts and all(v.errors and v.identity is None for v in file.verdicts)
        if all_bad and not any(v.foreign for v in file.verdicts):
            lost = [d for d in before.values() if d.origin == file.origin]
            assert all(d.identity in selection.pods for d in lost), "a bad file has ended a pod"
    assert math.isfinite(len(selection.pods))


def fuzz_sources(rng: Random) -> None:
    """Some looks at some files that change at random, and some answers of a URL."""
    books, url = Books(), Books()
    files: dict[str, bytes] = {}
    for _ in range(rng.randrange(1, 6)):
        name = rng.choice(["a.yaml", "b.yaml", "c.yaml"])
        if rng.random() < 0.2:
            files.pop(name, None)
        else:
            files[name] = random_manifest(rng)
        books.look(files)
        url.answer(random_manifest(rng))
