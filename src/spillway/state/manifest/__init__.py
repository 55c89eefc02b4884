"""Manifests: what gives run files a meaning."""
