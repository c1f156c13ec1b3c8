#!/usr/bin/env python3
"""python tests/parity/make_wan_i2v_dit.py: writes into data/wan_i2v
  dit_golden.safetensors, dit_cases.json   small random Wan transformers for image to video, their inputs and diffusers' outputs
  dit_names.json                           names and shapes of the published transformers
Needs torch, diffusers, safetensors."""
import torch
from diffusers import WanTransformer3DModel
from make_dit import DATA, errors, generator_of, in_fp8, randomize, write
from make_wan_dit import SMALL, in_bfloat16, names_of

FOLDER = DATA / "wan_i2v"
TEXT_TOKENS = 512  # if there are image tokens, diffusers takes the last 512 tokens for text, so each case's text is padded with zeros to this length
BESIDE = dict(SMALL, in_channels=12)
IMAGES = dict(BESIDE, image_dim=20, added_kv_proj_dim=32)
# {name: (config, frames, height and width of the latents, number of text tokens, timesteps of the batch entries, number of image tokens, whether the first frame is known)}
CASES = {
    "beside": (BESIDE, (3, 8, 12), 7, [901, 17], 0, False),
    "image_tokens": (IMAGES, (3, 8, 12), 7, [901, 17], 5, False),
    "image_tokens_one_frame": (dict(IMAGES, num_attention_heads=1, attention_head_dim=32, num_layers=1, cross_attn_norm=False, eps=1e-3), (1, 6, 10), 3, [640], 9, False),
    "two_images": (dict(IMAGES, pos_embed_seq_len=10), (2, 10, 6), 7, [250, 750], 10, False),
    "known_frame": (SMALL, (3, 8, 12), 7, [901, 17], 0, True),
    "known_frame_alone": (dict(SMALL, num_layers=1, cross_attn_norm=False), (1, 6, 10), 7, [640], 0, True),
    "known_frame_long": (dict(SMALL, num_attention_heads=3, attention_head_dim=24, num_layers=1), (5, 4, 6), 7, [999.5], 0, True),
}
PUBLISHED = {
    "2.1 i2v 14b": dict(in_channels=36, out_channels=16, image_dim=1280, added_kv_proj_dim=5120),
    "2.1 flf2v 14b": dict(in_channels=36, out_channels=16, image_dim=1280, added_kv_proj_dim=5120, pos_embed_seq_len=514),
    "2.2 i2v a14b": dict(in_channels=36, out_channels=16),
}


def times_of(timesteps, frames, height, width, known):
    """Returns a timestep for each batch entry. If the first frame is known, returns a timestep for each token, which is 0 in the first frame."""
    times = torch.tensor(timesteps)
    if not known:
        return times
    mask = torch.ones(frames, height // 2, width // 2)
    mask[0] = 0
    return times[:, None] * mask.flatten()


def make_case(name, golden):
    config, (frames, height, width), text_tokens, timesteps, image_tokens, known = CASES[name]
    model = WanTransformer3DModel(**config).eval()
    weights = randomize(model, golden)
    generator = generator_of(name)
    latents = torch.randn(len(timesteps), config["in_channels"], frames, height, width, generator=generator)
    text = torch.randn(len(timesteps), text_tokens, config["text_dim"], generator=generator)
    padded = torch.nn.functional.pad(text, (0, 0, 0, TEXT_TOKENS - text_tokens)) if image_tokens else text
    context = torch.randn(1, image_tokens, config["image_dim"], generator=generator) if image_tokens else None
    times = times_of(timesteps, frames, height, width, known)

    def output_of(module, dtype=torch.float32):
        images = None
        if image_tokens:  # with two images, the tokens of each image are a batch entry
            rows = 2 if "pos_embed_seq_len" in config else 1
            images = context.repeat(len(timesteps), 1, 1).view(rows * len(timesteps), image_tokens // rows, -1).to(dtype)
        return module(latents.to(dtype), times, padded.to(dtype), images, return_dict=False)[0].float()

    output = output_of(model)
    reduced, saved = in_fp8(model)
    fp8 = output_of(reduced)
    half = output_of(in_bfloat16(model), torch.bfloat16)
    golden |= {f"{name}/latents": latents, f"{name}/text": text, f"{name}/timesteps": torch.tensor(timesteps), f"{name}/output": output,
               f"{name}/bf16_output": half.half(), f"{name}/fp8_output": fp8.half()}
    case = {"config": dict(model.config), "weights": weights, "fp8_saves": saved}
    if image_tokens:
        golden[f"{name}/context"] = context
        case["text_tokens"] = TEXT_TOKENS
    if known:
        golden[f"{name}/mask"] = torch.ones(1, 1, frames, 1, 1)
        golden[f"{name}/mask"][:, :, 0] = 0
    print(f"{name:28} output {tuple(output.shape)} std {output.std():.3f}, {errors(output, bf16=half, fp8=fp8)}")
    return case


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    FOLDER.mkdir(exist_ok=True)
    golden = {}
    cases = {name: make_case(name, golden) for name in CASES}
    write(FOLDER, golden, cases, {name: names_of(config) for name, config in PUBLISHED.items()})


if __name__ == "__main__":
    main()
