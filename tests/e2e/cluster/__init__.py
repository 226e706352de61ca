"""A control plane of our own for the end-to-end tests: etcd, kube-apiserver, CA, kubectl.

No scheduler, no controllers: tests bind pods to nodes themselves and sign certificates.
"""
