#!/usr/bin/env python3
"""python tests/parity/make_text.py: writes data/t5 and data/umt5 (small random encoders) and the results of transformers: data/text_golden.safetensors and
data/umt5_golden.safetensors. Needs torch, transformers 5, safetensors."""
import json
import pathlib
import shutil

import torch
from safetensors.torch import save_file
from transformers import T5Config, T5EncoderModel, UMT5Config, UMT5EncoderModel

DATA = pathlib.Path(__file__).parent / "data"


def small_encoder(config_class, model_class):
    config = config_class(vocab_size=100, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, relative_attention_num_buckets=32, relative_attention_max_distance=128,
                      feed_forward_proj="gated-gelu", dropout_rate=0.0, is_encoder_decoder=False, use_cache=False)
    model = model_class(config).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if "layer_norm" in name:
                parameter.copy_(1 + 0.2 * noise)
            elif "shared" in name or "relative_attention_bias" in name:
                parameter.copy_(noise)
            else:
                parameter.copy_(noise * parameter.shape[1] ** -0.5)
    return model


def encoder_golden(folder):
    shutil.rmtree(folder, ignore_errors=True)
    small_encoder(T5Config, T5EncoderModel).save_pretrained(folder)
    ids = torch.randint(0, 100, (2, 24), generator=torch.Generator().manual_seed(1))
    ids[0, 9:] = 0  # padding
    long_ids = torch.randint(0, 100, (1, 300), generator=torch.Generator().manual_seed(2))
    golden = {"ids": ids, "long_ids": long_ids}
    for dtype, name in ((torch.float32, "fp32"), (torch.bfloat16, "bf16"), (torch.float16, "fp16")):
        model = T5EncoderModel.from_pretrained(folder, dtype=dtype)
        golden[f"{name}.hidden"] = model(ids)[0]
        if dtype == torch.float32:
            golden["fp32.long_hidden"] = model(long_ids)[0][:, ::7]
        if dtype == torch.float16:
            model.encoder.block[0].layer[0].SelfAttention.o.weight *= 3e4  # makes the layer's output exceed the range of fp16
            assert not torch.isfinite(model.encoder.block[0].layer[0].SelfAttention(model.shared(ids))[0]).all()
            golden["fp16.clamped_hidden"] = model(ids)[0]
    for buckets, distance in ((32, 128), (8, 20), (64, 300), (32, 64)):
        from transformers.models.t5.modeling_t5 import T5Attention
        golden[f"buckets.{buckets}.{distance}"] = T5Attention._relative_position_bucket(torch.arange(-399, 400), True, buckets, distance)
    return {key: value.float() if value.is_floating_point() else value for key, value in golden.items()}


def umt5_golden(folder):
    """Writes a small UMT5 encoder. Returns its output for prompts of 9, 24 and 300 tokens. The shortest prompt is padded and masked as in Wan's pipeline."""
    shutil.rmtree(folder, ignore_errors=True)
    small_encoder(UMT5Config, UMT5EncoderModel).save_pretrained(folder)
    ids = torch.randint(2, 100, (2, 24), generator=torch.Generator().manual_seed(3))
    mask = torch.ones_like(ids)
    ids[0, 9:] = mask[0, 9:] = 0
    long_ids = torch.randint(0, 100, (1, 300), generator=torch.Generator().manual_seed(4))
    golden = {"ids": ids}
    for dtype, name in ((torch.float32, "fp32"), (torch.bfloat16, "bf16"), (torch.float16, "fp16")):
        hidden = UMT5EncoderModel.from_pretrained(folder, dtype=dtype)(ids, mask)[0].float()
        golden |= {f"{name}.short": hidden[:1, :9], f"{name}.long": hidden[1:]}
    golden |= {"long_ids": long_ids, "fp32.long_hidden": UMT5EncoderModel.from_pretrained(folder, dtype=torch.float32)(long_ids)[0][:, ::7]}
    return golden


def published_layout(config_class, model_class, vocab_size):
    """Returns the config and the tensors' names and shapes of the text encoder in CogVideoX's (T5 v1.1 XXL) or Wan's (UMT5 XXL) checkpoints."""
    config = config_class(vocab_size=vocab_size, d_model=4096, d_kv=64, d_ff=10240, num_layers=24, num_heads=64, feed_forward_proj="gated-gelu", is_encoder_decoder=False)
    with torch.device("meta"):
        model = model_class(config)
    state = {name: list(tensor.shape) for name, tensor in model.state_dict().items() if name != "encoder.embed_tokens.weight"}
    keep = ("model_type", "vocab_size", "d_model", "d_kv", "d_ff", "num_layers", "num_heads", "relative_attention_num_buckets", "relative_attention_max_distance", "layer_norm_epsilon", "feed_forward_proj")
    return {"config": {key: getattr(config, key) for key in keep}, "tensors": state}


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    save_file({key: value.contiguous() for key, value in encoder_golden(DATA / "t5").items()}, DATA / "text_golden.safetensors")
    save_file({key: value.contiguous() for key, value in umt5_golden(DATA / "umt5").items()}, DATA / "umt5_golden.safetensors")
    for file, layout in (("t5_names.json", published_layout(T5Config, T5EncoderModel, 32128)), ("umt5_names.json", published_layout(UMT5Config, UMT5EncoderModel, 256384))):
        (DATA / file).write_text(json.dumps(layout).replace('"encoder.block', '\n"encoder.block') + "\n")


if __name__ == "__main__":
    main()
