#!/usr/bin/env python3
"""python tests/parity/make_cogvideox_i2v_pipeline.py: writes into data/cogvideox_i2v two random-weights pipelines, and a LoRA
  pipeline/                                          the layout of CogVideoX-5b-I2V
  pipeline_1.5/                                      the layout of 1.5
  pipeline_golden.safetensors, pipeline_cases.json   diffusers' results for them and a picture
  lora/                                              the LoRA
  lora_golden.safetensors, lora_cases.json           diffusers' latents with the LoRA
Needs torch, diffusers, peft, transformers, sentencepiece, safetensors, Pillow."""
import json
import pathlib
import shutil

import torch
from diffusers import AutoencoderKLCogVideoX, CogVideoXDDIMScheduler, CogVideoXDPMScheduler, CogVideoXImageToVideoPipeline, CogVideoXTransformer3DModel
from image_to_video import latents_of, save_cases, save_text_encoder, some_pixels, write_pipeline_cases
from make_lora import Layers
from make_pipeline import NEGATIVE, PROMPT, make_tokenizer, randomize
from safetensors.torch import save_file
from transformers import T5Config, T5EncoderModel

DATA = pathlib.Path(__file__).parent / "data" / "cogvideox_i2v"
SMALL = dict(num_attention_heads=2, attention_head_dim=16, in_channels=8, out_channels=4, time_embed_dim=16, text_embed_dim=32, num_layers=2, sample_width=8, sample_height=8,
             sample_frames=9, patch_size=2, temporal_compression_ratio=4, max_text_seq_length=16, use_rotary_positional_embeddings=True)
# {folder: (config of the transformer, changes of the VAE's config)}
FOLDERS = {
    "pipeline": (dict(SMALL, use_learned_positional_embeddings=True), {}),
    "pipeline_1.5": (dict(SMALL, patch_size_t=2, ofs_embed_dim=16, patch_bias=False, sample_width=20, sample_height=20), {"invert_scale_latents": True}),
}
COMMON = {"prompt": PROMPT, "negative_prompt": NEGATIVE, "seed": 7, "num_inference_steps": 3, "num_frames": 9, "height": 64, "width": 64, "max_sequence_length": 16,
          "guidance_scale": 6.0, "image": "picture"}
ODD = {"folder": "pipeline_1.5", "height": 48, "width": 80}
CASES = {
    "guided": {},
    "unguided": {"guidance_scale": 1.0},
    "dpm": {"scheduler": "dpm", "use_dynamic_cfg": True},
    "picture_of_its_size": {"image": "small", "num_inference_steps": 1},
    "depth_one_latent": {**ODD, "num_frames": 1},
    "depth_two_latents": {**ODD, "num_frames": 5, "guidance_scale": 1.0},
    "depth_three_latents": {**ODD, "num_frames": 9, "scheduler": "dpm", "use_dynamic_cfg": True},
    "depth_four_latents": {**ODD, "num_frames": 13},
}
LORA_CASES = {"lora": {"num_inference_steps": 2, "guidance_scale": 1.0, "folder": "pipeline", "lora": "lora/blocks.safetensors:0.8"}}
PICTURES = {"picture": (53, 90), "small": (64, 64)}  # {name: (height, width)}


def make_folder(name):
    config, of_vae = FOLDERS[name]
    folder = DATA / name
    shutil.rmtree(folder, ignore_errors=True)
    vocab_size = make_tokenizer(folder / "tokenizer")
    generator = torch.Generator().manual_seed(len(name))
    transformer = CogVideoXTransformer3DModel(**config)
    vae = AutoencoderKLCogVideoX(block_out_channels=(8, 8, 8, 8), layers_per_block=1, latent_channels=4, norm_num_groups=4, sample_height=48, sample_width=40, scaling_factor=0.8,
                                 temporal_compression_ratio=4, **of_vae)
    save_text_encoder(folder, T5Config, T5EncoderModel, vocab_size, generator)
    randomize(transformer, generator)
    if "use_learned_positional_embeddings" in config:  # the table is a buffer, so randomize() leaves it out
        table = transformer.patch_embed.pos_embedding
        table.copy_(0.5 * torch.randn(table.shape, generator=generator))
    transformer.save_pretrained(folder / "transformer")
    randomize(vae, generator).save_pretrained(folder / "vae")
    CogVideoXDDIMScheduler(snr_shift_scale=1.0, rescale_betas_zero_snr=True, timestep_spacing="trailing", prediction_type="v_prediction").save_pretrained(folder / "scheduler")
    index = {"_class_name": "CogVideoXImageToVideoPipeline", "_diffusers_version": "0.42.1", "scheduler": ["diffusers", "CogVideoXDDIMScheduler"],
             "text_encoder": ["transformers", "T5EncoderModel"], "tokenizer": ["transformers", "T5Tokenizer"], "transformer": ["diffusers", "CogVideoXTransformer3DModel"],
             "vae": ["diffusers", "AutoencoderKLCogVideoX"]}
    (folder / "model_index.json").write_text(json.dumps(index, indent=1))


def make_lora(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    layers, tensors = Layers(5), {}
    for layer, width in (("0.attn1.to_q", 32), ("1.attn1.to_v", 32), ("1.attn1.to_out.0", 32), ("0.ff.net.2", 128)):
        down, up = layers.pair(32, width, 3)
        tensors |= {f"transformer.transformer_blocks.{layer}.lora_A.weight": down, f"transformer.transformer_blocks.{layer}.lora_B.weight": up}
    save_file(tensors, folder / "blocks.safetensors")


def run(pictures, folder="pipeline", scheduler="ddim", lora=None, **options):
    pipeline = CogVideoXImageToVideoPipeline.from_pretrained(DATA / folder, torch_dtype=torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    if scheduler == "dpm":
        pipeline.scheduler = CogVideoXDPMScheduler.from_config(pipeline.scheduler.config)
    if lora is not None:
        file, scale = lora.rsplit(":", 1)
        pipeline.load_lora_weights(str(DATA / file))
        pipeline.fuse_lora(lora_scale=float(scale))
        pipeline.unload_lora_weights()
    arguments = {**COMMON, **options}
    latents = latents_of(pipeline, pictures, arguments)
    latents = latents[:, latents.shape[1] - ((arguments["num_frames"] - 1) // 4 + 1):]  # without padding latents, which the pipeline drops before it decodes
    return latents, some_pixels(pipeline.decode_latents(latents))


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    DATA.mkdir(exist_ok=True)
    for name in FOLDERS:
        make_folder(name)
    pictures = write_pipeline_cases(DATA, COMMON, CASES, PICTURES, run)
    make_lora(DATA / "lora")
    save_cases(DATA / "lora_cases.json", COMMON, LORA_CASES)
    save_file({f"{name}.latents": run(pictures, **options)[0].contiguous() for name, options in LORA_CASES.items()}, DATA / "lora_golden.safetensors")


if __name__ == "__main__":
    main()
