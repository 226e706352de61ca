"""The flight recorder: every step of the ring, in a bounded ring buffer."""

from nodeagent.journal.journal import Journal, JournalRecord
from nodeagent.journal.lines import json_line

__all__ = ["Journal", "JournalRecord", "json_line"]
