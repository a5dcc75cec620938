"""What `sumone data show FILE` prints: one file's read report."""

from pathlib import Path

from sumone.data.reading import load
from sumone.data.report import REASONS, Report

__all__ = ["render_report", "show"]

_SHOWN_LINES = 20


def show(path: Path, format: str | None = None) -> Report:
    """Read a whole file and report what was read; raises what `load` raises."""
    report = Report()
    for _ in load(path, format, report):
        pass
    return report


def render_report(report: Report) -> str:
    """The report as text, a fact a line."""
    kept = f"{report.characters_in:,} in = {report.characters_out:,} out"
    kept += f" + {report.drops.dropped.total():,} dropped"
    if not report.conserved:
        kept += "  (DOES NOT ADD UP: please report this file)"
    unpaired = (
        f"{report.calls_without_result:,} calls without result, "
        f"{report.results_without_call:,} results without call, "
        f"{report.repeated_results:,} repeated results"
    )
    facts = [
        ("file", report.source),
        ("format", report.format),
        ("trajectories", f"{report.trajectories:,}"),
        ("messages", f"{report.messages:,}"),
        ("calls", f"{report.calls:,}"),
        ("results", f"{report.results:,}"),
        ("unpaired", unpaired),
        ("skipped", f"{len(report.skipped):,} lines or rows"),
        ("characters", kept),
    ]
    lines = [f"{name:<13}{value}" for name, value in facts]
    dropped = sorted(report.drops.dropped.items(), key=lambda item: (-item[1], item[0]))
    lines += [f"  dropped {count:>12,}  {reason}: {REASONS[reason]}" for reason, count in dropped]
    lines += [
        f"  skipped line {skip.line}: {skip.reason}" for skip in report.skipped[:_SHOWN_LINES]
    ]
    if len(report.skipped) > _SHOWN_LINES:
        lines.append(f"  ... and {len(report.skipped) - _SHOWN_LINES:,} more")
    lines += [f"  note: {text} ({count:,}x)" for text, count in sorted(report.drops.notes.items())]
    return "\n".join(lines)
