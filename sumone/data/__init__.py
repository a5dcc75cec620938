"""From transcript files to trajectories and training instances."""

from sumone.data.reading import FORMATS, load, sniff
from sumone.data.report import REASONS, Report
from sumone.data.show import render_report, show

__all__ = ["FORMATS", "REASONS", "Report", "load", "render_report", "show", "sniff"]
