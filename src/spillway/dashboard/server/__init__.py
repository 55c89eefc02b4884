"""The server: serves the page and the feed from a thread, and takes commands with a token."""
