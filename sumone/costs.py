"""List prices (Table 10) and what a judge costs with them."""

from typing import NamedTuple

__all__ = ["PRICES", "Price", "find_price", "judge_tokens", "usage_usd"]


class Price(NamedTuple):
    """USD per one million tokens, without discounts."""

    provider: str
    """Who lists the price."""
    input_usd: float
    """Price of a million input tokens."""
    output_usd: float
    """Price of a million output tokens."""


PRICES: dict[str, Price] = {
    "GPT-6 Luna": Price("OpenAI", 0.20, 1.20),
    "DeepSeek V4.1 Flash": Price("DeepSeek", 0.15, 0.60),
    "Qwen3.5-35B-A3B": Price("Alibaba Cloud Bailian", 0.0592, 0.4739),
    "Qwen3.5-2B": Price("DeepInfra via Requesty", 0.02, 0.10),
    "Qwen3.5-4B": Price("Alibaba Cloud Bailian", 0.03, 0.15),
    "Gemini 3.7 Flash": Price("Google Gemini API", 0.75, 3.75),
    "GLM-5.3": Price("Z.AI", 1.40, 4.40),
    "Kimi K3": Price("Kimi API", 3.00, 15.00),
    "Qwen3.8 Flash": Price("Alibaba Cloud Bailian", 0.1185, 0.3999),
}
"""Table 10, to the letter."""


def find_price(model: str) -> tuple[str, Price] | None:
    """The listed model that a model name of an endpoint means; None where none is meant.

    Upper and lower case, spaces, dashes and an organisation before a slash do not matter.
    """
    wanted = _plain(model.rpartition("/")[2])
    for name, price in PRICES.items():
        if _plain(name) == wanted:
            return name, price
    return None


def _plain(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum() or c == ".")


def usage_usd(price: Price, *, input_tokens: float, output_tokens: float) -> float:
    """List price of some usage in USD."""
    return (input_tokens * price.input_usd + output_tokens * price.output_usd) / 1e6


_RUBRIC_TOKENS = 300
_VERDICT_TOKENS = 120
"""What a verdict needs around truth and prediction: rubric and tags in, one JSON object out."""


def judge_tokens(*, verdicts: float, block_tokens: float) -> tuple[float, float]:
    """Estimated input and output tokens of so many verdicts: a prediction is taken to be as long
    as its block."""
    return verdicts * (2 * block_tokens + _RUBRIC_TOKENS), verdicts * _VERDICT_TOKENS
