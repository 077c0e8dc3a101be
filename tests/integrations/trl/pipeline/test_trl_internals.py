"""What our trainer needs of trl, transformers and accelerate: each test fails where it moves."""

from __future__ import annotations

import inspect
import re
from types import SimpleNamespace
from typing import Any

import pytest

trl = pytest.importorskip("trl")

import accelerate.data_loader  # noqa: E402
import transformers  # noqa: E402
from trl.trainer import grpo_trainer, utils  # noqa: E402

from guerdon import GuerdonError  # noqa: E402
from guerdon.integrations.trl import GRPOTrainer  # noqa: E402
from guerdon.integrations.trl.pipeline.batch_rewards import BatchRewards  # noqa: E402
from guerdon.integrations.trl.pipeline.options import PRESETS  # noqa: E402
from guerdon.integrations.trl.pipeline.trl_families import GRPO  # noqa: E402

THEIRS = trl.GRPOTrainer


def source(thing: Any) -> str:
    return " ".join(inspect.getsource(thing).split())


def test_the_batch_is_made_in_one_function_that_calls_what_we_override() -> None:
    made = source(THEIRS._generate_and_score_completions)
    assert list(inspect.signature(THEIRS._generate_and_score_completions).parameters) == ["self", "inputs"]
    assert ") = self._generate(prompts)" in made
    assert "rewards_per_func = self._calculate_rewards(inputs, prompts, completions, completion_ids_list)" in made
    assert made.count("self._calculate_rewards(") == made.count("self._generate(") == 1
    assert len(re.findall(r"self\._get_per_token_logps_and_entropies\(", made)) == 3


def test_generate_returns_what_trl_expects() -> None:
    assert (
        "return prompt_ids, completion_ids, tool_mask, completions, logprobs, extra_fields, images, tool_images"
        in source(THEIRS._generate)
    )


def test_old_log_probabilities_depend_on_the_number_of_iterations_and_on_nothing_else_that_is_read_there() -> None:
    made = source(THEIRS._generate_and_score_completions)
    assert made.count("self.num_iterations") == 1
    assert "generate_every = self.args.steps_per_generation * self.num_iterations" in made
    assert "if self.args.gradient_accumulation_steps % generate_every != 0 or (" in made
    for inner in (THEIRS._generate, THEIRS._generate_single_turn, THEIRS._calculate_rewards):
        assert "num_iterations" not in source(inner)


def test_a_replay_leaves_out_what_these_attributes_switch() -> None:
    made = source(THEIRS._generate_and_score_completions)
    for switch in (
        "if self.environment_factories is not None:",
        "if self.environments:",
        "if self.beta != 0.0:",
        "self.use_vllm and self.vllm_importance_sampling_correction",
        "if self.tools",
    ):
        assert switch in made


def test_the_attributes_of_the_logs() -> None:
    made = source(THEIRS._generate_and_score_completions) + source(THEIRS._generate)
    written = set(re.findall(r"self\.(_\w+)(?:\[|\.clear|\.get)", made))
    assert written - {"_tokenizer", "_environment_pool", "_env_tools"} == {
        "_metrics",
        "_logs",
        "_pending_extra_logs",
        "_pending_metrics",
    }
    assert "self.state.num_input_tokens_seen +=" in source(THEIRS._generate)
    assert set(re.findall(r'self\._logs\["(\w+)"\]', made)) == {
        "prompt",
        "completion",
        "rewards",
        "advantages",
        "extra",
        "images",
    }


def test_functions_get_their_arguments() -> None:
    made = source(THEIRS._calculate_rewards)
    assert 'keys = [key for key in inputs[0] if key not in ["prompt", "completion", "completion_ids"]]' in made
    assert set(re.findall(r'(?<!row_)reward_kwargs\["(\w+)"\] = ', made)) == {
        "trainer_state",
        "log_extra",
        "log_metric",
        "environments",
    }
    assert "zip(self.reward_funcs, self.reward_processing_classes, self.reward_func_names, strict=True)" in made


def test_pieces_are_only_indexed() -> None:
    made = source(THEIRS._prepare_inputs)
    assert "generate_every = self.args.steps_per_generation * self.num_iterations" in made
    assert "if self._step % generate_every == 0 or self._buffered_inputs is None:" in made
    assert "inputs = self._buffered_inputs[self._step % self.args.steps_per_generation]" in made
    assert source(utils.shuffle_sequence_dict).count("torch.randperm(batch_size)") == 1
    users = [name for name, one in inspect.getmembers(THEIRS, inspect.isfunction) if "_buffered_inputs" in source(one)]
    assert users == ["__init__", "_prepare_inputs"]
    assert "self._step += 1" in source(THEIRS.training_step)


def test_the_loop_reads_its_data_where_we_read_ahead() -> None:
    loop = source(transformers.Trainer._run_epoch)
    assert "self.get_batch_samples(epoch_iterator, num_batches, self.args.device)" in loop
    assert "epoch_iterator = iter(train_dataloader)" in loop
    assert loop.count("epoch_iterator") == 3  # the third in a message
    assert "epoch" in inspect.signature(transformers.Trainer._run_epoch).parameters
    assert "epoch=epoch," in source(transformers.Trainer._inner_training_loop)
    assert "self._inner_training_loop" in source(transformers.Trainer.train)
    assert "self.callback_handler.train_dataloader = train_dataloader" in source(
        transformers.Trainer._prepare_for_training
    )
    assert inspect.isgeneratorfunction(accelerate.data_loader.DataLoaderShard.__iter__)


def test_generation_happens_where_completions_can_be_watched() -> None:
    turn = source(THEIRS._generate_single_turn)
    assert list(inspect.signature(THEIRS._generate_single_turn).parameters)[:5] == [
        "self",
        "prompt_ids",
        "images",
        "multimodal_fields",
        "num_generations",
    ]
    assert "unwrapped_model.generate( **generate_inputs, generation_config=self.generation_config )" in turn
    assert hasattr(grpo_trainer, "unwrap_model_for_generation")


def test_a_turns_tools_are_called_through_the_dicts_of_their_samples() -> None:
    loop = source(THEIRS._tool_call_loop)
    assert list(inspect.signature(THEIRS._tool_call_loop).parameters)[:5] == [
        "self",
        "prompts",
        "prompt_ids",
        "completion_ids",
        "completions",
    ]
    assert "sync_tool_dict = self._sync_tool_dicts[idx_with_tool]" in loop
    assert "async_tool_dict = self._async_tool_dicts[idx_with_tool]" in loop
    assert 'sync_tool_dict[name](**function["arguments"])' in loop
    assert 'async_tool_dict[name](**function["arguments"])' in loop
    # The failures of a tool are ordinary exceptions, told to the model.
    assert 'except Exception as e: tool_failure_count += 1 result = {"error": str(e)}' in loop
    assert "self.async_loop" in loop
    users = {name for name, one in inspect.getmembers(THEIRS, inspect.isfunction) if "_sync_tool_dicts" in source(one)}
    assert users == {"_tool_call_loop", "_generate_and_score_completions"}


def test_environments_are_drawn_from_the_pool_and_reset_where_ours_are_started_ahead() -> None:
    made = source(THEIRS._generate_and_score_completions)
    assert "pool = self._environment_pool[name]" in made
    assert "pool.append(self.environment_factories[name]())" in made
    assert (
        'reset_kwargs = {k: v for k, v in x.items() if k != "environment"} if self._multi_environment else x '
        "observation = environment.reset(**reset_kwargs)" in made
    )
    # Between the resets and the rewards environments are read in no place but the generation,
    # after which those that are stuck are replaced.
    resets, generates = made.index("environment.reset("), made.index(") = self._generate(prompts)")
    assert resets < generates < made.index("self._calculate_rewards(")
    assert "self.environments" not in made[generates:]


def test_another_number_of_generated_values_is_named_with_the_version() -> None:
    """Else the replay, whose stand-ins have the known number, would end in a bare ValueError."""

    class Longer:
        def _generate(self, prompts: Any) -> Any:
            return (prompts, *range(8))

    class Trainer(BatchRewards, Longer):
        pipeline = PRESETS["one_step"]
        _family = GRPO
        _generating = _replaying = None

    with pytest.raises(GuerdonError, match=r"_generate gave 9 values, .* repeats 8 \(trl 1\.16"):
        Trainer()._generate([])
    Trainer.pipeline = PRESETS["off"]
    assert len(Trainer()._generate([])) == 9


def test_a_trainer_generates_without_its_init_as_trls_own_tests_do() -> None:
    trainer: Any = object.__new__(GRPOTrainer)
    trainer.accelerator, trainer.model = SimpleNamespace(device="cpu"), SimpleNamespace(training=True)
    trainer.use_vllm, trainer.rollout_func = False, lambda prompts, trainer: {}
    with pytest.raises(ValueError, match="rollout_func must return keys"):
        trainer._generate(["a prompt"])
