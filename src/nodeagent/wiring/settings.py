"""What single parts need to know of the configuration."""

from __future__ import annotations

from pathlib import Path

from nodeagent.config import AgentConfig
from nodeagent.config.container_options import LIMITED_SWAP
from nodeagent.pleg import PlegSettings
from nodeagent.runtime.garbage_wiring import container_logs_dir
from nodeagent.runtime.settings import ImageSettings, RuntimeSettings


def pleg_settings(config: AgentConfig) -> PlegSettings:
    """How PLEG looks."""
    return PlegSettings(
        period=config.relist_period,
        evented_period=config.evented_relist_period,
        fast_period=config.fast_relist_period,
        threshold=config.relist_threshold,
        concurrency=config.inspection_concurrency,
        inspect_timeout=config.inspection_timeout,
        list_timeout=config.runtime_request_timeout,
    )


def health_limit(config: AgentConfig) -> float:
    """Seconds without a turn of the sync loop after which it counts as stuck."""
    return max(2 * config.sync_frequency, 300.0)


def runtime_settings(config: AgentConfig, root: Path, node_address: str) -> RuntimeSettings:
    """What the runtime manager is told; ``root`` is absolute."""
    return RuntimeSettings(
        root_dir=root,
        pod_logs_dir=Path(config.pod_logs_dir).absolute(),
        container_logs_dir=container_logs_dir(config),
        resolv_conf=Path(config.resolv_conf) if str(config.resolv_conf) else None,
        cluster_dns=config.cluster_dns,
        cluster_domain=config.cluster_domain,
        seccomp_default=config.seccomp_default,
        allowed_sysctls=config.allowed_unsafe_sysctls,
        cpu_cfs_quota=config.cpu_cfs_quota,
        cpu_cfs_period=round(config.cpu_cfs_quota_period * 1_000_000),
        single_process_oom_kill=config.single_process_oom_kill,
        limited_swap=config.swap_behavior == LIMITED_SWAP,
        back_off_initial=min(10.0, config.max_container_restart_period),
        back_off_cap=config.max_container_restart_period,
        max_pods=config.max_pods,
        node_name=config.effective_node_name,
        node_ips=(node_address,),
        images=ImageSettings(
            serialize_pulls=config.pulls_serialized,
            max_parallel_pulls=config.max_parallel_image_pulls,
            pull_qps=config.registry_pull_qps,
            pull_burst=config.registry_burst,
            pull_timeout=config.image_pull_timeout,
        ),
    )
