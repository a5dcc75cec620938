"""Table 10 and what a judge costs."""

import pytest

from sumone.costs import PRICES, find_price, judge_tokens, usage_usd


def test_table_10() -> None:
    listed = {name: (price.input_usd, price.output_usd) for name, price in PRICES.items()}
    assert listed == {
        "GPT-6 Luna": (0.20, 1.20),
        "DeepSeek V4.1 Flash": (0.15, 0.60),
        "Qwen3.5-35B-A3B": (0.0592, 0.4739),
        "Qwen3.5-2B": (0.02, 0.10),
        "Qwen3.5-4B": (0.03, 0.15),
        "Gemini 3.7 Flash": (0.75, 3.75),
        "GLM-5.3": (1.40, 4.40),
        "Kimi K3": (3.00, 15.00),
        "Qwen3.8 Flash": (0.1185, 0.3999),
    }


def test_names_as_endpoints_spell_them() -> None:
    for name in ("deepseek-v4.1-flash", "deepseek-ai/DeepSeek-V4.1-Flash", "DeepSeek V4.1 Flash"):
        found = find_price(name)
        assert found is not None
        assert found[0] == "DeepSeek V4.1 Flash"
    assert find_price("deepseek-v4-flash") is None
    assert find_price("") is None


def test_usage() -> None:
    price = PRICES["DeepSeek V4.1 Flash"]
    assert usage_usd(price, input_tokens=2e6, output_tokens=1e6) == pytest.approx(0.90)
    tokens_in, tokens_out = judge_tokens(verdicts=10, block_tokens=500)
    assert tokens_in > 10 * 1000
    assert tokens_out > 0
    assert judge_tokens(verdicts=0, block_tokens=500) == (0, 0)
