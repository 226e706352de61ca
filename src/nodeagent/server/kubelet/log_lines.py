"""From the lines of a log file to what a client gets of them. No I/O.

A line is ``<time> <stdout|stderr> <tags> <content>``; the first tag says whether the content is
a full line (F) or a part of one (P). docs/behaviour/server.md, "Container logs".
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from nodeagent.log import Log
from nodeagent.server.kubelet.log_request import LogRequest, parse_time

log = Log("server")

LONGEST_LINE: Final = 4 * 1024 * 1024
"""Bytes of one line of a file; what is longer is no line of a log."""
_FRACTION: Final = 9
_LAST_SECOND: Final = 253_402_300_799  # of the year 9999
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FULL_LINES: Final = re.compile(rb"[0-9][^ \n]{18,40} (?:stdout|stderr) F (.*\n)")
_TIMED_LINES: Final = re.compile(
    rb"(\d{4}-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-5]\d(?:\.\d{1,9})?Z) (stdout|stderr) F (.*\n)"
)
_WIDTH: Final = len("2026-01-01T00:00:00.000000000Z")
_LINE: Final = re.compile(rb"([^ ]+) (stdout|stderr) ([^ ]*) (.*\n?)", re.DOTALL)


class UnsupportedLogError(Exception):
    """A file is no log of a container."""


class LogLines:
    """Takes the bytes of a log as they come, and gives what a client wants of them.

    Args:
        request: what is wanted. ``tail`` counts lines of the file only when nothing is followed:
            then the output ends with the line that was the last when the request came.

    Attributes:
        done: nothing more is wanted.
        skipped: lines that could not be read.
    """

    def __init__(self, request: LogRequest) -> None:
        self._request = request
        self._rest = b""
        self._left = request.limit
        self._lines = None if request.follow else request.tail
        self._at_line_start = True
        self._understood = False
        self._too_long = False
        self.skipped = 0
        self.done = self._lines == 0
        self._plain = not request.timestamps and request.since is None and not request.stream
        self._stream = request.stream.encode()
        self._since = None if request.since is None else _text_of(request.since)

    def feed(self, data: bytes) -> bytes:
        """What the client gets for further bytes of the file.

        Raises:
            UnsupportedLogError: the first line is none of a log.
        """
        if self.done:
            return b""
        data = self._rest + data if self._rest else data
        end = data.rfind(b"\n") + 1
        self._rest = data[end:]
        if len(self._rest) > LONGEST_LINE:
            self._rest, self._too_long = b"", True
        whole = data[:end]
        if self._too_long and whole:
            # What comes before the next end of line belongs to what was no line.
            whole, self._too_long = whole[whole.find(b"\n") + 1 :], False
            self.skipped += 1
        return self._cut(self._convert(whole)) if whole else b""

    def finish(self) -> bytes:
        """What the client gets for a last line that has no end.

        Raises:
            UnsupportedLogError: it is the first line, and none of a log.
        """
        rest, self._rest = self._rest, b""
        return self._cut(self._line(rest)) if rest and not self.done else b""

    def next_file(self) -> bytes:
        """Go on with another file; what the client gets for the rest of the one before."""
        found = self.finish()
        self._too_long = False
        return found

    def _convert(self, whole: bytes) -> bytes:
        if self._lines is None and self._at_line_start:
            found_at_once = self._at_once(whole)
            if found_at_once is not None:
                self._understood = True
                return found_at_once
        found = []
        for line in _lines(whole):
            if self._lines == 0:
                self.done = True
                break
            found.append(self._line(line))
        if self._lines == 0:
            self.done = True
        return b"".join(found)

    def _at_once(self, whole: bytes) -> bytes | None:
        """What a client gets of lines that all are full ones, as most are; None for others."""
        lines = whole.count(b"\n")
        if self._plain:
            full = _FULL_LINES.findall(whole)
            return b"".join(full) if len(full) == lines else None
        timed = _TIMED_LINES.findall(whole)
        if len(timed) != lines:
            return None
        if self._stream:
            timed = [one for one in timed if one[1] == self._stream]
        padded = [(t if len(t) == _WIDTH else fixed_width(t), text) for t, _, text in timed]
        if (since := self._since) is not None:
            # Times of one width in one zone stand in the order of their letters.
            padded = [one for one in padded if one[0] >= since]
        if self._request.timestamps:
            return b"".join([b"%b %b" % one for one in padded])
        return b"".join([text for _, text in padded])

    def _line(self, line: bytes) -> bytes:
        parts = _LINE.fullmatch(line)
        when = None if parts is None else parse_time(parts[1].decode("ascii", "replace"))
        if parts is None or when is None:
            if not self._understood:
                shown = line[:100].decode("utf-8", "replace").rstrip("\n")
                msg = f"unsupported log format: {shown!r}"
                raise UnsupportedLogError(msg)
            self.skipped += 1
            log.debug("log_line_skipped", line=line[:100])
            return b""
        self._understood = True
        if self._lines is not None:
            self._lines -= 1
        content = parts[4]
        if parts[3].partition(b":")[0] == b"P":
            content = content.removesuffix(b"\n")
        return self._shown(parts[1], when, parts[2], content)

    def _shown(self, written: bytes, when: int, stream: bytes, content: bytes) -> bytes:
        at_start = self._at_line_start
        self._at_line_start = content.endswith(b"\n") if content else True
        wanted = self._request
        if wanted.stream and wanted.stream.encode() != stream:
            return b""
        if wanted.since is not None and when < wanted.since:
            return b""
        if wanted.timestamps and at_start:
            return fixed_width(written) + b" " + content
        return content

    def _cut(self, found: bytes) -> bytes:
        if self._left is None:
            return found
        found = found[: self._left]
        self._left -= len(found)
        if self._left == 0:
            self.done = True
            self._rest = b""
        return found


def _lines(data: bytes) -> list[bytes]:
    """The lines of ``data``, which end with a line feed and nothing else."""
    return [line + b"\n" for line in data.split(b"\n")[:-1]]


def _text_of(moment: int) -> bytes:
    """Nanoseconds since the epoch in the form of a log's times, of fixed width."""
    seconds, fraction = divmod(moment, 10**9)
    whole = _EPOCH + timedelta(seconds=min(max(seconds, 0), _LAST_SECOND))
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{fraction:09d}Z".encode()


def fixed_width(time: bytes) -> bytes:
    """A time of RFC 3339 with all nine digits of the nanoseconds."""
    front, zone = (time[:-1], b"Z") if time[-1:] in b"Zz" else (time[:-6], time[-6:])
    whole, _, fraction = front.partition(b".")
    return whole + b"." + fraction[:_FRACTION].ljust(_FRACTION, b"0") + zone
