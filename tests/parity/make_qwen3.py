#!/usr/bin/env python3
"""python tests/parity/make_qwen3.py: writes data/qwen3 (a small random Qwen3-VL without the weights of its vision model) and data/qwen3_golden.safetensors, the
hidden states of transformers. Needs torch, transformers 5, safetensors."""
import json
import pathlib
import shutil

import torch
from safetensors.torch import save_file
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

DATA = pathlib.Path(__file__).parent / "data"
LAYERS = 4  # number of layers; the encoder's output is the state after the first USED
USED = 3


def small_model():
    config = Qwen3VLConfig(
        text_config=dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-6,
                         rope_parameters=dict(rope_type="default", rope_theta=5e6, mrope_section=[4, 2, 2], mrope_interleaved=True)),
        vision_config=dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=1, out_hidden_size=32, patch_size=4, num_position_embeddings=4, deepstack_visual_indexes=[0]),
        tie_word_embeddings=False)
    model = Qwen3VLForConditionalGeneration(config).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if "norm" in name:
                parameter.copy_(1 + 0.2 * noise)
            elif "embed_tokens" in name:
                parameter.copy_(noise)
            else:
                parameter.copy_(noise * parameter[0].numel() ** -0.5)
    return model


def hidden(model, ids):
    with torch.no_grad():
        return model(input_ids=ids, output_hidden_states=True).hidden_states[USED]


def main():
    folder = DATA / "qwen3"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model = small_model()
    config = json.loads(model.config.to_json_string(use_diff=False))
    keep = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_act", "rms_norm_eps", "attention_bias", "rope_parameters", "model_type")
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3_vl", "text_config": {key: config["text_config"][key] for key in keep}}, indent=2) + "\n")
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items() if name.startswith("model.language_model.")}
    save_file(weights, folder / "model.safetensors")
    ids = torch.randint(0, 96, (1, 21), generator=torch.Generator().manual_seed(1))
    long_ids = torch.randint(0, 96, (1, 300), generator=torch.Generator().manual_seed(2))
    golden = {"ids": ids, "long_ids": long_ids, "fp32.hidden": hidden(model, ids), "fp32.long_hidden": hidden(model, long_ids)[:, ::7].contiguous()}
    rotary = model.model.language_model.rotary_emb
    frequencies = rotary.inv_freq
    model.to(torch.bfloat16)
    rotary.inv_freq = frequencies  # from_pretrained() keeps the frequencies in fp32
    golden["bf16.hidden"] = hidden(model, ids).float()
    save_file({key: value.contiguous() for key, value in golden.items()}, DATA / "qwen3_golden.safetensors")


if __name__ == "__main__":
    main()
