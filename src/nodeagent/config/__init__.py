"""Configuration: what an embedder or the command line hands to the agent."""

from nodeagent.config.agent_config import (
    DEFAULT_ENDPOINT,
    AgentConfig,
    default_node_name,
)
from nodeagent.config.cluster_settings import ClusterSettings, RequestLimits
from nodeagent.config.errors import ConfigError, ConfigFilesError
from nodeagent.config.kubelet_file import LoadedFile, load_configuration, load_kubelet_file
from nodeagent.config.kubelet_model import KubeletConfiguration
from nodeagent.config.node_options import NodeOptions
from nodeagent.config.proxy import environment_proxy

__all__ = [
    "DEFAULT_ENDPOINT",
    "AgentConfig",
    "ClusterSettings",
    "ConfigError",
    "ConfigFilesError",
    "KubeletConfiguration",
    "LoadedFile",
    "NodeOptions",
    "RequestLimits",
    "default_node_name",
    "environment_proxy",
    "load_configuration",
    "load_kubelet_file",
]
