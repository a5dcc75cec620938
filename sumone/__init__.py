"""SumOne: a small summarizer for agent memory, trained without labels by masked reconstruction."""

__all__ = ["__version__"]

__version__ = "0.1.0"
