"""Exec, attach and port-forward as clients speak them: SPDY/3.1 and WebSocket.

The framing is without I/O (:mod:`spdy`, :mod:`websocket`); :mod:`channels` has both as the same
five channels. See docs/behaviour/server.md, "Streams".
"""
