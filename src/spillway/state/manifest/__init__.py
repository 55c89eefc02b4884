"""Manifests: they give run files a meaning."""
