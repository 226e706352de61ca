"""The Node object in JSON."""

import json

from nodeagent.api import codec
from nodeagent.api.node import DaemonEndpoint, Node, NodeDaemonEndpoints, NodeSpec, NodeStatus


def test_irregular_names_are_those_of_kubernetes() -> None:
    node = Node(
        spec=NodeSpec(pod_cidr="10.0.0.0/24", pod_cidrs=("10.0.0.0/24",), provider_id="x://1"),
        status=NodeStatus(
            daemon_endpoints=NodeDaemonEndpoints(kubelet_endpoint=DaemonEndpoint(port=10250))
        ),
    )
    written = json.loads(codec.encode(node))
    assert written["spec"] == {
        "podCIDR": "10.0.0.0/24",
        "podCIDRs": ["10.0.0.0/24"],
        "providerID": "x://1",
    }
    assert written["status"]["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 10250}}
    assert codec.decode(Node, json.dumps(written)) == node
