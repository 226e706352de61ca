"""What the agent serves over HTTP: health, metrics, the journal and the pod list."""

from nodeagent.server.app import App, Request, Response, joined
from nodeagent.server.health import Check, CheckResult, HealthChecks, Level
from nodeagent.server.http import HttpListener, bind_error
from nodeagent.server.routes import health_app, metrics_app, read_only_app

__all__ = [
    "App",
    "Check",
    "CheckResult",
    "HealthChecks",
    "HttpListener",
    "Level",
    "Request",
    "Response",
    "bind_error",
    "health_app",
    "joined",
    "metrics_app",
    "read_only_app",
]
