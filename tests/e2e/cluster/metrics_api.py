"""The metrics API, played from what nodes tell at ``/metrics/resource``.

In front of an API server: it answers for the group ``metrics.k8s.io``, and hands on the rest.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from tests.e2e.cluster.api import Api, RefusedError

Json = dict[str, Any]
Labels = frozenset[tuple[str, str]]

_GROUP = "metrics.k8s.io"
_VERSION = f"{_GROUP}/v1beta1"
_PATH = f"/apis/{_VERSION}"


class Scrape:
    """One answer of a node: counters of processor time and their times, and memory."""

    def __init__(self, text: str) -> None:
        self.cpu: dict[str, dict[Labels, tuple[float, float]]] = {}
        self.memory: dict[str, dict[Labels, float]] = {}
        for family in text_string_to_metric_families(text):
            kind, _, what = family.name.partition("_")
            for sample in family.samples:
                own = frozenset(sample.labels.items())
                if what == "cpu_usage_seconds":
                    stamp = float(sample.timestamp or 0)
                    self.cpu.setdefault(kind, {})[own] = (stamp, sample.value)
                elif what == "memory_working_set_bytes":
                    self.memory.setdefault(kind, {})[own] = sample.value

    def usage(self, before: "Scrape", kind: str) -> dict[Labels, Json]:
        """Cores and bytes of all that both scrapes have, as the metrics API writes them."""
        found = {}
        for own, (stamp, value) in self.cpu.get(kind, {}).items():
            was, had = before.cpu.get(kind, {}).get(own, (stamp, value))
            if stamp > was and own in self.memory.get(kind, {}):
                cores = (value - had) / (stamp - was)
                found[own] = {
                    "cpu": f"{int(cores * 1e9)}n",
                    "memory": f"{int(self.memory[kind][own]) // 1024}Ki",
                }
        return found


class MetricsApi:
    """Answers for ``metrics.k8s.io``.

    Args:
        behind: the API server.
        node: name of the only node.
        scrape: what it tells at ``/metrics/resource``.
    """

    def __init__(self, behind: Api, node: str, scrape: Callable[[], str]) -> None:
        self._behind = behind
        self._node = node
        self._scrape = scrape
        self._scrapes: list[Scrape] = []

    def look(self) -> int:
        """Scrape once more; how many containers have figures now."""
        self._scrapes = [*self._scrapes, Scrape(self._scrape())][-2:]
        return len(self._usage("container"))

    def answer(self, path: str, target: str) -> str:
        """The body for a path; ``target`` is the path with its query."""
        if path == "/apis":
            return json.dumps(self._groups(json.loads(self._behind.text("GET", target))))
        if path == f"/apis/{_GROUP}":
            return json.dumps({"kind": "APIGroup", "apiVersion": "v1", **_group()})
        if path == _PATH:
            return json.dumps(_resources())
        if path.startswith(f"{_PATH}/"):
            return json.dumps(self._metrics(path.removeprefix(f"{_PATH}/")))
        return self._behind.text("GET", target)

    def _groups(self, groups: Json) -> Json:
        return {**groups, "groups": [*groups["groups"], _group()]}

    def _usage(self, kind: str) -> dict[Labels, Json]:
        if len(self._scrapes) < 2:
            return {}
        before, last = self._scrapes
        return last.usage(before, kind)

    def _metrics(self, path: str) -> Json:
        steps = path.split("/")
        if steps[0] == "nodes":
            usage = next(iter(self._usage("node").values()))
            item = {"metadata": {"name": self._node}, **_about("NodeMetrics"), "usage": usage}
            return _list("NodeMetrics", [item]) if len(steps) == 1 else item
        namespace = steps[1] if steps[0] == "namespaces" else ""
        pods: dict[tuple[str, str], list[Json]] = {}
        for own, usage in self._usage("container").items():
            named = dict(own)
            if namespace in ("", named["namespace"]):
                key = (named["namespace"], named["pod"])
                pods.setdefault(key, []).append({"name": named["container"], "usage": usage})
        items = [
            {
                "metadata": {"namespace": key[0], "name": key[1]},
                **_about("PodMetrics"),
                "containers": containers,
            }
            for key, containers in pods.items()
        ]
        named_one = [item for item in items if item["metadata"]["name"] == steps[-1]]
        return named_one[0] if len(steps) > 3 else _list("PodMetrics", items)


def _group() -> Json:
    version = {"groupVersion": _VERSION, "version": "v1beta1"}
    return {"name": _GROUP, "versions": [version], "preferredVersion": version}


def _resources() -> Json:
    kinds = (("nodes", "NodeMetrics", False), ("pods", "PodMetrics", True))
    verbs = {"singularName": "", "verbs": ["get", "list"]}
    resources = [
        {"name": name, "kind": kind, "namespaced": spaced, **verbs} for name, kind, spaced in kinds
    ]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": _VERSION,
        "resources": resources,
    }


def _about(kind: str) -> Json:
    return {
        "kind": kind,
        "apiVersion": _VERSION,
        "timestamp": "2026-01-01T00:00:00Z",
        "window": "15s",
    }


def _list(kind: str, items: list[Json]) -> Json:
    return {"kind": f"{kind}List", "apiVersion": _VERSION, "metadata": {}, "items": items}


@contextmanager
def serving(api: MetricsApi) -> Iterator[str]:
    """Serve it on a port of loopback; the URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            try:
                status, said = 200, api.answer(self.path.partition("?")[0], self.path)
            except RefusedError as error:
                status, said = error.code, str(error)
            body = said.encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_words: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
