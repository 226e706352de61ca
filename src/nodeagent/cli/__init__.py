"""The command line. Its libraries load only in the command that needs them."""

from nodeagent.cli.app import main

__all__ = ["main"]
