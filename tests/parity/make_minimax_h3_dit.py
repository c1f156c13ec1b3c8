#!/usr/bin/env python3
"""python tests/parity/make_minimax_h3_dit.py: writes into data/minimax_h3
  dit_golden.safetensors, dit_cases.json   small random MiniMax-H3 transformers, their inputs and diffusers' outputs
  dit_names.json                           names and shapes of the published size
Needs torch, diffusers (0.42.1 or newer), safetensors."""
import copy

import torch
from diffusers import MiniMaxH3Transformer3DModel
from diffusers.modular_pipelines.minimax_h3.before_denoise import MiniMaxH3PrepareLayoutStep as Layout
from diffusers.modular_pipelines.minimax_h3.before_denoise import MiniMaxH3SetTimestepsStep as Times
from diffusers.modular_pipelines.minimax_h3.before_denoise import patchify_video_latents

from make_dit import DATA, errors, generator_of, in_fp8, randomize, write
SMALL = dict(num_attention_heads=2, attention_head_dim=32, hidden_size=48, num_layers=2, num_refiner_layers=2, ffn_dim=80, in_channels=3, audio_in_channels=5, text_dim=20,
             freq_dim=16, time_embed_hidden_dim=24, time_embed_dim=16, rope_freq_dim=4)
KEPT_IN_FP32 = ("proj_in", "audio_proj_in", "time_embedder", "proj_out", "audio_proj_out")
# {name: (config, frames, height and width of the latents, length of the sound, number of text tokens, spans (first, count) of text tokens that stand for pictures,
# keyframes, timesteps of video and sound)}
CASES = {
    "text": (SMALL, (7, 6, 10), 37, 11, [], (), (0.3, 0.6)),
    "first": (SMALL, (7, 6, 10), 37, 11, [(3, 4)], ("first",), (0.0, 0.0)),
    "last": (SMALL, (12, 4, 4), 5, 6, [(0, 2)], ("last",), (0.5, 0.25)),
    "both": (SMALL, (17, 8, 4), 12, 9, [(1, 2), (5, 3)], ("first", "last"), (0.9995, 0.7)),
    "no_text": (SMALL, (2, 4, 6), 10, 0, [], (), (0.0017331, 0.0068966)),
    "all_rotated": (dict(SMALL, num_attention_heads=1, attention_head_dim=24, num_refiner_layers=1, rope_theta=100.0, patch_size=(1, 3, 1)), (3, 9, 5), 4, 7, [], (), (0.2, 0.4)),
}


def layout_of(case):
    config, (frames, height, width), length, text, spans, anchors, (video_time, sound_time) = case
    tags = torch.ones(text, dtype=torch.long)
    for first, count in spans:
        tags[first:first + count] = 0
    positions, tags, video, sound, text_rows, conditions, _ = Layout.build_packed_sequence(tags, frames, height, width, length, config.get("patch_size", (1, 2, 2)), 2, 2, 0, anchors)
    times, of_rows = Times.build_row_timesteps(video, sound, conditions, 0, text, video_time, sound_time, max(video_time, 0.999), 1.0)
    return conditions, (times, of_rows, tags, positions, video, sound, text_rows)


def make_case(name, golden):
    config, (frames, height, width), length, text_tokens, spans, anchors, times = CASES[name]
    model = MiniMaxH3Transformer3DModel(**config).eval()
    weights = randomize(model, golden)
    generator = generator_of(name)
    patch = model.config.patch_size
    latents = torch.randn(1, config["in_channels"], frames, height, width, generator=generator)
    keyframes = torch.randn(max(len(anchors), 1), config["in_channels"], 1, height, width, generator=generator)
    sound = torch.randn(1, 2 * length, config["audio_in_channels"], generator=generator)
    text = torch.randn(1, text_tokens, config["text_dim"], generator=generator)
    conditions, layout = layout_of(CASES[name])
    rows = torch.cat([patchify_video_latents(keyframes[i:i + 1], patch) for i in range(len(anchors))] + [patchify_video_latents(latents, patch)]).unsqueeze(0)

    def forward(model, dtype=torch.float32):
        video, of_sound = model(rows, sound, text.to(dtype), *layout, return_dict=False)
        t, h, w = patch
        video = video[:, conditions:].float().view(1, frames, height // h, width // w, config["in_channels"], 1, h, w).permute(0, 4, 1, 5, 2, 6, 3, 7)
        return video.reshape(latents.shape), of_sound.float()

    output, sound_output = forward(model)
    reduced, saved = in_fp8(model)
    fp8, fp8_sound = forward(reduced)
    half = copy.deepcopy(model).bfloat16()
    for kept in KEPT_IN_FP32:
        getattr(half, kept).load_state_dict(getattr(model, kept).state_dict())
        getattr(half, kept).float()
        getattr(half, kept).load_state_dict(getattr(model, kept).state_dict())
    half.rope.inv_freq = model.rope.inv_freq
    bf16, bf16_sound = forward(half, torch.bfloat16)
    golden |= {f"{name}/latents": latents, f"{name}/keyframes": keyframes, f"{name}/sound": sound, f"{name}/text": text, f"{name}/output": output,
               f"{name}/sound_output": sound_output, f"{name}/bf16_output": bf16.half(), f"{name}/bf16_sound_output": bf16_sound.half(), f"{name}/fp8_output": fp8.half(),
               f"{name}/fp8_sound_output": fp8_sound.half()}
    print(f"{name:12} rows {len(layout[1])} output {tuple(output.shape)} std {output.std():.3f}, {errors(output, bf16=bf16, fp8=fp8)}; sound std {sound_output.std():.3f}, "
          f"{errors(sound_output, bf16=bf16_sound, fp8=fp8_sound)}")
    return {"config": dict(model.config), "weights": weights, "fp8_saves": saved, "pictures": spans, "keyframes": anchors, "times": times}


def published_names():
    """Returns the config and the tensors' names and shapes of the published model. Of its blocks, which all have the same shapes, the result holds only one."""
    with torch.device("meta"):
        model = MiniMaxH3Transformer3DModel()
    shapes = {name: list(value.shape) for name, value in model.state_dict().items()}
    blocks = [{name.split(".", 2)[2]: shape for name, shape in shapes.items() if name.startswith(f"transformer_blocks.{i}.")} for i in range(model.config.num_layers)]
    assert all(block == blocks[0] for block in blocks)
    rest = {name: shape for name, shape in shapes.items() if not name.startswith("transformer_blocks.")}
    return {"config": dict(model.config), "block": blocks[0], "rest": rest}


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    golden = {}
    cases = {name: make_case(name, golden) for name in CASES}
    write(DATA / "minimax_h3", golden, cases, {"33B": published_names()})


if __name__ == "__main__":
    main()
