"""How the parts of one agent are wired: the only module that knows all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
from prometheus_client import CollectorRegistry, Gauge

from nodeagent.api import Pod
from nodeagent.api.node import NodeAddress
from nodeagent.channels import ChannelMetrics, SyncChannels, SyncLoop
from nodeagent.checkpointer import Checkpointer
from nodeagent.cleanup import CleanUp
from nodeagent.clock import Clock
from nodeagent.cluster import ClusterLink
from nodeagent.config import AgentConfig
from nodeagent.config.reload import LiveSettings
from nodeagent.config.report import ConfigReport
from nodeagent.cri import ImageService, RuntimeService
from nodeagent.cri.pods import PodLister
from nodeagent.journal import Journal
from nodeagent.model import (
    API_SOURCE,
    ContainerID,
    ContainerState,
    PodUID,
    ProbeKind,
    RuntimePod,
    SandboxRuntimeStatus,
)
from nodeagent.node import EventRecorder, JournalEvents, RuntimeState
from nodeagent.node.machine import MachineInfo
from nodeagent.objects import StandaloneObjects
from nodeagent.parts import Parts
from nodeagent.pleg import EventMetrics, EventWatch, Pleg, PodCache
from nodeagent.pods.active_pods import ActivePods
from nodeagent.pods.admission_desk import AdmissionDesk
from nodeagent.pods.dead_containers import DeadContainerRemover
from nodeagent.pods.handlers import HandlerHooks, PodHandlers
from nodeagent.pods.housekeeping import Housekeeping, HousekeepingHooks
from nodeagent.pods.manager import PodManager
from nodeagent.pods.metrics import PodMetrics
from nodeagent.pods.sources_ready import SourcesReady
from nodeagent.pods.status import NodeFacts, node_facts, past_deadline
from nodeagent.pods.status_manager import StatusManager
from nodeagent.pods.sync import PodSync
from nodeagent.pods.work_queue import WorkQueue
from nodeagent.pods.workers import PodWorkers
from nodeagent.probes import ProbeManager, ProbeMetrics, make_prober
from nodeagent.runtime.garbage_wiring import (
    Node,
    make_container_gc,
    make_image_gc,
    make_log_rotation,
)
from nodeagent.runtime.image_gc import images_in_use
from nodeagent.runtime.image_wiring import CredentialFiles, make_image_access
from nodeagent.runtime.manager import RuntimeManager
from nodeagent.runtime.metrics import RuntimeMetrics
from nodeagent.runtime.qos import compute_qos
from nodeagent.runtime.settings import HostFacts
from nodeagent.runtime.unsupported import unsupported_fields
from nodeagent.runtime_access import event_feeds, inspect_pod, poll_status
from nodeagent.server.http_metrics import HttpMetrics
from nodeagent.server.process_metrics import ProcessMetrics
from nodeagent.sources import PodMux, PodStorage, Source
from nodeagent.state_file import StateFile
from nodeagent.stats.log_usage import LogUsage
from nodeagent.wiring.admission import admission_rules, ask_for_node, runs_here
from nodeagent.wiring.cluster import RingSide, Telling, build_cluster, event_sender
from nodeagent.wiring.cluster_objects import make_lookups, node_lookup, watch_objects
from nodeagent.wiring.eviction import make_eviction
from nodeagent.wiring.health import health_checks
from nodeagent.wiring.node import NodeSide, local_node, node_services
from nodeagent.wiring.objects import make_objects, waking
from nodeagent.wiring.reconfigure import access_policy, apply_settings, set_providers
from nodeagent.wiring.server import ServerSide, api_opener
from nodeagent.wiring.settings import health_limit, pleg_settings, runtime_settings
from nodeagent.wiring.stats import log_places, make_stats
from nodeagent.wiring.storage import build_storage
from nodeagent.wiring.volumes import PodFacts, make_volumes, volume_figures


def build_parts(
    config: AgentConfig,
    *,
    host: HostFacts,
    credentials: CredentialFiles,
    runtime: RuntimeService,
    images: ImageService,
    runtime_name: str,
    node_address: str,
    sources: Sequence[Source],
    journal: Journal,
    registry: CollectorRegistry,
    clock: Clock,
    link: ClusterLink | None = None,
    machine: MachineInfo | None = None,
    standalone: StandaloneObjects | None = None,
    report: ConfigReport | None = None,
    live: LiveSettings | None = None,
) -> Parts:
    """Build and wire the parts; nothing runs yet."""
    live = live or LiveSettings(config)
    root = Path(config.root_dir).absolute()
    channels = SyncChannels()
    ChannelMetrics(channels.all(), registry)
    _count_tasks(registry)
    sender, telling = event_sender(link, registry), Telling()
    events = EventRecorder(JournalEvents(journal), config.effective_node_name, clock, sender)
    events.node_event("Normal", "Starting", "Starting kubelet.")
    manager = PodManager()
    statuses = StatusManager(
        clock,
        telling.status,
        loop_time=anyio.current_time,
        mirror_of=manager.get_mirror_of,
    )
    cache = PodCache()
    lister = PodLister(runtime)
    pleg = Pleg(
        lister,
        cache,
        channels.pleg,
        registry=registry,
        journal=journal,
        settings=pleg_settings(config),
        clock=clock,
        wanted=lambda uid: manager.get_by_uid(uid) is not None or workers.is_known(uid),
        at_work=lambda uid: syncer.at_work(uid),  # noqa: PLW0108 - made below
    )
    watch = EventWatch(
        event_feeds(runtime),
        pleg,
        metrics=EventMetrics(registry),
        journal=journal,
        settings=pleg_settings(config),
        clock=clock,
    )
    pleg.audit_with(watch)
    checkpoint = Checkpointer(StateFile(root / "checkpoints" / "runtime.json", 2), journal=journal)
    runtime_metrics = RuntimeMetrics(registry)
    objects = watch_objects(link, config.effective_node_name, journal)
    lookup = node_lookup(objects, config.effective_node_name)
    referred = make_objects(
        config, link, standalone or StandaloneObjects(), lookup, clock=clock, journal=journal
    )
    access = make_image_access(
        config,
        credentials,
        images,
        events=events,
        journal=journal,
        registry=registry,
        clock=clock,
        secrets=referred.pull_secrets,
        tokens=referred.account_tokens,
    )
    settings = runtime_settings(config, root, node_address)
    cluster_storage = build_storage(
        link, config, journal, registry, node=lookup.node, objects=referred.store
    )
    lookups = make_lookups(
        objects,
        link,
        lookup,
        referred=referred,
        describe=runtime.status,
        ended=partial(_has_ended, cache),
    )
    volumes = make_volumes(
        root,
        PodFacts(settings, host, lookups),
        events=events,
        journal=journal,
        registry=registry,
        clock=clock,
        objects=referred.store,
        storage=cluster_storage,
    )
    volumes.on_note = lambda uid: syncer.refresh(uid)  # noqa: PLW0108 - made below

    def sandbox_made(uid: PodUID, seen: SandboxRuntimeStatus) -> None:
        pleg.sandbox_made(uid, seen)
        syncer.sandbox_ready(uid, seen)

    runtime_manager = RuntimeManager(
        runtime,
        images,
        settings,
        host,
        events=events,
        journal=journal,
        metrics=runtime_metrics,
        clock=clock,
        on_action=pleg.request_relist,
        persist=checkpoint.save,
        changed=checkpoint.changed,
        lookups=replace(lookups, sub_paths=volumes.sub_paths),
        on_note=lambda uid: syncer.refresh(uid),  # noqa: PLW0108 - made below
        on_sandbox=sandbox_made,
        access=access,
    )
    checkpoint.add("runtime", runtime_manager)
    if objects is not None:
        checkpoint.add("runtime-classes", objects.handlers)
        checkpoint.add("services", objects.known_services)
    if cluster_storage is not None:
        checkpoint.add("volumes", cluster_storage.heard)
        checkpoint.add("csi-drivers", cluster_storage.known)
    runtime_state = RuntimeState(partial(poll_status, runtime), journal)
    metrics = PodMetrics(registry)
    probes = ProbeManager(
        make_prober(runtime, events),
        statuses.get,
        {
            ProbeKind.LIVENESS: channels.liveness,
            ProbeKind.READINESS: channels.readiness,
            ProbeKind.STARTUP: channels.startup,
        },
        journal=journal,
        metrics=ProbeMetrics(registry),
    )
    checkpoint.add("probes", probes)
    checkpoint.add("ages", probes.ages)
    checkpoint.add("starts", statuses.starts)

    def node_addresses() -> tuple[NodeAddress, ...]:
        node = lookup.node()
        return node.status.addresses if node is not None else ()

    def facts() -> NodeFacts:
        return node_facts(node_addresses(), (node_address,))

    syncer = PodSync(
        runtime=runtime_manager,
        start_error=runtime_manager.reasons.get,
        ran_once=runtime_manager.ran_once,
        volumes=volumes,
        statuses=statuses,
        inspect=partial(inspect_pod, lister),
        record=events,
        unsupported=partial(unsupported_fields, cluster=link is not None),
        qos_class=lambda pod: compute_qos(pod).value,
        network_error=lambda: runtime_state.network_error,
        runtime_name=lambda: runtime_name,
        node=facts,
        clock=clock,
        journal=journal,
        metrics=metrics,
        waiting_note=lambda uid, name: volumes.note(uid) or runtime_manager.waiting_note(uid, name),
        probes=probes,
        want_mirror=telling.mirror,
        references=referred.store,
        latest=cache.get,
        pulled=runtime_manager.pull_span,
    )
    queue = WorkQueue()
    workers = PodWorkers(
        syncer,
        cache,
        queue,
        runtime_state,
        journal=journal,
        metrics=metrics,
        events=events,
        resync=config.sync_frequency,
    )
    runtime_state.on_ready = workers.runtime_returned
    referred.store.subscribe(waking(referred.store, manager, queue))
    storage = PodStorage(clock, journal)
    running = list(sources)
    ready = SourcesReady(
        lambda: frozenset(source.name for source in running), lambda: storage.seen_sources
    )
    garbage = Node(
        runtime=runtime,
        images=images,
        list_pods=lister.list_pods,
        removable=lambda uid: workers.view(uid).content_removed,
        spared=lambda: images_in_use(manager.get_pods(), runtime_manager.images_being_used()),
        sources_ready=ready.all_ready,
        events=events,
        journal=journal,
        metrics=runtime_metrics,
    )
    gc = make_container_gc(config, garbage)
    cleanup = CleanUp(
        runtime=runtime,
        lister=lister,
        gc=gc,
        volumes=volumes,
        probes=probes,
        forget=(
            runtime_manager.forget_pod,
            events.forget_pod,
            statuses.starts.forget_pod,
            referred.store.unregister,
            *(() if cluster_storage is None else (cluster_storage.heard.forget_pod,)),
        ),
        remembered=(
            runtime_manager.remembered,
            statuses.starts.remembered,
            referred.store.remembered,
            *(() if cluster_storage is None else (cluster_storage.heard.remembered,)),
        ),
        metrics=metrics,
    )
    housekeeping = Housekeeping(
        manager,
        workers,
        pleg,
        statuses,
        ready,
        HousekeepingHooks(
            purge=cleanup.purge,
            sweepers=(cleanup.directories, cleanup.memory, cleanup.unprobe, telling.sweep),
            held=lambda: handlers.held,
            collect_garbage=cleanup.collect_garbage,
        ),
        journal=journal,
        metrics=metrics,
    )
    dead = DeadContainerRemover(gc.remove_container, journal=journal, quiet=workers.drained)

    def deadline_passed(pod: Pod) -> bool:
        return past_deadline(pod, statuses.active_for(PodUID(pod.metadata.uid)))

    desk = AdmissionDesk(
        admission_rules(host, lambda: runtime_manager.settings, lambda: runtime_state.features),
        node=lookup.any_node,
        ask=ask_for_node(link, config.effective_node_name, lookup),
        runs_here=runs_here(cache),
        kill=workers.kill_pod_now,
        record=events,
        journal=journal,
        metrics=metrics,
    )
    handlers = PodHandlers(
        manager,
        workers,
        queue,
        cache,
        statuses,
        ready,
        HandlerHooks(
            wake_housekeeping=housekeeping.wake,
            remove_dead=dead.request,
            admit=desk,
            record=events,
            probes=statuses,
            past_deadline=deadline_passed,
            dead_kept=lambda: max(live.current.maximum_dead_containers_per_container, 1),
            qos_class=lambda pod: compute_qos(pod).value,
            status_wanted=telling.status,
        ),
        journal=journal,
        metrics=metrics,
    )
    desk.again = handlers.admit_again
    ring_side = RingSide(
        manager=manager,
        statuses=statuses,
        workers=workers,
        lookup=lookup,
        objects=objects,
        referred=referred.store,
        sources=sources,
        heard=lambda: ready.ready(API_SOURCE),
        journal=journal,
        metrics=metrics,
    )
    node_side = NodeSide(
        config=config,
        machine=machine or MachineInfo(),
        runtime=runtime,
        images=images,
        runtime_name=runtime_name,
        state=runtime_state,
        pleg=pleg,
        events=events,
        clock=clock,
        journal=journal,
        registry=registry,
        storage=cluster_storage,
    )
    lookup.set_local(local_node(node_side))
    cluster = build_cluster(link, sender, telling, ring_side, node_side)
    loop = SyncLoop(
        handlers,
        channels,
        housekeeping_period=config.housekeeping_period,
        health_limit=health_limit(config),
        journal=journal,
    )
    report = report or ConfigReport()
    checks = health_checks(
        loop, pleg, workers, runtime_state, ready, running, checkpoint, report, cluster
    )
    http = HttpMetrics(registry)
    stats = make_stats(
        config,
        runtime=runtime,
        images=images,
        list_pods=partial(_runtime_pods, lister),
        details=cache.get,
        volumes=partial(volume_figures, volumes),
        clock=clock,
    )
    logs = LogUsage(
        registry,
        lambda: log_places(Path(config.pod_logs_dir), manager.get_pods(), cache.get),
    )
    process = ProcessMetrics(registry)

    async def refresh() -> None:
        await logs.refresh()
        await process.refresh()

    eviction = make_eviction(
        ActivePods(manager, workers, statuses).all,
        workers,
        volumes,
        stats,
        events=events,
        journal=journal,
        registry=registry,
    )

    server_side = ServerSide(
        refresh=refresh,
        node_addresses=node_addresses,
        stats=stats,
        http=http,
        config=config,
        settings=live,
        report=report,
        manager=manager,
        statuses=statuses,
        cache=cache,
        runtime=runtime,
        checks=checks,
        journal=journal,
        registry=registry,
        clock=clock,
        addresses=(*config.node_ips, node_address),
        checkpoint=runtime_manager.checkpoint_container,
        list_pods=partial(_runtime_pods, lister),
    )

    def reconfigure(new: AgentConfig) -> None:
        runtime_manager.reconfigure(runtime_settings(new, root, node_address))
        access_policy(access, new)
        lookup.set_local(local_node(replace(node_side, config=new)))
        if cluster is not None:
            cluster.node.reconfigure(new)
        if link is not None:
            link.reconfigure(new)

    live.subscribe(reconfigure)
    parts = Parts(
        config=config,
        settings=live,
        channels=channels,
        manager=manager,
        statuses=statuses,
        cache=cache,
        pleg=pleg,
        runtime=runtime_manager,
        volumes=volumes,
        runtime_state=runtime_state,
        workers=workers,
        queue=queue,
        housekeeping=housekeeping,
        admission=desk,
        probes=probes,
        dead=dead,
        gc=gc,
        client=runtime,
        set_providers=partial(set_providers, access),
        node_event=events.node_event,
        image_gc=make_image_gc(config, garbage, access),
        log_rotation=make_log_rotation(config, runtime, journal, clock),
        sources=running,
        sources_ready=ready,
        mux=PodMux(storage, channels.config),
        loop=loop,
        events=watch,
        checkpoint=checkpoint,
        beside=(*node_services(link, node_side), eviction),
        cluster=cluster,
        checks=checks,
        journal=journal,
        registry=registry,
        refresh=refresh,
        stats=stats,
        http=http,
        open_api=api_opener(server_side, link),
    )
    live.subscribe(partial(apply_settings, parts))
    return parts


async def _runtime_pods(lister: PodLister) -> list[RuntimePod]:
    return list((await lister.list_pods()).values())


def _has_ended(cache: PodCache, uid: PodUID, container_id: ContainerID) -> bool:
    record = cache.get(uid).by_id(container_id)
    return record is not None and record.state is ContainerState.EXITED


def _count_tasks(registry: CollectorRegistry) -> None:
    """Tell how many tasks there are, at scrape time only; a leak of tasks shows here first."""
    loop = asyncio.get_running_loop()
    gauge = Gauge("nodeagent_tasks", "Tasks of the agent's event loop", registry=registry)
    gauge.set_function(lambda: len(asyncio.all_tasks(loop)))
