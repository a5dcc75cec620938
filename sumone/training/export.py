"""The trained policy as a folder that anyone can load: weights, tokenizer, `sumone.json`.

`sumone.json` carries what the summarizer needs to be used as it was trained: compaction
settings, prompt style, budget. An adapter is merged into its base, so that the folder stands
alone; the adapter is kept beside it.
"""

import json
from pathlib import Path
from typing import Any

from trl import GRPOTrainer

from sumone import __version__
from sumone.config import TrainConfig
from sumone.training.run_folder import write_atomically

__all__ = ["SUMMARIZER_FILE", "save_policy"]

SUMMARIZER_FILE = "sumone.json"
"""Written last: a folder without it is not finished."""


def save_policy(trainer: GRPOTrainer, config: TrainConfig, folder: Path) -> None:
    """Write the policy of a trainer. Collective: every process calls it."""
    if config.policy.lora is None:
        trainer.save_model(str(folder))
    else:
        _save_merged(trainer, folder)
    if trainer.accelerator.is_main_process:
        # TRL's settings of the run do not belong to the model.
        (folder / "training_args.bin").unlink(missing_ok=True)
        trainer.processing_class.save_pretrained(folder)
        described = json.dumps(describe(config, trainer.state.global_step), indent=1)
        write_atomically(folder / SUMMARIZER_FILE, described + "\n")
    trainer.accelerator.wait_for_everyone()


def describe(config: TrainConfig, steps: int) -> dict[str, Any]:
    """The contents of `sumone.json`."""
    return {
        "sumone_version": __version__,
        "prompts": config.prompts,
        "budget_tokens": config.reward.budget_tokens,
        "compaction": config.compaction.model_dump(mode="json"),
        "trained": {"base": config.policy.path, "steps": steps, "digest": config.digest()},
    }


def _save_merged(trainer: GRPOTrainer, folder: Path) -> None:
    trainer.save_model(str(folder / "adapter"))
    if not trainer.accelerator.is_main_process:
        return
    (folder / "adapter" / "training_args.bin").unlink(missing_ok=True)
    adapted: Any = trainer.accelerator.unwrap_model(trainer.model)
    adapted.merge_adapter()
    try:
        base = adapted.get_base_model()
        weights = {
            name.replace(".base_layer", ""): tensor
            for name, tensor in base.state_dict().items()
            if ".lora_" not in name
        }
        base.save_pretrained(folder, state_dict=weights)
    finally:
        adapted.unmerge_adapter()
