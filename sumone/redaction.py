"""Takes home paths, e-mail addresses and secrets out of text and leaves typed placeholders.

A placeholder such as `[REDACTED:aws_key]` says what stood there; the name in `NAME=value`, the
user and host of an address and the rest of a path stay. Every pattern is bounded, so the time is
linear in the text. Quotes and backslashes are never taken, so JSON stays JSON.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from sumone.types import Message

__all__ = ["Redacted", "redact", "redact_message"]


class Redacted(NamedTuple):
    """A text without what must not be kept, and what was taken out."""

    text: str
    """The text with placeholders."""
    counts: Mapping[str, int]
    """How often each type was taken out; types that did not occur are absent."""


class _Rule(NamedTuple):
    kind: str
    hints: tuple[str, ...]
    """One of these stands (in any case) in each text that the pattern matches."""
    pattern: re.Pattern[str]
    """The part named `value` is replaced, or all of it where there is no such part."""
    accept: Callable[[str, re.Match[str]], bool] | None = None


_GAP = r"(?:\s|\\[rnt]|\d{1,6}(?=[\t:|\u2192])|[:|\u2192])*+"
"""Between two lines of a key: line ends (also escaped) and the line numbers of a listing."""

_SECRET_NAME = "|".join(
    # Spelled out in three cases: a search without IGNORECASE is several times as fast.
    f"(?:{spelled})"
    for spelled in (
        r"[Pp]assw(?:or)?d|PASSW(?:OR)?D|[Pp]assphrase|PASSPHRASE",
        r"[Ss]ecret(?:[_-]?(?:[Aa]ccess[_-]?)?[Kk]ey)?|SECRET(?:[_-]?(?:ACCESS[_-]?)?KEY)?",
        r"[Tt]oken|TOKEN|[Cc]redentials?|CREDENTIALS?|(?<=_)(?:pwd|PWD|pat|PAT)",
        r"(?:[Aa]pi|[Aa]ccess|[Pp]rivate|[Aa]uth|[Aa]ccount|[Ee]ncryption|[Ss]igning)[_-]?[Kk]ey",
        r"(?:API|ACCESS|PRIVATE|AUTH|ACCOUNT|ENCRYPTION|SIGNING)[_-]?(?:KEY|Key)",
    )
)
_NAME_HINTS = ("pass", "secret", "token", "credential", "key", "_pwd", "_pat")
_BARE = r"[^\s\"'\\&;,(){}\[\]<>$`|]"
_WORDS = frozenset(
    {
        "none", "null", "true", "false", "undefined", "nil", "empty", "required", "optional",
        "string", "password", "secret", "token", "bearer", "basic",
    }
)  # fmt: skip


def _readable(value: str) -> bool:
    """A variable, a word of the language, or stars: nothing secret."""
    return (
        value.startswith(("$", "{", "<", "%(", "%s", "[", "os.", "process.", "self."))
        or value.lower() in _WORDS
        or not value.strip("*.xX-_")
    )


def _mixed(value: str) -> bool:
    return any(c.isdigit() for c in value) and any(c.isalpha() for c in value)


def _quoted_secret(value: str, match: re.Match[str]) -> bool:
    if _readable(value):
        return False
    return "token" not in match["name"].lower() or (len(value) >= 8 and _mixed(value))


def _bare_secret(value: str, match: re.Match[str]) -> bool:
    following = match.string[match.end() : match.end() + 1]
    # A call, an index or an attribute: code that reads a secret, not the secret.
    if _readable(value) or following in tuple("([{"):
        return False
    if match["name"].isupper() and match["sign"] == "=":
        return True
    return len(value) >= 8 and _mixed(value)


def _flag_secret(value: str, match: re.Match[str]) -> bool:
    return not _readable(value) and not value.startswith("-")


def _not_variable(value: str, match: re.Match[str]) -> bool:
    return not _readable(value)


def _credential(value: str, match: re.Match[str]) -> bool:
    # Behind the bare word, prose may follow ("bearer authentication is needed").
    return len(match["header"]) > len("bearer") or any(c.isdigit() for c in value)


def _rule(
    kind: str,
    hints: tuple[str, ...],
    pattern: str,
    accept: Callable[[str, re.Match[str]], bool] | None = None,
) -> _Rule:
    return _Rule(kind, hints, re.compile(pattern), accept)


_RULES: tuple[_Rule, ...] = (
    _rule(
        "private_key",
        ("private key",),
        r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
        rf"(?:{_GAP}(?:(?:Proc-Type|DEK-Info|Version|Comment): ?[^\r\n\\]{{0,200}}+"
        r"|[A-Za-z0-9+/]{20,}+={0,2}+))++"
        rf"(?:{_GAP}[A-Za-z0-9+/]{{1,19}}+={{0,2}}+(?={_GAP}[-=]))?+"
        rf"(?:{_GAP}=?[A-Za-z0-9+/=]{{0,8}}+{_GAP}"
        r"-----END (?:[A-Z0-9]{1,12} ){0,4}PRIVATE KEY(?: BLOCK)?-----)?+",
    ),
    _rule(
        "aws_key",
        ("akia", "asia", "aroa", "aida", "abia", "acca"),
        r"(?<![A-Za-z0-9])(?:AKIA|ASIA|AROA|AIDA|ABIA|ACCA)[0-9A-Z]{16}(?![A-Za-z0-9])",
    ),
    _rule(
        "github_token",
        ("gh", "github_pat_"),
        r"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9]{30,255}+|github_pat_[A-Za-z0-9_]{22,255}+)",
    ),
    _rule(
        "slack_token",
        ("xox", "hooks.slack.com", "xapp-"),
        r"(?<![A-Za-z0-9])(?:xox[abeoprs]-[A-Za-z0-9-]{10,255}+|xapp-[A-Za-z0-9-]{20,255}+"
        r"|hooks\.slack\.com/services/(?P<value>[A-Za-z0-9/]{20,120}+))",
    ),
    _rule(
        "api_key",
        ("sk-", "sk_", "rk_", "aiza", "hf_", "glpat-", "npm_", "pypi-"),
        # After `sk-`: short words, then one long run. A name in kebab case has no such run.
        r"(?<![A-Za-z0-9_-])(?:sk-(?:[a-z0-9]{2,10}-){0,3}[A-Za-z0-9_]{16,255}[A-Za-z0-9_-]{0,255}+"
        r"|[sr]k_(?:live|test)_[A-Za-z0-9]{16,255}+|AIza[0-9A-Za-z_-]{35,64}+"
        r"|hf_[A-Za-z0-9]{30,64}+|glpat-[A-Za-z0-9_-]{20,64}+|npm_[A-Za-z0-9]{36,64}+"
        r"|pypi-[A-Za-z0-9_-]{50,255}+)",
    ),
    _rule(
        "jwt",
        ("eyj",),
        r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{10,4096}+\.eyJ[A-Za-z0-9_-]{4,8192}+"
        r"\.[A-Za-z0-9_-]{8,2048}+",
    ),
    _rule(
        "url_password",
        ("://",),
        r"(?<=://)[^\s:/@?#\"'<>\\]{0,128}+:(?P<value>[^\s/@\"'<>\\]{1,256}+)(?=@)",
        _not_variable,
    ),
    _rule(
        "bearer_token",
        ("bearer", "authorization"),
        r"(?i)(?P<header>(?<![a-z])authorization\\?[\"']?\s{0,2}[:=]\s{0,2}\\?[\"']?"
        r"(?:bearer|basic|token)|(?<![a-z])bearer)[ \t]{1,3}"
        r"(?P<value>[A-Za-z0-9._~+/=-]{12,4096}+)",
        _credential,
    ),
    _rule(
        "secret",
        _NAME_HINTS,
        rf"(?P<name>{_SECRET_NAME})\\?[\"']?\s{{0,2}}[:=]\s{{0,2}}[bruf]{{0,2}}\\?[\"']"
        r"(?P<value>[^\s\"'\\]{4,512}+)(?=\\?[\"'])",
        _quoted_secret,
    ),
    _rule(
        "secret",
        _NAME_HINTS,
        rf"(?P<name>{_SECRET_NAME})(?P<sign>=|:[ \t]{{1,2}})(?P<value>{_BARE}{{4,512}}+)",
        _bare_secret,
    ),
    _rule(
        "secret",
        ("--",),
        rf"(?<![A-Za-z0-9])--(?:[a-z0-9]{{1,16}}-){{0,3}}(?:{_SECRET_NAME})[ =]\\?[\"']?"
        rf"(?P<value>{_BARE}{{4,512}}+)",
        _flag_secret,
    ),
    _rule(
        "email",
        ("@",),
        # `git@` is a login name; the list of endings keeps `a@b.weight` (a matrix product) out.
        r"(?i)(?<![a-z0-9._%+@-])(?!git@)[a-z0-9][a-z0-9._%+-]{0,63}@(?:[a-z0-9-]{1,63}\.){1,6}"
        r"(?:com|org|net|edu|gov|mil|int|info|biz|dev|app|cloud|tech|online|site|name|local"
        r"|localdomain|internal|example|test|invalid|[a-z]{2})(?![a-z0-9_(-])",
    ),
    _rule(
        "home",
        ("users\\", "users/", "settings\\"),
        r"(?i)(?<![a-z0-9])[a-z]:(?P<sep>\\{1,4}|/)(?:Users|Documents and Settings)(?P=sep)"
        r"(?:[\w.-]{1,63} [\w.-]{1,63}(?=(?P=sep)[^\\/])|\w(?:[\w.-]{0,62}\w)?)",
    ),
    _rule(
        "home",
        ("/home/", "/users/"),
        r"(?:(?<![\w.~/}\])$-])|(?<=file://))(?:(?:/mnt)?/[a-z](?=/Users/))?"
        r"/(?:home|Users)/\w(?:[\w.-]{0,62}\w)?",
    ),
    _rule(
        # The folder names that Claude Code makes of paths.
        "home",
        ("-home-", "-users-"),
        r"(?<=projects/)-(?:home|Users)-\w{1,63}",
    ),
)


def redact(text: str) -> Redacted:
    """Replace what must not be kept by `[REDACTED:type]`; pure, idempotent, in linear time.

    Types: home, email, private_key, aws_key, github_token, slack_token, api_key, jwt,
    url_password, bearer_token, secret (the value behind a name such as `DB_PASSWORD=`).
    """
    counts: Counter[str] = Counter()
    while True:
        # A replacement can uncover the next one (`key` glued to `key`), so go on until nothing
        # changes. Each replacement removes at least one character that is no placeholder.
        before = text
        lowered = text.lower()
        for rule in _RULES:
            if any(hint in lowered for hint in rule.hints):
                text = _apply(rule, text, counts)
        if text == before:
            return Redacted(text, dict(counts))


def redact_message(message: Message) -> tuple[Message, Mapping[str, int]]:
    """A message with its text and the arguments of its calls redacted, and the counts."""
    counts: Counter[str] = Counter()
    text, found = redact(message.text)
    counts.update(found)
    calls = []
    for call in message.calls:
        arguments, found = redact(call.arguments)
        counts.update(found)
        calls.append(call.model_copy(update={"arguments": arguments}))
    if not counts:
        return message, {}
    return message.model_copy(update={"text": text, "calls": tuple(calls)}), counts


def _apply(rule: _Rule, text: str, counts: Counter[str]) -> str:
    whole = "value" not in rule.pattern.groupindex

    def replace(match: re.Match[str]) -> str:
        group: str | int = 0 if whole or match["value"] is None else "value"
        value: str = match[group]
        if value.startswith("[REDACTED:") or (rule.accept and not rule.accept(value, match)):
            return match[0]
        kind = rule.kind
        if kind == "secret" and _is_aws(match):
            kind = "aws_key"
        counts[kind] += 1
        start, end = match.start(group) - match.start(), match.end(group) - match.start()
        return f"{match[0][:start]}[REDACTED:{kind}]{match[0][end:]}"

    return rule.pattern.sub(replace, text)


def _is_aws(match: re.Match[str]) -> bool:
    before = match.string[max(0, match.start() - 24) : match.start()]
    name = re.search(r"[\w-]*$", before)
    return "aws" in (name[0] if name else "").lower()
