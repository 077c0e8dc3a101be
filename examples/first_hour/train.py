"""A small model is trained with GRPO on the next digit of a sequence; a journal keeps its rollouts.

python train.py              # a minute on two cores, nothing is downloaded
"""

import argparse
import logging
import random
import warnings

import rewards

from guerdon import Dispatcher, Journal

DIGITS = "0123456789"
GENERATIONS = 8
SAMPLES = 64


def make_model():
    """Two layers of Qwen2 with random weights, and a tokenizer of one digit a token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    vocabulary = {token: index for index, token in enumerate(["<pad>", "<eos>", *DIGITS])}
    digits = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    digits.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    digits.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=digits, pad_token="<pad>", eos_token="<eos>", padding_side="left"
    )
    config = Qwen2Config(
        vocab_size=len(vocabulary),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        initializer_range=0.1,
        bos_token_id=None,
        eos_token_id=vocabulary["<eos>"],
        pad_token_id=vocabulary["<pad>"],
    )
    return Qwen2ForCausalLM(config), tokenizer


def main() -> None:
    import torch
    from datasets import Dataset
    from transformers import PrinterCallback, TrainerCallback, set_seed
    from trl import GRPOConfig, GRPOTrainer

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()

    class Progress(TrainerCallback):
        def on_log(self, _arguments, state, _control, logs, **_):
            if state.global_step % 5 == 0 and "rewards/correct/mean" in logs:
                print(f"step {state.global_step}: correct {logs['rewards/correct/mean']:.2f}", flush=True)

    logging.getLogger("trl").setLevel(logging.ERROR)
    warnings.simplefilter("ignore", FutureWarning)
    torch.set_num_threads(1)
    set_seed(0)
    model, tokenizer = make_model()
    draw = random.Random(0)
    asked = [draw.randrange(10) for _ in range(1000)]
    rows = [{"prompt": str(digit), "answer": str((digit + 1) % 10)} for digit in asked]
    journal = Journal("rollouts", texts=True, columns=["answer"], run="first-hour")
    with Dispatcher(
        [rewards.correct, rewards.known], weights=[1.0, 0.2], journal=journal, trace="run.pftrace"
    ) as dispatcher:
        trainer = GRPOTrainer(
            model=model,
            processing_class=tokenizer,
            reward_funcs=dispatcher.reward_funcs,
            train_dataset=Dataset.from_list(rows),
            args=GRPOConfig(
                output_dir="trained",
                per_device_train_batch_size=SAMPLES,
                num_generations=GENERATIONS,
                max_completion_length=8,
                learning_rate=3e-3,
                lr_scheduler_type="constant",
                reward_weights=dispatcher.reward_weights,
                max_steps=options.steps,
                logging_steps=1,
                seed=0,
                save_strategy="no",
                report_to=[],
                use_cpu=True,
                disable_tqdm=True,
                dataloader_pin_memory=False,
                log_level="error",
            ),
        )
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(Progress)
        trainer.train()
        logs = [log["rewards/correct/mean"] for log in trainer.state.log_history if "rewards/correct/mean" in log]
    print(
        f"correct: {sum(logs[:3]) / 3:.2f} in the first 3 of {len(logs)} steps, {sum(logs[-3:]) / 3:.2f} in the last 3"
    )


if __name__ == "__main__":
    main()
