"""The command line: `sumone train | data show | data build | compress`.

stdout carries results, stderr logs and progress. Exit codes: 0 done, 1 failed, 2 the user can
put it right. Heavy packages load only in the command that needs them.
"""

import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from sumone import __version__
from sumone.config import load_data_config, load_train_config
from sumone.errors import ConfigError, DataError, EnvironmentFailure, SumOneError

__all__ = ["app", "main"]

app = typer.Typer(
    name="sumone",
    help="Agent memory by masked reconstruction: train a summarizer, use it anywhere.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="Transcripts and compaction instances.", no_args_is_help=True)
app.add_typer(data_app, name="data")

ConfigPath = Annotated[Path, typer.Argument(metavar="CONFIG", help="YAML file.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Values that win over it.")
]


@app.command()
def train(
    config: ConfigPath,
    overrides: Overrides = None,
    resume: Annotated[bool, typer.Option(help="Go on with the run in output_dir.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would happen and what it would cost.")
    ] = False,
    strict: Annotated[
        bool, typer.Option(help="With --dry-run: fail where something cannot be reached.")
    ] = False,
) -> None:
    """Train a summarizer by GRPO on the masked-reconstruction reward."""
    settings = load_train_config(config, overrides or ())
    if strict and not dry_run:
        raise ConfigError("--strict belongs to --dry-run")
    try:
        from sumone.training.grpo import train as run
    except ModuleNotFoundError as error:
        raise _missing(error, "train") from error
    raise typer.Exit(run(settings, resume=resume, dry_run=dry_run, strict=strict))


@data_app.command("show")
def data_show(
    file: Annotated[Path, typer.Argument(help="A transcript of any supported format.")],
    format: Annotated[str | None, typer.Option(help="Read it as this format.")] = None,
) -> None:
    """Tell what was read from a transcript, and what was left out and why."""
    from sumone.data.show import render_report, show

    print(render_report(show(file, format)))  # noqa: T201 - results go to stdout


@data_app.command("build")
def data_build(
    config: ConfigPath,
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]... [FILES]...", help="Overrides, then transcripts."),
    ] = None,
) -> None:
    """Make training and held-out instances from transcripts."""
    overrides, files = _divide(values or [])
    settings = load_data_config(config, overrides)
    from sumone.data.instances import build

    print(build(settings, files).text())  # noqa: T201 - results go to stdout


def _divide(values: Sequence[str]) -> tuple[list[str], list[Path]]:
    """Overrides and files; a value with `=` that names an existing file is a file."""
    overrides = [value for value in values if "=" in value and not Path(value).exists()]
    return overrides, [Path(value) for value in values if value not in overrides]


@app.command()
def compress(
    transcript: Annotated[Path, typer.Argument(help="A transcript of any supported format.")],
    summarizer: Annotated[
        str, typer.Option(help="A run folder, a model folder, an address, or rule-based.")
    ] = "rule-based",
    model: Annotated[str, typer.Option(help="Name of the model behind an address.")] = "",
    api_key_env: Annotated[
        str, typer.Option(help="Environment variable that holds the key of an address.")
    ] = "",
    recent_tokens: Annotated[
        int | None, typer.Option(min=0, help="The last messages stay, up to this size.")
    ] = None,
    budget_tokens: Annotated[int | None, typer.Option(min=1, help="Longest summary.")] = None,
    number: Annotated[
        int, typer.Option(min=1, help="Which trajectory of a file that holds several, from 1.")
    ] = 1,
) -> None:
    """Summarize a transcript's expired history; print the summary and what the agent would see."""
    from sumone.data import load
    from sumone.runtime.compress import compress as run

    chosen = next(islice(load(transcript), number - 1, None), None)
    if chosen is None:
        raise DataError(f"{transcript} holds fewer than {number} trajectories: lower --number")
    result = run(
        chosen,
        summarizer,
        model_name=model,
        api_key_env=api_key_env,
        recent_tokens=recent_tokens,
        budget_tokens=budget_tokens,
    )
    print(result.text())  # noqa: T201 - results go to stdout


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)  # noqa: T201 - results go to stdout


def _missing(error: ModuleNotFoundError, extra: str) -> EnvironmentFailure:
    return EnvironmentFailure(
        f"the package {error.name} is not installed: pip install 'sumone[{extra}]'"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; the only place where errors become exit codes."""
    errors = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    try:
        app(args=None if arguments is None else list(arguments))
    except (ConfigError, DataError) as error:
        errors.print(f"sumone: {error}")
        sys.exit(2)
    except SumOneError as error:
        errors.print(f"sumone: {error}")
        sys.exit(1)
    except KeyboardInterrupt:
        errors.print("sumone: interrupted")
        sys.exit(130)
