"""Training the policy with TRL (Section 4.1): the only layer that imports torch at module level."""

from sumone.training.grpo import train

__all__ = ["train"]
