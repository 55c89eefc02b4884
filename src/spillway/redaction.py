"""Hides secrets in text that people and other programs read.

Secrets come in locations (`s3://key:secret@bucket`, `jdbc:...;password=...`) and in options of sinks.
Text leaves a process as an error, a log line, an event, a description or a document, and all of it
passes `hidden`. This function hides secrets in two ways:

- by form: the user part of any URI, and the values of URI parameters and `name=value` pairs whose
  name says that they are secret. A URI parameter shows its value only if its name is known as harmless.
- by value: secrets that `learn_location` and `learn_options` saw in this process, as written and
  decoded. So it also covers an error of a library that quotes only the secret, or in another form.

Known limitation: by value, it hides only secrets of at least six characters. Shorter ones are part of
many words, and hiding them there would reveal them.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote, quote_plus, unquote, unquote_plus

MASK = "***"
#: Shortest secret that is hidden by its value.
LEAST_LENGTH = 6
#: Secrets that a process remembers; the oldest go first.
_MOST_KNOWN = 4096

_SECRET_NAME = (
    r"[\w.\-]*(?:passw(?:or)?d|passphrase|pwd|secret|token|credential|access[._\-]?key|account[._\-]?key"
    r"|api[._\-]?key|private[._\-]?key|shared[._\-]?key|signature|jaas|authorization)[\w.\-]*"
    r"|sig|sas"
)
#: URI parameters that show their value.
_HARMLESS = frozenset(
    (
        *("allow_bucket_creation", "allow_bucket_deletion", "background_writes", "buffer_size"),
        *("default_block_size", "endpoint_override", "region", "replication", "scheme"),
        *("retry_limit_seconds", "se", "sp", "spr", "sr", "ssl", "sslmode", "st", "sv"),
        *("tls_ca_file_path", "tls_verify_certificates"),
    )
)
#: Their user part names a container, unless a password follows.
_CONTAINERS = ("abfs", "abfss", "wasb", "wasbs")

_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]*)://(?P<rest>[^\s\"<>`]+)")
# A password that should have been encoded may have any character; then the last @ ends it.
_USER = re.compile(r"^(?P<user>[^/?#:@]*:(?!\d*(?:[/?#]|$)).*|[^/?#]*)@")
#: The one kind of JDBC URL that has no // before its user.
_ORACLE = re.compile(r"(jdbc:oracle:\w+:)(?P<user>[^@\s]+)@", re.IGNORECASE)
# A quote or a bracket at the end belongs to the text around the URI.
_PARAMETER = re.compile(r"(?P<name>[?&;][\w.\-%]+=)(?P<value>[^&;#\s]*?)(?=[')\],.:]*$|[&;#])")
_PAIR = re.compile(
    rf"(?P<name>(?<![\w.\-])(?:{_SECRET_NAME})[\"']?(?:=|[\"']\s*:\s*))"
    r"(?P<value>\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|[^\s&;,\"']+)",
    re.IGNORECASE,
)
_NAMED_SECRET = re.compile(_SECRET_NAME, re.IGNORECASE)

_known: dict[str, None] = {}
_lock = threading.Lock()


def hidden(text: str) -> str:
    """The text without secrets.

    Example:
        >>> hidden("cannot open s3://AKIA:wJalr@bucket/ck?region=eu&secret_key=x")
        'cannot open s3://***@bucket/ck?region=eu&secret_key=***'
    """
    for secret in _longest_first():
        text = text.replace(secret, MASK)
    text = _URI.sub(lambda found: _printed(found["scheme"], found["rest"]), text)
    text = _ORACLE.sub(rf"\1{MASK}@", text)
    return _PAIR.sub(lambda found: found["name"] + MASK, text)


def hidden_options(options: Mapping[str, str]) -> dict[str, str]:
    """Options with their values hidden where the name or the value has a secret."""
    return {
        name: MASK if _NAMED_SECRET.fullmatch(name) else hidden(value)
        for name, value in options.items()
    }


def learn_location(location: str) -> None:
    """Remembers the secrets of a path or URI, so that no text of this process shows them."""
    _remember(_secrets_of(location))


def learn_secret(secret: str) -> None:
    """Remembers a text that is known to be a secret."""
    _remember([secret])


def learn_options(options: Mapping[str, str]) -> None:
    """Remembers the secrets among the options of a sink."""
    for name, value in options.items():
        if _NAMED_SECRET.fullmatch(name):
            _remember([value])
        _remember(_secrets_of(value))


def _secrets_of(text: str) -> Iterator[str]:
    for found in _URI.finditer(text):
        yield from _secrets_of_uri(found["scheme"], found["rest"])
    for found in _ORACLE.finditer(text):
        yield found["user"].partition("/")[2]
    for found in _PAIR.finditer(text):
        yield found["value"].strip("\"'")


def _secrets_of_uri(scheme: str, rest: str) -> Iterator[str]:
    if found := _USER.match(rest):
        name, colon, password = found["user"].partition(":")
        if not (colon or scheme in _CONTAINERS):
            yield name
        elif colon:
            yield password
            # A key and its secret; elsewhere it is the name of a user, which may be any word.
            if scheme.startswith(("s3", "gs", "gcs", "oss", "cos")):
                yield name
    for found in _PARAMETER.finditer(rest):
        if not _is_harmless(found["name"]):
            yield found["value"]


def _printed(scheme: str, rest: str) -> str:
    if found := _USER.match(rest):
        name, colon, _ = found["user"].partition(":")
        shown = f"{name}{colon}{MASK if colon else ''}" if scheme in _CONTAINERS else MASK
        rest = f"{shown}@{rest[found.end() :]}"
    rest = _PARAMETER.sub(
        lambda one: one[0] if _is_harmless(one["name"]) else one["name"] + MASK, rest
    )
    return f"{scheme}://{rest}"


def _is_harmless(name: str) -> bool:
    return name[1:-1].lower() in _HARMLESS


def _remember(secrets: Iterable[str]) -> None:
    forms = {
        form
        for secret in secrets
        for given in (secret, unquote(secret), unquote_plus(secret))
        for form in _forms(given)
        if len(form) >= LEAST_LENGTH and form.strip("*")
    }
    with _lock:
        for form in forms:
            _known.pop(form, None)
            _known[form] = None
        while len(_known) > _MOST_KNOWN:
            del _known[next(iter(_known))]


def _forms(secret: str) -> tuple[str, ...]:
    """A secret as texts quote it."""
    encoded = (quote(secret, safe=""), quote(secret), quote_plus(secret))
    return (secret, *encoded, repr(secret)[1:-1], json.dumps(secret)[1:-1])


def _longest_first() -> list[str]:
    with _lock:
        return sorted(_known, key=len, reverse=True)
