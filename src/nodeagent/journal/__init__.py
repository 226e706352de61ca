"""The flight recorder: every step of the ring, in a bounded ring buffer."""

from nodeagent.journal.journal import Journal, JournalRecord

__all__ = ["Journal", "JournalRecord"]
