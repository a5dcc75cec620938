"""What a run on several processes needs beyond accelerate.

Before TRL gathers the rewards on the accelerators, the processes meet on the CPU: a late one is
named, and nobody waits in a collective that a watchdog would kill. FSDP reduces gradients in
float32.
"""

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

__all__ = ["RewardRendezvous", "reduce_in_float32"]


class RewardRendezvous:
    """A meeting of all processes on the CPU (gloo), which also adds up failures."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout = timedelta(seconds=timeout_seconds)
        self._group = dist.new_group(backend="gloo", timeout=self._timeout)

    def meet(self, failed: int, total: int) -> tuple[int, int]:
        """Wait for every process; sums of both counts. Raises RuntimeError naming a late one."""
        dist.monitored_barrier(self._group, timeout=self._timeout)
        counts = torch.tensor([failed, total])
        dist.all_reduce(counts, group=self._group)
        return int(counts[0]), int(counts[1])


def reduce_in_float32(trainer: Any) -> None:
    """Make FSDP add up gradients in float32; accelerate would do it in bfloat16.

    To be called between the construction of the trainer and `train()`, which wraps the model.
    """
    plugin = getattr(trainer.accelerator.state, "fsdp_plugin", None)
    if plugin is None or not trainer.args.bf16:
        return
    if plugin.fsdp_version == 2:
        from torch.distributed.fsdp import MixedPrecisionPolicy

        plugin.mixed_precision_policy = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.bfloat16
        )
    else:
        from torch.distributed.fsdp import MixedPrecision

        plugin.mixed_precision_policy = MixedPrecision(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32, buffer_dtype=torch.bfloat16
        )
