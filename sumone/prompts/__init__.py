"""The prompts: texts in `*.md` beside this file, filled in by Jinja with strict variables.

Each file has a `system` and a `user` block. `standard` prompts are for instruction models,
`short` ones for small instruction models whose context has no room for long instructions,
`compact` ones for the tiny models, whose warm-up taught them the form.
"""

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Literal

from jinja2 import Environment, StrictUndefined, Template

from sumone.render import render_text
from sumone.types import ChatMessage, CompactionInstance, Message

__all__ = [
    "UNRECOVERABLE",
    "Style",
    "answer_tags",
    "judge_prompt",
    "reconstruct_prompt",
    "summarize_prompt",
    "summary_judge_prompt",
]

Style = Literal["standard", "short", "compact"]

UNRECOVERABLE = "UNRECOVERABLE"
"""What the reconstructor writes for a block that it cannot recover."""


def summarize_prompt(
    instance: CompactionInstance, *, style: Style, budget_tokens: int
) -> list[ChatMessage]:
    """What the policy reads: context, existing memory and expired history (Equation 1)."""
    return _fill(
        f"summarize.{style}",
        preamble=render_text(instance.preamble),
        recent=render_text(instance.recent),
        memory=render_text(instance.memory),
        history=render_text(instance.history),
        budget_tokens=budget_tokens,
        budget_words=max(1, budget_tokens * 3 // 4),
    )


def reconstruct_prompt(
    context: Sequence[Message],
    masked_history: str,
    summary: str,
    *,
    style: Style,
    markers: Sequence[str],
    nonce: str,
) -> list[ChatMessage]:
    """What the reconstructor reads (Equation 3): fixed instructions, C, masked history, S, and
    the short request last, so that a server can reuse the shared prefix. `markers` are those of
    the blocks asked for."""
    return _fill(
        f"reconstruct.{style}",
        context=render_text(context),
        masked_history=masked_history,
        summary=summary,
        markers=list(markers),
        nonce=nonce,
        unrecoverable=UNRECOVERABLE,
    )


def answer_tags(index: int, nonce: str) -> tuple[str, str]:
    """Opening and closing tag around the reconstruction of one block."""
    return f'<block-{nonce} index="{index}">', f"</block-{nonce}>"


def judge_prompt(truth: str, prediction: str, *, nonce: str) -> list[ChatMessage]:
    """What the judge reads: truth and prediction as data, never the summary (Section 3.3)."""
    return _fill("judge", truth=truth, prediction=prediction, nonce=nonce)


def summary_judge_prompt(history: str, summary: str, *, nonce: str) -> list[ChatMessage]:
    """The ablation of Table 5: the judge grades the summary itself."""
    return _fill("summary_judge", history=history, summary=summary, nonce=nonce)


@cache
def _template(name: str) -> Template:
    # No autoescape: these are prompts, not HTML.
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, autoescape=False)
    text = files(__package__).joinpath(f"{name}.md").read_text(encoding="utf-8")
    return environment.from_string(text)


def _fill(name: str, **values: object) -> list[ChatMessage]:
    template = _template(name)
    context = template.new_context(values)
    messages: list[ChatMessage] = []
    for role in ("system", "user"):
        content = "".join(template.blocks[role](context)) if role in template.blocks else ""
        if content:
            messages.append({"role": role, "content": content})
    return messages
