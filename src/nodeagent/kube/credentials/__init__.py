"""Credentials over time: files that change, bootstrap by CSR, rotation of certificates."""
