"""Paths of the API."""

from nodeagent.kube import paths


def test_paths_of_objects_and_subresources() -> None:
    assert paths.pod("ns", "web") == "/api/v1/namespaces/ns/pods/web"
    assert paths.pod("ns", "web", "status") == "/api/v1/namespaces/ns/pods/web/status"
    assert paths.node("n1", "status") == "/api/v1/nodes/n1/status"
    assert paths.event("ns") == "/api/v1/namespaces/ns/events"
    assert paths.lease("n1").endswith("/namespaces/kube-node-lease/leases/n1")
    assert paths.token("ns", "sa") == "/api/v1/namespaces/ns/serviceaccounts/sa/token"


def test_a_name_cannot_leave_its_place() -> None:
    assert paths.pod("a/b", "../x") == "/api/v1/namespaces/a%2Fb/pods/..%2Fx"
