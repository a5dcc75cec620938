"""Partition and mask of 32K-token histories against the bare tokenizer on the same text.

    python benchmarks/partition.py

Goal: at least 0.8 of the speed of `encode_batch` with offsets on one thread, 0.7 on two, and
memory flat over 1,000 histories. The histories are source files of Python's standard library as
tool results; the tokenizer is a 32K byte-level BPE trained on a part of them. Rounds of both are
interleaved in one run and the medians compared.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import sysconfig
import time
from itertools import islice
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from sumone.masking import apply_mask, mask_nonce, partition_rendered, sample_mask
from sumone.render import Rendered, render
from sumone.tokens import TokenizerTokens
from sumone.types import Message, ToolCall

RESULT = Path(__file__).parent / "results" / "partition.json"
HISTORY_TOKENS = 32_768
ROUNDS = 7


def sources() -> list[tuple[str, str]]:
    folder = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(p for p in folder.rglob("*.py") if "test" not in p.parts)
    return [(p.name, p.read_text(encoding="utf-8", errors="replace")) for p in files[:900]]


def train_tokenizer(texts: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=32_768,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def histories(tokens: TokenizerTokens, count: int) -> list[list[Message]]:
    """Conversations that read one file after another until they reach 32K tokens."""
    found: list[list[Message]] = []
    messages: list[Message] = []
    size = 0
    files = sources()
    index = 0
    while len(found) < count:
        name, text = files[index % len(files)]
        index += 1
        call = ToolCall(id=f"c{index}", name="read_file", arguments=json.dumps({"path": name}))
        messages.append(Message(role="assistant", text=f"Reading {name}.", calls=(call,)))
        text = text[: 4 * HISTORY_TOKENS]
        messages.append(Message(role="tool", call_id=call.id, name="read_file", text=text))
        size += tokens.count(text)
        if size >= HISTORY_TOKENS:
            found.append(messages)
            messages, size = [], 0
    return found


def ours(rendered: Rendered, tokens: TokenizerTokens, index: int) -> int:
    blocks = partition_rendered(rendered, block_tokens=512, tokens=tokens)
    mask = sample_mask(len(blocks), ratio=0.5, seed=0, instance_id=str(index), step=0)
    nonce = mask_nonce(rendered.text, seed=0, instance_id=str(index), step=0)
    return len(apply_mask(blocks, mask, nonce))


def measure(num_histories: int) -> dict[str, object]:
    """One process, one thread count (set by the environment)."""
    texts = [text for _, text in islice(sources(), 0, None, 3)]
    tokenizer = train_tokenizer(texts)
    tokens = TokenizerTokens(tokenizer, "bpe32k")
    rendered = [render(messages) for messages in histories(tokens, num_histories)]
    whole = [item.text for item in rendered]
    total = sum(tokens.count_batch(whole))
    bare, own = [], []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        encoded = tokenizer.encode_batch(whole)
        offsets = [item.offsets for item in encoded]
        bare.append(time.perf_counter() - start)
        del encoded, offsets
        start = time.perf_counter()
        for index, item in enumerate(rendered):
            ours(item, tokens, index)
        own.append(time.perf_counter() - start)
    ratio = statistics.median(b / o for b, o in zip(bare, own, strict=True))
    return {
        "tokens": total,
        "num_histories": len(rendered),
        "bare_seconds": statistics.median(bare),
        "partition_and_mask_seconds": statistics.median(own),
        "speed_ratio_median_of_rounds": round(ratio, 3),
        "speed_ratio_min_max": [
            round(min(b / o for b, o in zip(bare, own, strict=True)), 3),
            round(max(b / o for b, o in zip(bare, own, strict=True)), 3),
        ],
    }


def memory(count: int) -> dict[str, object]:
    """Peak resident memory after 100 and after `count` histories, each made and dropped."""
    tokens = TokenizerTokens(train_tokenizer([text for _, text in sources()[:100]]), "bpe")
    items = [render(messages) for messages in histories(tokens, 8)]
    peaks = {}
    for index in range(1, count + 1):
        item = items[index % len(items)]
        fresh = Rendered(item.text + f"[user]\n{index}\n", item.parts)
        ours(fresh, tokens, index)
        if index in (100, count):
            peaks[index] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    growth = peaks[count] - peaks[100]
    return {"peak_mib": {str(k): round(v, 1) for k, v in peaks.items()}, "growth_mib": growth}


def child(mode: str, argument: int, threads: int) -> dict[str, object]:
    env = {**os.environ, "RAYON_NUM_THREADS": str(threads)}
    env["TOKENIZERS_PARALLELISM"] = "true" if threads > 1 else "false"
    command = [sys.executable, __file__, "--mode", mode, "--argument", str(argument)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    result: dict[str, object] = json.loads(done.stdout)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=["measure", "memory"])
    parser.add_argument("--argument", type=int, default=16)
    given = parser.parse_args()
    if given.mode == "measure":
        print(json.dumps(measure(given.argument)))
        return
    if given.mode == "memory":
        print(json.dumps(memory(given.argument)))
        return
    one, two = child("measure", 16, 1), child("measure", 16, 2)
    flat = child("memory", 1000, 1)
    result = {
        "command": "python benchmarks/partition.py",
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python "
        f"{platform.python_version()}",
        "goal": "speed ratio >= 0.8 on one thread, >= 0.7 on two; memory flat",
        "one_thread": one,
        "two_threads": two,
        "memory": flat,
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
