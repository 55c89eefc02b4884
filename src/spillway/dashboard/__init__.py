"""The live dashboard: one feed of values, a server, and a page.

feed/     what the page shows, as frozen values; how they are made; how much of them is kept
server/   one thread that serves the page and the feed on loopback
page/     the page and its assets; also as a file that plays a recorded run
"""
