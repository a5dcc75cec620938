"""The grpo block: what is refused, what is filled in, and Table 7 in configs/paper.yaml."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from trl import GRPOConfig

from sumone.config import TrainConfig, load_train_config
from sumone.errors import ConfigError
from sumone.training.options import geometry, grpo_arguments

Configure = Callable[..., TrainConfig]
ROOT = Path(__file__).parents[2]


def arguments(config: TrainConfig, processes: int = 1) -> GRPOConfig:
    return grpo_arguments(config, Path(config.output_dir) / "checkpoints", processes=processes)


def test_options_reach_trl_verbatim_and_a_cpu_gets_float32(configure: Configure) -> None:
    found = arguments(configure("grpo.bf16=true", "grpo.epsilon_high=0.28", "grpo.delta=10"))
    assert (found.epsilon_high, found.delta, found.num_generations) == (0.28, 10, 4)
    assert found.max_completion_length == 12
    assert found.chat_template_kwargs == {"enable_thinking": False}
    assert (found.shuffle_dataset, found.remove_unused_columns) == (False, False)
    assert (found.bf16, found.fp16, found.use_cpu) == (False, False, True)
    assert found.model_init_kwargs == {"dtype": "float32"}
    assert (found.logging_steps, found.save_total_limit) == (1, 2)


def test_unknown_keys_are_refused_with_near_matches(configure: Configure) -> None:
    with pytest.raises(ConfigError, match=r"grpo\.learning_rat: .* did you mean learning_rate"):
        arguments(configure("grpo.learning_rat=1"))
    with pytest.raises(ConfigError, match=r"grpo\.max_prompt_length"):  # gone from TRL
        arguments(configure("grpo.max_prompt_length=1"))
    with pytest.raises(ConfigError, match=r"zzz: no such option of GRPOConfig; see trl.GRPOConfig"):
        arguments(configure("grpo.zzz=1"))


def test_a_run_needs_a_number_of_steps(configure: Configure) -> None:
    with pytest.raises(ConfigError, match=r"grpo\.max_steps"):
        arguments(configure("grpo.max_steps=0"))


@pytest.mark.parametrize(
    ("option", "source"),
    [
        ("grpo.max_completion_length=99", "reward.budget_tokens"),
        ("grpo.seed=99", "seed at the top level"),
        ("grpo.output_dir=elsewhere", "output_dir at the top level"),
        ("grpo.shuffle_dataset=true", "seeded order"),
    ],
)
def test_contradictions_are_refused(configure: Configure, option: str, source: str) -> None:
    with pytest.raises(ConfigError, match=source):
        arguments(configure(option))


def test_saying_the_same_twice_is_fine(configure: Configure) -> None:
    assert arguments(configure("grpo.max_completion_length=12", "grpo.seed=3")).seed == 3


def test_the_suggestion_for_a_wrong_geometry_works(configure: Configure) -> None:
    with pytest.raises(ConfigError) as caught:
        arguments(configure("prompts_per_step=6", "grpo.num_generations=8"))
    message = str(caught.value)
    assert "= 48 rollouts" in message
    assert "gives 8" in message
    assert "--num_processes 6" in message
    suggestion = [word for word in message.replace(",", " ").split() if word.startswith("grpo.")]
    fixed = configure("prompts_per_step=6", "grpo.num_generations=8", *suggestion)
    assert arguments(fixed).generation_batch_size == 48


def test_a_geometry_that_no_option_can_save_says_so(configure: Configure) -> None:
    config = configure("prompts_per_step=3", "grpo.per_device_train_batch_size=5")
    with pytest.raises(ConfigError, match="12 rollouts cannot be divided over 5 processes"):
        geometry(config, 5).check()


def test_saves_that_could_not_be_resumed_are_refused(configure: Configure) -> None:
    with pytest.raises(ConfigError, match="save_total_limit=1"):
        arguments(configure("grpo.save_total_limit=1"))
    twice = ("grpo.num_iterations=2", "grpo.per_device_train_batch_size=8")
    with pytest.raises(ConfigError, match="multiple of 2"):
        arguments(configure(*twice, "grpo.save_steps=3"))
    assert arguments(configure(*twice, "grpo.save_steps=4")).num_iterations == 2
    assert arguments(configure(*twice, "grpo.save_steps=3", "grpo.save_strategy=no"))
    with pytest.raises(ConfigError, match="no whole number of updates"):
        arguments(
            configure(
                "grpo.per_device_train_batch_size=4",
                "grpo.gradient_accumulation_steps=2",
                "grpo.steps_per_generation=3",
                "grpo.num_generations=4",
            )
        )


def test_what_trl_refuses_is_a_configuration_error(configure: Configure) -> None:
    with pytest.raises(ConfigError, match="refused by TRL"):
        arguments(configure("grpo.auto_find_batch_size=true"))


def test_paper_yaml_is_table_7_to_the_letter() -> None:
    config = load_train_config(ROOT / "configs" / "paper.yaml")
    options = config.grpo
    assert config.policy.path == "Qwen/Qwen3.5-2B"
    assert config.policy.dtype == "float32"
    assert config.reconstructor.endpoint is not None
    assert config.reconstructor.endpoint.model == "Qwen/Qwen3.5-9B"
    thinking = config.reconstructor.endpoint.extra_body["chat_template_kwargs"]
    assert thinking == {"enable_thinking": False}
    expected = {
        "max_steps": 600,
        "num_generations": 8,
        "learning_rate": 1e-6,
        "lr_scheduler_type": "constant",
        "warmup_steps": 0,
        "beta": 0.0,
        "entropy_coef": 0.0,
        "epsilon": 0.2,
        "epsilon_high": 0.28,
        "delta": 10.0,
        "temperature": 1.0,
        "gradient_checkpointing": True,
        "loss_type": "dapo",
        "scale_rewards": "group",
        "num_iterations": 1,
        "vllm_importance_sampling_correction": False,
        "mask_truncated_completions": False,
        "bf16": True,
    }
    assert {name: options[name] for name in expected} == expected
    assert config.prompts_per_step == 6
    assert (config.masking.block_tokens, config.masking.ratio) == (512, 0.5)
    assert config.reward.length_penalty == 0.1
    assert geometry(config, 8).given == 48
    assert options["ddp_timeout"] > config.reward.batch_deadline_seconds
    known = {field.name for field in dataclasses.fields(GRPOConfig)}
    assert set(options) <= known


def test_paper_yaml_runs_on_eight_processes_only() -> None:
    config = load_train_config(ROOT / "configs" / "paper.yaml")
    with pytest.raises(ConfigError, match="--num_processes 8"):
        arguments(config, processes=1)
