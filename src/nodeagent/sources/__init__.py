"""Where pods come from, and how the sources are merged into one stream of updates."""

from nodeagent.sources.file_source import FileSource
from nodeagent.sources.merge import MergeResult, merge_snapshot
from nodeagent.sources.mux import PodMux
from nodeagent.sources.pod_storage import PodStorage
from nodeagent.sources.source import Publish, Source
from nodeagent.sources.url_source import UrlSource

__all__ = [
    "FileSource",
    "MergeResult",
    "PodMux",
    "PodStorage",
    "Publish",
    "Source",
    "UrlSource",
    "merge_snapshot",
]
