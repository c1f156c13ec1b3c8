#!/usr/bin/env python3
"""python tests/parity/make_mochi_pipeline.py: writes into data/mochi
  pipeline/                                          a random-weights Mochi pipeline of some 700 KB (64x64, 13 frames)
  pipeline_golden.safetensors, pipeline_cases.json   diffusers' results for it
Needs torch, diffusers, transformers, sentencepiece, safetensors."""
import json
import shutil

import torch
from diffusers import AutoencoderKLMochi, FlowMatchEulerDiscreteScheduler, MochiPipeline, MochiTransformer3DModel
from safetensors.torch import save_file
from transformers import T5Config, T5EncoderModel

from make_mochi_vae import denormalized
from make_pipeline import DATA, NEGATIVE, PROMPT, make_tokenizer, randomize

MOCHI = DATA / "mochi"
FOLDER = MOCHI / "pipeline"
# COMMON holds the options of all cases, CASES the further options of each case. They have diffusers' names.
COMMON = {"prompt": PROMPT, "negative_prompt": NEGATIVE, "seed": 7, "num_inference_steps": 4, "max_sequence_length": 16, "width": 64, "height": 64, "num_frames": 13}
CASES = {
    "plain": {},
    "no_negative_prompt": {"negative_prompt": ""},
    "long_negative_prompt": {"negative_prompt": PROMPT, "prompt": "a star"},
    "no_prompt": {"prompt": ""},
    "no_prompts": {"prompt": "", "negative_prompt": ""},
    "no_guidance": {"guidance_scale": 1.0},
    "no_guidance_no_prompt": {"guidance_scale": 1.0, "prompt": ""},
    "wide": {"width": 96, "height": 48, "num_frames": 19},
    "one_frame": {"num_frames": 1},
    "odd_steps": {"num_inference_steps": 7, "num_frames": 7, "width": 48, "height": 32},
}


def make_folder():
    shutil.rmtree(FOLDER, ignore_errors=True)
    vocab_size = make_tokenizer(FOLDER / "tokenizer")
    generator = torch.Generator().manual_seed(0)
    text_encoder = T5EncoderModel(T5Config(
        vocab_size=vocab_size, d_model=32, d_kv=16, d_ff=48, num_layers=2, num_heads=2, feed_forward_proj="gated-gelu", dropout_rate=0.0, pad_token_id=0, eos_token_id=1,
        decoder_start_token_id=0, is_encoder_decoder=False, use_cache=False))
    transformer = MochiTransformer3DModel(num_attention_heads=2, attention_head_dim=16, pooled_projection_dim=16, text_embed_dim=32, time_embed_dim=16, num_layers=2)
    vae = AutoencoderKLMochi(encoder_block_out_channels=[32] * 4, decoder_block_out_channels=[32] * 4, layers_per_block=[1, 0, 0, 1, 0], add_attention_block=[False] * 5)
    randomize(text_encoder, generator).save_pretrained(FOLDER / "text_encoder")
    randomize(transformer, generator).save_pretrained(FOLDER / "transformer", max_shard_size="60KB")
    randomize(vae, generator).save_config(FOLDER / "vae")
    tensors = {key: tensor.contiguous() for key, tensor in vae.state_dict().items()}
    save_file(tensors, FOLDER / "vae" / "diffusion_pytorch_model.safetensors", metadata={"format": "pt"})
    FlowMatchEulerDiscreteScheduler(invert_sigmas=True).save_pretrained(FOLDER / "scheduler")
    index = {"_class_name": "MochiPipeline", "_diffusers_version": "0.42.1", "force_zeros_for_empty_prompt": True, "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
             "text_encoder": ["transformers", "T5EncoderModel"], "tokenizer": ["transformers", "T5TokenizerFast"], "transformer": ["diffusers", "MochiTransformer3DModel"],
             "vae": ["diffusers", "AutoencoderKLMochi"]}
    (FOLDER / "model_index.json").write_text(json.dumps(index, indent=1))


def run(pipeline, **options):
    arguments = {**COMMON, "guidance_scale": 4.5, **options}
    seed = arguments.pop("seed")
    latents = pipeline(**arguments, output_type="latent", generator=torch.Generator().manual_seed(seed)).frames
    with torch.no_grad():
        video = pipeline.vae.decode(denormalized(latents, pipeline.vae.config), return_dict=False)[0]
    return latents, (video[0] / 2 + 0.5).clamp(0, 1).permute(1, 2, 3, 0)[::4, ::2, ::2]  # every fourth frame, every second pixel


def main():
    torch.set_num_threads(1)
    make_folder()
    pipeline = MochiPipeline.from_pretrained(FOLDER, torch_dtype=torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    golden = {}
    for name, options in CASES.items():
        golden[f"{name}.latents"], golden[f"{name}.frames"] = run(pipeline, **options)
    (MOCHI / "pipeline_cases.json").write_text(json.dumps({name: {**COMMON, **options} for name, options in CASES.items()}, indent=1) + "\n")
    save_file({key: value.float().contiguous() for key, value in golden.items()}, MOCHI / "pipeline_golden.safetensors")
    for key, value in golden.items():
        print(key, tuple(value.shape), f"std {value.std():.3f} min {value.min():.3f} max {value.max():.3f}")


if __name__ == "__main__":
    main()
