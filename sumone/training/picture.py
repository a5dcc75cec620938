"""The picture of a run: reward, quality and length over steps, with before and after."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sumone.training.evaluation import Evaluation

__all__ = ["draw"]

_PANELS = (
    ("reward", "value", "reward R"),
    ("quality", "quality", "quality Q"),
    ("summary_tokens", "num_summary_tokens", "summary length |S| (tokens)"),
)
"""Metric of a step, column of the evaluation, label."""

_WINDOW = 9
"""Steps of the running mean drawn over the noisy single steps."""


def draw(
    file: Path, metrics: Sequence[Mapping[str, Any]], before: Evaluation, after: Evaluation
) -> None:
    """Write the picture as PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.6), layout="constrained")
    FigureCanvasAgg(figure)  # no display, no global state
    panels = figure.subplots(1, len(_PANELS))
    for axes, (metric, column, label) in zip(panels, _PANELS, strict=True):
        points = [(m["step"], m[metric]) for m in metrics if m.get(metric) is not None]
        steps, values = [p[0] for p in points], [p[1] for p in points]
        axes.plot(steps, values, color="tab:blue", alpha=0.3, linewidth=1, label="training step")
        axes.plot(steps, _running_mean(values), color="tab:blue", label=f"mean of {_WINDOW} steps")
        for evaluation, color in ((before, "tab:gray"), (after, "tab:green")):
            mean = evaluation.mean(column)
            if mean is not None:
                name = f"held-out {evaluation.name}"
                axes.axhline(mean, color=color, linestyle="--", linewidth=1.2, label=name)
        axes.set_xlabel("step")
        axes.set_title(label)
        axes.grid(alpha=0.25)
    panels[0].legend(fontsize=7)
    partial = file.with_name(f".{file.name}.partial")
    figure.savefig(partial, dpi=130, format="png")
    partial.replace(file)


def _running_mean(values: Sequence[float]) -> list[float]:
    means = []
    for index in range(len(values)):
        window = values[max(0, index - _WINDOW + 1) : index + 1]
        means.append(sum(window) / len(window))
    return means
