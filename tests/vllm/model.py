"""The model that the server serves: made on the spot, random, and able to play a game of tools from
the first step.

Some of its dimensions are set by hand. If the prompt offers tools, it says nothing but `CALLS`
and the end of its turn, each with some probability; everywhere else it says bytes, and never a
call. One server serves both kinds of tests thereby.
"""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM, Qwen2ForSequenceClassification, set_seed

from tests.integrations.trl.line_game import MOVES, call
from tests.integrations.trl.tiny_trainer import make_config, make_tokenizer

CALLS = (*MOVES, call("ask", about="the way"))
OFFER = "<tools>"  # what chat templates write before tools, and a token here
CONTEXT = 2048
HEAD = 32  # dimensions of a head: the fewest that vLLM has a kernel for

# Dimensions of the residual stream that are kept for this: whether a token is the offer, and what
# follows from it.
_OFFERED, _PLAY, _TALK = 0, 1, 2


def make_model(folder: Path, seed: int = 0) -> Path:
    """The model and its tokenizer, in `folder`."""
    set_seed(seed)
    tokenizer = make_tokenizer()
    tokenizer.add_tokens([AddedToken(one, special=False, normalized=False) for one in (OFFER, *CALLS)])
    model = Qwen2ForCausalLM(make_config(tokenizer, hidden_size=2 * HEAD, max_position_embeddings=CONTEXT))
    _set_by_hand(model, tokenizer)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_reward_model(folder: Path, seed: int = 0) -> Path:
    """A reward model, which gives a text one number, and its tokenizer, in `folder`."""
    set_seed(seed)
    tokenizer = make_tokenizer()
    config = make_config(tokenizer, hidden_size=2 * HEAD, max_position_embeddings=CONTEXT, num_labels=1)
    Qwen2ForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@torch.no_grad()
def _set_by_hand(model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    offer, *calls = tokenizer.convert_tokens_to_ids([OFFER, *CALLS])
    kept = slice(0, 3)
    model.model.embed_tokens.weight[:, kept] = 0.0
    model.model.embed_tokens.weight[offer, _OFFERED] = 2.0
    layer = model.model.layers[0]
    # The first head looks for offers, in the pair of dimensions that turns the least with the
    # distance.
    still = HEAD // 2 - 1
    query, key, value, out = (getattr(layer.self_attn, f"{name}_proj") for name in "qkvo")
    for projection in (query, key, value):
        projection.weight[:, kept] = 0.0
    query.weight[still] = 0.0
    query.bias[still] = 10.0
    key.weight[still] = 0.0
    key.weight[still, _OFFERED] = 10.0
    # It gives 1 in the first dimension if there is one, in the second if there is none.
    value.weight[:2] = 0.0
    value.weight[0, _OFFERED] = 1.0
    value.weight[1, _OFFERED] = -1.0
    value.bias[1] = float(2 * HEAD) ** 0.5  # about what the offer is after the norm
    out.weight[:, :2] = 0.0
    out.weight[kept] = 0.0
    out.weight[_PLAY, 0] = out.weight[_TALK, 1] = 1.0
    layer.mlp.gate_proj.weight[:, kept] = layer.mlp.up_proj.weight[:, kept] = 0.0
    layer.mlp.down_proj.weight[kept] = 0.0
    silent = [token for token in range(len(tokenizer)) if token not in calls and token != tokenizer.eos_token_id]
    model.lm_head.weight[:, kept] = 0.0
    model.lm_head.weight[silent, _PLAY] = -5.0
    model.lm_head.weight[[offer, *calls], _TALK] = -5.0
    model.lm_head.weight[tokenizer.eos_token_id, _PLAY] = -0.3  # else most turns end at once
