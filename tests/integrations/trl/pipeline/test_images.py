"""Images in the prompts: a vision model made on the spot, trained with every pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

from datasets import Dataset
from PIL import Image
from tokenizers import AddedToken
from transformers import (
    CLIPImageProcessorPil,
    CLIPVisionConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    set_seed,
)
from trl import GRPOConfig

from guerdon import Dispatcher, reward
from guerdon.integrations.trl import GRPOTrainer, Pipeline
from tests.integrations.trl.tiny_trainer import (
    assert_same_entry,
    ending,
    make_config,
    make_settings,
    make_tokenizer,
    without_times,
)

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.usefixtures("trainers")]

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@reward(lane="thread")
def shade(prompt: Any, image: Any, text: str) -> float:
    """Sees the row's image, which is the one in its prompt."""
    (inside,) = [part["image"] for part in prompt[-1]["content"] if part["type"] == "image"]
    assert inside.getpixel((0, 0)) == image.getpixel((0, 0))
    return image.getpixel((0, 0))[0] + len(text)


def make_vision_trainer(functions: Any, folder: Path, pipeline: Any) -> Any:
    set_seed(7)
    tokenizer = make_tokenizer()
    tokenizer.add_tokens([AddedToken("<image>", special=True, normalized=False)])
    tokenizer.chat_template = TEMPLATE
    processor = LlavaProcessor(
        image_processor=CLIPImageProcessorPil(size={"shortest_edge": 8}, crop_size={"height": 8, "width": 8}),
        tokenizer=tokenizer,
        patch_size=4,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=TEMPLATE,
    )
    vision = CLIPVisionConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=8, patch_size=4
    )
    config = LlavaConfig(
        vision_config=vision,
        text_config=make_config(tokenizer),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
    )
    rows = [
        {
            "prompt": [{"role": "user", "content": f"say {shade}"}],
            "image": Image.new("RGB", (8, 8), (10 * shade, 0, 0)),
            "shade": shade,
        }
        for shade in range(8)
    ]
    options = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "max_completion_length": 6}
    trainer = GRPOTrainer(
        model=LlavaForConditionalGeneration(config),
        processing_class=processor,
        reward_funcs=functions,
        args=GRPOConfig(
            **make_settings(folder, 7, learning_rate=0.0, log_completions=True, **options), log_multimodal=True
        ),
        train_dataset=Dataset.from_list(rows),
        pipeline=pipeline,
    )
    ending(trainer)
    return trainer


def test_every_pipeline_trains_with_images_and_logs_each_beside_its_prompt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs: list[list[dict[str, Any]]] = []
    for pipeline in ("off", "overlap", "mini_batch", "one_step", Pipeline(mini_batch=True, lookahead=1)):
        with Dispatcher([shade], workers=1) as dispatcher:
            trainer = make_vision_trainer(dispatcher, tmp_path, pipeline)
            trainer.train()
        logs.append(without_times(trainer.state.log_history))
        assert trainer.state.log_history[0]["guerdon/shade/failed_frac"] == 0
        table = zip(trainer._logs["prompt"], trainer._logs["images"], strict=True)
        for prompt, images in table:
            number = next(part["text"] for part in prompt[-1]["content"] if part["type"] == "text")
            assert images[0].getpixel((0, 0))[0] == 10 * int(number.removeprefix("say "))
    capsys.readouterr()
    for log in logs[1:]:
        for ours, plain in zip(log, logs[0], strict=True):
            assert_same_entry(ours, plain, rel=1e-4, abs=1e-5)
