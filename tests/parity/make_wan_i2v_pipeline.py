#!/usr/bin/env python3
"""python tests/parity/make_wan_i2v_pipeline.py: writes into data/wan_i2v three random-weights pipelines of Wan's image to video
  pipeline/                                          2.1
  pipeline_two_images/                               2.1 for a first and a last frame
  pipeline_two_experts/                              2.2 A14B
  pipeline_golden.safetensors, pipeline_cases.json   diffusers' results for them, for data/wan/pipeline_5b and for pictures
Needs torch, diffusers, transformers 5, ftfy, sentencepiece, safetensors, Pillow."""
import json
import shutil

import torch
from diffusers import AutoencoderKLWan, UniPCMultistepScheduler, WanImageToVideoPipeline, WanTransformer3DModel
from image_to_video import latents_of, save_text_encoder, some_pixels, write_pipeline_cases
from make_clip import SIZE, small_tower
from make_pipeline import DATA, NEGATIVE, PROMPT, make_tokenizer, randomize
from transformers import AutoTokenizer, CLIPImageProcessorPil, CLIPVisionModelWithProjection, UMT5Config, UMT5EncoderModel

FOLDER = DATA / "wan_i2v"
CHANNELS = 4
IMAGE_TOKENS = dict(image_dim=32, added_kv_proj_dim=32)
# {folder: (changes of the transformers' config, whether images have tokens, settings of model_index.json)}
FOLDERS = {
    "pipeline": (IMAGE_TOKENS, True, {}),
    "pipeline_two_images": (dict(IMAGE_TOKENS, pos_embed_seq_len=34), True, {}),
    "pipeline_two_experts": ({}, False, {"boundary_ratio": 0.75}),
}
COMMON = {"prompt": PROMPT, "negative_prompt": NEGATIVE, "seed": 7, "num_inference_steps": 3, "max_sequence_length": 16, "width": 64, "height": 64, "num_frames": 9,
          "guidance_scale": 5.0, "image": "picture"}
LONG_TEXT = {"max_sequence_length": 512}  # if there are image tokens, diffusers assumes texts of this length
TWO_IMAGES = {**LONG_TEXT, "folder": "pipeline_two_images", "last_image": "other"}
EXPERTS = {"folder": "pipeline_two_experts"}
ODD = {"width": 80, "height": 48}
FIVE_B = {"folder": "../wan/pipeline_5b", "width": 128, "height": 128}
CASES = {
    "image_tokens": {**LONG_TEXT},
    "image_tokens_unguided": {**LONG_TEXT, "guidance_scale": 1.0, "num_frames": 5},
    "image_tokens_odd": {**LONG_TEXT, **ODD, "num_frames": 13},
    "image_tokens_one_frame": {**LONG_TEXT, "image": "other", "num_frames": 1},
    "two_images": {**TWO_IMAGES},
    "two_images_odd": {**TWO_IMAGES, **ODD, "image": "other", "last_image": "picture", "num_frames": 5},
    "two_images_unguided": {**TWO_IMAGES, "guidance_scale": 1.0, "num_frames": 13},
    "experts": {**EXPERTS, "num_inference_steps": 4, "guidance_scale_2": 2.0},
    "experts_last": {**EXPERTS, "last_image": "other", "num_inference_steps": 4},
    "experts_last_odd": {**EXPERTS, **ODD, "last_image": "other", "num_frames": 5, "guidance_scale": 1.0},
    "experts_one_frame": {**EXPERTS, **ODD, "num_frames": 1},
    "known_frame": {**FIVE_B},
    "known_frame_odd": {**FIVE_B, "width": 160, "height": 96, "num_frames": 5},
    "known_frame_unguided": {**FIVE_B, "num_frames": 13, "guidance_scale": 1.0},
    "known_frame_alone": {**FIVE_B, "num_frames": 1},
}
PICTURES = {"picture": (53, 90), "other": (71, 40)}  # {name: (height, width)}


def make_folder(name):
    fields, has_tokens, settings = FOLDERS[name]
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    vocab_size = make_tokenizer(folder / "tokenizer")
    generator = torch.Generator().manual_seed(len(name))
    vae = AutoencoderKLWan(base_dim=4, z_dim=CHANNELS, dim_mult=[1, 2, 2, 2], num_res_blocks=1, temperal_downsample=[False, True, True], latents_mean=[-0.2, 0.1, 0.0, 0.3],
                           latents_std=[1.5, 0.7, 1.0, 2.0])
    save_text_encoder(folder, UMT5Config, UMT5EncoderModel, vocab_size, generator)
    randomize(vae, generator).save_pretrained(folder / "vae")
    roles = ["transformer", "transformer_2"] if "boundary_ratio" in settings else ["transformer"]
    for role in roles:
        transformer = WanTransformer3DModel(num_attention_heads=2, attention_head_dim=16, in_channels=2 * CHANNELS + 4, out_channels=CHANNELS, text_dim=32, freq_dim=16, ffn_dim=24,
                                            num_layers=2, **fields)
        randomize(transformer, generator).save_pretrained(folder / role)
    UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, num_train_timesteps=1000, flow_shift=3.0).save_pretrained(folder / "scheduler")
    if has_tokens:
        small_tower().half().save_pretrained(folder / "image_encoder")
        CLIPImageProcessorPil(size={"shortest_edge": SIZE}, crop_size={"height": SIZE, "width": SIZE}).save_pretrained(folder / "image_processor")
    index = {"_class_name": "WanImageToVideoPipeline", "_diffusers_version": "0.42.1", **settings,
             "image_encoder": ["transformers", "CLIPVisionModelWithProjection"] if has_tokens else [None, None],
             "image_processor": ["transformers", "CLIPImageProcessor"] if has_tokens else [None, None], "scheduler": ["diffusers", "UniPCMultistepScheduler"],
             "text_encoder": ["transformers", "UMT5EncoderModel"], "tokenizer": ["transformers", "T5Tokenizer"], "transformer": ["diffusers", "WanTransformer3DModel"],
             "transformer_2": ["diffusers", "WanTransformer3DModel"] if len(roles) == 2 else [None, None], "vae": ["diffusers", "AutoencoderKLWan"]}
    (folder / "model_index.json").write_text(json.dumps(index, indent=1))


def open_folder(name):
    folder = FOLDER / name
    index = json.loads((folder / "model_index.json").read_text())
    has_tokens = index.get("image_encoder", [None])[0] is not None

    def load(model, role):
        return model.from_pretrained(folder / role, torch_dtype=torch.float32).eval()

    pipeline = WanImageToVideoPipeline(
        tokenizer=AutoTokenizer.from_pretrained(folder / "tokenizer"), text_encoder=load(UMT5EncoderModel, "text_encoder"), vae=load(AutoencoderKLWan, "vae"),
        scheduler=UniPCMultistepScheduler.from_pretrained(folder / "scheduler"), transformer=load(WanTransformer3DModel, "transformer"),
        transformer_2=load(WanTransformer3DModel, "transformer_2") if (folder / "transformer_2").exists() else None,
        image_encoder=load(CLIPVisionModelWithProjection, "image_encoder") if has_tokens else None,
        image_processor=CLIPImageProcessorPil.from_pretrained(folder / "image_processor") if has_tokens else None,
        boundary_ratio=index.get("boundary_ratio"), expand_timesteps=index.get("expand_timesteps", False))
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def run(pictures, folder="pipeline", **options):
    pipeline = open_folder(folder)
    latents = latents_of(pipeline, pictures, {**COMMON, **options})
    mean, std = (torch.tensor(pipeline.vae.config[key]).view(1, -1, 1, 1, 1) for key in ("latents_mean", "latents_std"))
    video = pipeline.vae.decode(latents / (1.0 / std) + mean, return_dict=False)[0]
    return latents, some_pixels(video)


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    FOLDER.mkdir(exist_ok=True)
    for name in FOLDERS:
        make_folder(name)
    write_pipeline_cases(FOLDER, COMMON, CASES, PICTURES, run)


if __name__ == "__main__":
    main()
