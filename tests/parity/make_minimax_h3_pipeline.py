#!/usr/bin/env python3
"""python tests/parity/make_minimax_h3_pipeline.py: writes into data/minimax_h3
  pipeline/                                          a random-weights MiniMax-H3 pipeline of some 900 KB (64x64, 22 frames)
  pipeline_golden.safetensors, pipeline_cases.json   diffusers' results for it
diffusers refuses videos below 5 seconds, but longer videos would take too long in tests. So this script removes that limit; it changes nothing else in diffusers.
Needs torch, diffusers (0.42.1 or newer), transformers 5, pillow, safetensors."""
import json
import shutil

import torch
from diffusers import AutoencoderKLMiniMaxH3, AutoencoderKLMiniMaxH3Audio, MiniMaxH3Scheduler, MiniMaxH3Transformer3DModel
from diffusers.modular_pipelines import MiniMaxH3Blocks
from diffusers.modular_pipelines.minimax_h3.modular_pipeline import MiniMaxH3ModularPipeline
from PIL import Image
from safetensors.torch import save_file
from transformers import Qwen2TokenizerFast, Qwen3VLConfig, Qwen3VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from make_dit import DATA, randomize
from make_minimax_h3_sound import randomize_sound_vae

H3 = DATA / "minimax_h3"
FOLDER = H3 / "pipeline"
TEXT_WIDTH, VIDEO_CHANNELS, SOUND_CHANNELS = 16, 6, 5
MERGES = ["a r", "e d", "Ġ r", "Ġr ed", "Ġ c", "Ġ Ġ", "> ["]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
ADDED = ["<d>", "</d>", "<|cutoff|>"]
TRANSFORMER = dict(num_attention_heads=2, attention_head_dim=16, hidden_size=48, num_layers=2, num_refiner_layers=1, ffn_dim=64, in_channels=VIDEO_CHANNELS,
                   audio_in_channels=SOUND_CHANNELS, text_dim=TEXT_WIDTH, freq_dim=16, time_embed_hidden_dim=24, time_embed_dim=16, rope_freq_dim=2)
VAE = dict(latent_channels=VIDEO_CHANNELS, block_out_channels=(4, 4, 8, 8, 8), layers_per_block=1, spatial_downsample_factors=(2, 2, 2, 2, 1),
           temporal_downsample_factors=(1, 2, 2, 1, 1), norm_num_groups=2, decoder_num_layers=2, decoder_num_attention_heads=1, decoder_attention_head_dim=16,
           decoder_num_register_tokens=3, decoder_ffn_mult=2, latents_mean=[0.1 * i for i in range(VIDEO_CHANNELS)], latents_std=[1 + 0.2 * i for i in range(VIDEO_CHANNELS)])
SOUND_VAE = dict(encoder_dim=4, encoder_rates=(2, 2, 5), latent_dim=20, latent_channels=SOUND_CHANNELS, num_attention_heads=2, decoder_dim=32, decoder_rates=(5, 2, 2),
                 decoder_kernel_sizes=(9, 4, 4), resblock_kernel_sizes=(3, 7), resblock_dilation_sizes=((1, 3), (1, 5)), sampling_rate=800,
                 latents_mean=[0.1 * i for i in range(SOUND_CHANNELS)], latents_std=[1 + 0.2 * i for i in range(SOUND_CHANNELS)])
# COMMON holds the options of all cases, CASES the further options of each case. They have diffusers' names, except for `sigmas`.
COMMON = {"prompt": "a red car <d>hi</d>", "seed": 7, "num_inference_steps": 4, "width": 64, "height": 64, "num_frames": 22}
CASES = {
    "plain": {},
    "wide": {"width": 96, "height": 32, "num_frames": 39},
    "long_prompt": {"prompt": "a  red car, " * 60, "num_inference_steps": 3},
    "two_steps": {"num_inference_steps": 2, "seed": 1},
    "many_steps": {"num_inference_steps": 9, "prompt": "x"},
    "with_first_image": {"image": "picture.high", "width": 64, "height": 32},
    "with_last_image": {"last_image": "picture.wide", "width": 32, "height": 64, "num_frames": 39, "num_inference_steps": 3},
    "with_both_images": {"image": "picture.wide", "last_image": "picture.high", "num_inference_steps": 3},
    "with_image_but_no_prompt": {"image": "picture.fitting", "prompt": "", "width": 64, "height": 32, "num_inference_steps": 2},
}
PICTURES = {"picture.high": (41, 23), "picture.wide": (19, 50), "picture.fitting": (32, 64)}  # {name: (height, width)}


class Processor:
    """Replaces Qwen3VLProcessor, which would need torchvision."""

    image_processor = Qwen2VLImageProcessorPil(size=dict(longest_edge=16777216, shortest_edge=65536), patch_size=16, temporal_patch_size=2, merge_size=2,
                                               image_mean=[0.5] * 3, image_std=[0.5] * 3)

    def __init__(self, picture_token):
        self.picture_token = picture_token

    def create_mm_token_type_ids(self, ids):
        return [[int(i == self.picture_token) for i in row] for row in ids]


def make_picture(height, width):
    """Returns a smooth picture as uint8 [height, width, 3]."""
    spots = torch.rand(1, 3, 4, 4, generator=torch.Generator().manual_seed(height * 100 + width))
    return torch.nn.functional.interpolate(spots, (height, width), mode="bilinear")[0].permute(1, 2, 0).mul(255).round().to(torch.uint8)


def make_tokenizer(folder):
    folder.mkdir(parents=True)
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    vocabulary = {c: i for i, c in enumerate(sorted([chr(b) for b in own] + [chr(256 + n) for n in range(256 - len(own))]))}
    vocabulary.update({merge.replace(" ", ""): 256 + i for i, merge in enumerate(MERGES)})
    first = len(vocabulary)
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False))
    (folder / "merges.txt").write_text("\n".join(MERGES) + "\n")
    plain = dict(lstrip=False, normalized=False, rstrip=False, single_word=False, special=True)
    (folder / "tokenizer_config.json").write_text(json.dumps(dict(
        added_tokens_decoder={str(first + i): dict(content=token, **plain) for i, token in enumerate(SPECIAL)}, additional_special_tokens=SPECIAL[1:] + ADDED,
        pad_token=SPECIAL[0], eos_token=SPECIAL[2], bos_token=None, unk_token=None, tokenizer_class="Qwen2Tokenizer")))
    return first


def keep(model, role, rounded=False):
    """Saves a component. If `rounded`, saves it in fp16 and sets the model's weights to the rounded numbers."""
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    if rounded:
        weights = {name: value.half() for name, value in weights.items()}
        model.load_state_dict({name: value.float() for name, value in weights.items()})
    (FOLDER / role).mkdir()
    name = "model" if role == "text_encoder" else "diffusion_pytorch_model"
    unused = ("encoder.", "pre_block.") if role == "audio_vae" else ()
    kept = {name: value.contiguous() for name, value in weights.items() if not name.startswith(unused)}
    save_file(kept, FOLDER / role / f"{name}.safetensors", metadata={"format": "pt"})
    model.config.save_pretrained(FOLDER / role) if role == "text_encoder" else model.save_config(FOLDER / role)
    return model.eval()


def make_text_encoder(first):
    model = Qwen3VLForConditionalGeneration(Qwen3VLConfig(
        text_config=dict(vocab_size=300, hidden_size=TEXT_WIDTH, intermediate_size=16, num_hidden_layers=51, num_attention_heads=2, num_key_value_heads=1, head_dim=8,
                         rms_norm_eps=1e-6, rope_parameters=dict(rope_type="default", rope_theta=5e6, mrope_section=[2, 1, 1], mrope_interleaved=True)),
        vision_config=dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=1, out_hidden_size=TEXT_WIDTH, patch_size=16, spatial_merge_size=2, temporal_patch_size=2,
                           num_position_embeddings=16, deepstack_visual_indexes=[0]),
        vision_start_token_id=first + 3, vision_end_token_id=first + 4, image_token_id=first + 5, video_token_id=first + 6, tie_word_embeddings=False))
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        scale = 1 if "embed_tokens" in name else parameter[0].numel() ** -0.5
        parameter.copy_(1 + 0.2 * noise if "norm" in name else noise * scale)
    return keep(model, "text_encoder", rounded=True)


def make_transformer():
    model = MiniMaxH3Transformer3DModel(**TRANSFORMER)
    randomize(model, {})
    return keep(model, "transformer")


def make_vae():
    model = AutoencoderKLMiniMaxH3(**VAE)
    randomize(model, {})
    for name, value in model.state_dict().items():  # a new model has zeros here, so its blocks would not change the output
        if name.endswith(("scale1", "scale2")):
            value.add_(0.5)
    return keep(model, "vae", rounded=True)


def make_sound_vae():
    model = AutoencoderKLMiniMaxH3Audio(**SOUND_VAE)
    randomize_sound_vae(model)
    return keep(model, "audio_vae")


def make_folder():
    """Writes the pipeline folder. Returns two pipelines of its components: one for text alone, and one for pictures."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    first = make_tokenizer(FOLDER / "tokenizer")
    pipelines = [MiniMaxH3Blocks().get_workflow(name).init_pipeline() for name in ("t2va", "fl2va")]
    schedulers = {"scheduler": MiniMaxH3Scheduler(12.0), "audio_scheduler": MiniMaxH3Scheduler(3.0)}
    parts = dict(text_encoder=make_text_encoder(first), tokenizer=Qwen2TokenizerFast.from_pretrained(FOLDER / "tokenizer"), processor=Processor(first + 5),
                 transformer=make_transformer(), vae=make_vae(), audio_vae=make_sound_vae(), **schedulers)
    for pipeline in pipelines:
        pipeline.update_components(**parts)
    for role, scheduler in schedulers.items():
        scheduler.save_pretrained(FOLDER / role)

    def entry(library, name, role):
        return [library, name, {"type_hint": [library, name], "pretrained_model_name_or_path": "MiniMaxAI/MiniMax-H3", "subfolder": role, "variant": None, "revision": None}]
    parts = {"scheduler": "MiniMaxH3Scheduler", "audio_scheduler": "MiniMaxH3Scheduler", "transformer": "MiniMaxH3Transformer3DModel",
             "vae": "AutoencoderKLMiniMaxH3", "audio_vae": "AutoencoderKLMiniMaxH3Audio"}
    index = {"_class_name": "MiniMaxH3ModularPipeline", "_diffusers_version": "0.36.0.dev0", "_blocks_class_name": "MiniMaxH3Blocks",
             "text_encoder": entry("transformers", "Qwen3VLForConditionalGeneration", "text_encoder"), "tokenizer": entry("transformers", "Qwen2TokenizerFast", "tokenizer"),
             **{role: entry("diffusers", name, role) for role, name in parts.items()}}
    (FOLDER / "model_index.json").write_text(json.dumps(index, indent=1))
    return pipelines


def run(pipelines, pictures, **options):
    arguments = {**COMMON, **options}
    seed = arguments.pop("seed")
    images = {key: Image.fromarray(pictures[arguments.pop(key)].numpy()) for key in ("image", "last_image") if key in arguments}
    arguments |= images
    state = pipelines[1 if images else 0](**arguments, output_type="pt", generator=torch.Generator().manual_seed(seed))
    frames = state.get("videos")[0].permute(0, 2, 3, 1)[::4, ::2, ::2]  # every fourth frame, every second pixel
    sound = state.get("audio_latents").transpose(1, 2).reshape(1, -1, SOUND_CHANNELS)
    return {"latents": state.get("latents"), "frames": frames, "sound_latents": sound, "sound": state.get("audio")[0]}


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    MiniMaxH3ModularPipeline.min_duration = property(lambda self: 0.5)
    pipelines = make_folder()
    pictures = {name: make_picture(*size) for name, size in PICTURES.items()}
    golden = {f"{name}.{key}": value for name, options in CASES.items() for key, value in run(pipelines, pictures, **options).items()}
    golden |= {name: picture.float() / 255 for name, picture in pictures.items()}
    (H3 / "pipeline_cases.json").write_text(json.dumps({name: {**COMMON, **options} for name, options in CASES.items()}, indent=1) + "\n")
    save_file({key: value.float().contiguous() for key, value in golden.items()}, H3 / "pipeline_golden.safetensors")
    for key, value in golden.items():
        print(key, tuple(value.shape), f"std {value.std():.3f} min {value.min():.3f} max {value.max():.3f}")


if __name__ == "__main__":
    main()
