#!/usr/bin/env python3
"""python tests/parity/make_wan_pipeline.py: writes into data/wan three random-weights pipelines of some 250 to 460 KB (64x64, 9 frames)
  pipeline/                                          2.1
  pipeline_two_experts/                              2.2 A14B
  pipeline_5b/                                       2.2 5B
  pipeline_golden.safetensors, pipeline_cases.json   diffusers' results for them
Needs torch, diffusers, transformers, ftfy, sentencepiece, safetensors."""
import json
import shutil

import torch
from diffusers import AutoencoderKLWan, DPMSolverMultistepScheduler, FlowMatchEulerDiscreteScheduler, UniPCMultistepScheduler, WanPipeline, WanTransformer3DModel
from safetensors.torch import save_file
from transformers import UMT5Config, UMT5EncoderModel

from make_pipeline import DATA, NEGATIVE, PROMPT, make_tokenizer, randomize

WAN = DATA / "wan"
CHANNELS = 4
# {folder: (settings of model_index.json, changes of the VAE's config, number of transformers)}
FOLDERS = {
    "pipeline": ({}, {}, 1),
    "pipeline_two_experts": ({"boundary_ratio": 0.75}, {}, 2),
    "pipeline_5b": ({"expand_timesteps": True}, {"is_residual": True, "patch_size": 2, "in_channels": 12, "out_channels": 12, "decoder_base_dim": 8, "scale_factor_spatial": 16}, 1),
}
# COMMON holds the options of all cases, CASES the further options of each case. They have diffusers' names, except for folder, scheduler and shift.
COMMON = {"prompt": PROMPT, "negative_prompt": NEGATIVE, "seed": 7, "num_inference_steps": 4, "max_sequence_length": 16, "width": 64, "height": 64, "num_frames": 9}
CASES = {
    "unipc": {},
    "euler": {"scheduler": "euler"},
    "dpm": {"scheduler": "dpm++"},
    "shift": {"flow_shift": 5.0},
    "no_guidance": {"guidance_scale": 1.0},
    "wide": {"width": 96, "height": 48, "num_frames": 17},
    "one_frame": {"num_frames": 1},
    "odd_prompt": {"prompt": "  a \u201cred\u201d\n circle &amp;amp; a   blue square "},
    "two_experts": {"folder": "pipeline_two_experts", "guidance_scale_2": 2.0},
    "two_experts_one_scale": {"folder": "pipeline_two_experts"},
    "two_experts_unguided": {"folder": "pipeline_two_experts", "guidance_scale": 1.0},
    "all_tokens_of_one_time": {"folder": "pipeline_5b", "width": 128, "height": 128},
}


def make_folder(name):
    settings, vae_fields, experts = FOLDERS[name]
    folder = WAN / name
    shutil.rmtree(folder, ignore_errors=True)
    vocab_size = make_tokenizer(folder / "tokenizer")
    generator = torch.Generator().manual_seed(len(name))
    text_encoder = UMT5EncoderModel(UMT5Config(
        vocab_size=vocab_size, d_model=32, d_kv=16, d_ff=48, num_layers=2, num_heads=2, feed_forward_proj="gated-gelu", dropout_rate=0.0, pad_token_id=0, eos_token_id=1,
        decoder_start_token_id=0, is_encoder_decoder=False, use_cache=False))
    vae = AutoencoderKLWan(**{**dict(base_dim=4, z_dim=CHANNELS, dim_mult=[1, 2, 2, 2], num_res_blocks=1, temperal_downsample=[False, True, True],
                                     latents_mean=[-0.2, 0.1, 0.0, 0.3], latents_std=[1.5, 0.7, 1.0, 2.0]), **vae_fields})
    randomize(text_encoder, generator).save_pretrained(folder / "text_encoder")
    randomize(vae, generator).save_pretrained(folder / "vae")
    roles = ["transformer", "transformer_2"][:experts]
    for role in roles:
        transformer = WanTransformer3DModel(num_attention_heads=2, attention_head_dim=16, in_channels=CHANNELS, out_channels=CHANNELS, text_dim=32, freq_dim=16, ffn_dim=24, num_layers=2)
        randomize(transformer, generator).save_pretrained(folder / role, max_shard_size="60KB")
    UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, num_train_timesteps=1000, flow_shift=3.0).save_pretrained(folder / "scheduler")
    index = {"_class_name": "WanPipeline", "_diffusers_version": "0.42.1", **settings, "scheduler": ["diffusers", "UniPCMultistepScheduler"],
             "text_encoder": ["transformers", "UMT5EncoderModel"], "tokenizer": ["transformers", "T5Tokenizer"], "transformer": ["diffusers", "WanTransformer3DModel"],
             "transformer_2": ["diffusers", "WanTransformer3DModel"] if experts == 2 else [None, None], "vae": ["diffusers", "AutoencoderKLWan"]}
    (folder / "model_index.json").write_text(json.dumps(index, indent=1))


def scheduler_of(pipeline, name, shift):
    if name == "euler":
        return FlowMatchEulerDiscreteScheduler(shift=shift)
    if name == "dpm++":
        return DPMSolverMultistepScheduler.from_config(pipeline.scheduler.config, solver_type="midpoint", flow_shift=shift)
    return UniPCMultistepScheduler.from_config(pipeline.scheduler.config, flow_shift=shift)


def run(folder="pipeline", scheduler="unipc", flow_shift=3.0, **options):
    pipeline = WanPipeline.from_pretrained(WAN / folder, torch_dtype=torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    pipeline.scheduler = scheduler_of(pipeline, scheduler, flow_shift)
    arguments = {**COMMON, "guidance_scale": 5.0, **options}
    seed = arguments.pop("seed")
    latents = pipeline(**arguments, output_type="latent", generator=torch.Generator().manual_seed(seed)).frames
    mean, std = (torch.tensor(pipeline.vae.config[key]).view(1, -1, 1, 1, 1) for key in ("latents_mean", "latents_std"))
    with torch.no_grad():
        video = pipeline.vae.decode(latents / (1.0 / std) + mean, return_dict=False)[0]
    return latents, (video[0] / 2 + 0.5).clamp(0, 1).permute(1, 2, 3, 0)[::4, ::2, ::2]  # every fourth frame, every second pixel


def main():
    torch.set_num_threads(1)
    for name in FOLDERS:
        make_folder(name)
    golden = {}
    for name, options in CASES.items():
        golden[f"{name}.latents"], golden[f"{name}.frames"] = run(**options)
    (WAN / "pipeline_cases.json").write_text(json.dumps({name: {**COMMON, **options} for name, options in CASES.items()}, indent=1) + "\n")
    save_file({key: value.float().contiguous() for key, value in golden.items()}, WAN / "pipeline_golden.safetensors")
    for key, value in golden.items():
        print(key, tuple(value.shape), f"std {value.std():.3f} min {value.min():.3f} max {value.max():.3f}")


if __name__ == "__main__":
    main()
