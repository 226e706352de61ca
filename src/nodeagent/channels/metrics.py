"""Channel metrics, read at scrape time so that they cost nothing in between."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from nodeagent.channels.channel import Channel


class ChannelMetrics(Collector):
    """Shows depth, high-water mark, sent, coalesced and wait time of each channel."""

    def __init__(self, channels: Sequence[Channel[Any]], registry: CollectorRegistry) -> None:
        self._channels = tuple(channels)
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Nothing to check for duplicates ahead of time."""
        return []

    def collect(self) -> Iterable[Metric]:
        """One family per figure, one sample per channel."""
        depth = GaugeMetricFamily(
            "nodeagent_channel_depth", "Items lying in the channel", labels=["channel"]
        )
        high = GaugeMetricFamily(
            "nodeagent_channel_high_water", "Most items ever in the channel", labels=["channel"]
        )
        sent = CounterMetricFamily(
            "nodeagent_channel_sent", "Items sent into the channel", labels=["channel"]
        )
        lost = CounterMetricFamily(
            "nodeagent_channel_coalesced",
            "Items that did not fit and are said again later",
            labels=["channel"],
        )
        wait = CounterMetricFamily(
            "nodeagent_channel_wait_seconds", "Time items spent in the channel", labels=["channel"]
        )
        for channel in self._channels:
            stats = channel.stats
            depth.add_metric([channel.name], channel.depth)
            high.add_metric([channel.name], stats.high_water)
            sent.add_metric([channel.name], stats.sent)
            lost.add_metric([channel.name], stats.coalesced)
            wait.add_metric([channel.name], stats.wait_seconds)
        return [depth, high, sent, lost, wait]
