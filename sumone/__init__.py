"""SumOne: agent memory by masked reconstruction."""
