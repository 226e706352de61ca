"""The channels of the ring, and the sync loop that drains them."""

from nodeagent.channels.channel import Channel, ChannelStats, WhenFull
from nodeagent.channels.metrics import ChannelMetrics
from nodeagent.channels.sync_loop import SyncChannels, SyncHandler, SyncLoop
from nodeagent.channels.ticker import Ticker

__all__ = [
    "Channel",
    "ChannelMetrics",
    "ChannelStats",
    "SyncChannels",
    "SyncHandler",
    "SyncLoop",
    "Ticker",
    "WhenFull",
]
