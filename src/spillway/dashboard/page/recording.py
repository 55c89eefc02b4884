"""A recorded run as one file: the page, its assets, and the messages of a feed.

The file loads nothing, and its own policy lets only its own scripts run. Messages are compressed,
because most numbers of one message are those of the message before.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Sequence

import msgspec

from spillway.dashboard.feed.news import News
from spillway.dashboard.page.assets import SCRIPTS, STYLES, asset


def recorded_page(messages: Sequence[News]) -> str:
    """Returns the page that plays these messages, at the times of their `now_s`."""
    timed, now_s = [], 0.0
    for news in messages:
        now_s = now_s if news.now_s is None else news.now_s
        timed.append(msgspec.structs.replace(news, now_s=now_s))
    packed = base64.b64encode(gzip.compress(msgspec.json.encode(timed), 9, mtime=0)).decode()
    scripts = [_text(name) for name in SCRIPTS]
    styles = [_text(name) for name in STYLES]
    page = _text("index.html")
    head = page[: page.index('<link rel="icon"')]
    body = page[page.index("<body>") : page.index("</body>")]
    return "\n".join(
        (
            head + _policy(scripts, styles),
            *(f"<style>{one}</style>" for one in styles),
            "</head>",
            body,
            f'<script type="application/json" id="recording">{packed}</script>',
            *(f"<script>{one}</script>" for one in scripts),
            "</body>\n</html>\n",
        )
    )


def _policy(scripts: Sequence[str], styles: Sequence[str]) -> str:
    """The policy of the file: its scripts and styles by their hashes, and nothing else."""
    own = " ".join(map(_hash, scripts))
    look = " ".join(map(_hash, styles))
    rules = f"default-src 'none'; script-src {own}; style-src {look}; base-uri 'none'"
    return f'<meta http-equiv="Content-Security-Policy" content="{rules}">'


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _text(name: str) -> str:
    data = asset(name)
    assert data is not None
    text = data.decode()
    # A script that contains its own end tag would end there.
    assert "</script" not in text or name.endswith(".html")
    return text
