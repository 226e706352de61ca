"""The small processes behind containers: one zygote, and a monitor forked from it for each.

Everything here uses the standard library only and imports little of it, because a monitor
lives as long as its container. Monitors share the zygote's memory; what is private to one is
about half a megabyte. They outlive the zygote and the server.
"""
