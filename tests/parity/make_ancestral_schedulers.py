#!/usr/bin/env python3
"""python tests/parity/make_ancestral_schedulers.py: writes data/ancestral_schedulers_golden.safetensors and data/ancestral_schedulers_cases.json. They hold
whole sampling runs of diffusers' EulerAncestralDiscreteScheduler on a small latent with a made-up model. Needs torch, diffusers (0.28 and 0.42 give the same),
safetensors."""
import json
import pathlib

import torch
from diffusers import EulerAncestralDiscreteScheduler
from safetensors.torch import save_file

DATA = pathlib.Path(__file__).parent / "data"
SHAPE = (1, 2, 3, 2, 4)  # B, C, F, H, W
SEED = 11


def cases():
    """Yields the cases (name, config of the scheduler, number of steps, dtype of the predictions)."""
    for steps in (1, 2, 3, 7, 10, 50, 100):
        yield f"{steps}_steps", {}, steps, torch.float32
    yield "v_prediction", {"prediction_type": "v_prediction"}, 10, torch.float32
    yield "leading", {"timestep_spacing": "leading", "steps_offset": 1}, 10, torch.float32
    yield "leading_odd", {"timestep_spacing": "leading"}, 7, torch.float32
    yield "scaled_linear", {"beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012}, 10, torch.float32
    yield "few_train_steps", {"num_train_timesteps": 37}, 6, torch.float32
    yield "bf16", {}, 10, torch.bfloat16
    yield "fp16", {}, 10, torch.float16


def sample(scheduler, steps, dtype, direction):
    """Runs the denoising loop of Open-Sora-Plan's pipeline without guidance, with a formula in place of the model. Returns the start, the latents of every
    step, and the next numbers of the generator."""
    scheduler.set_timesteps(steps)
    generator = torch.Generator().manual_seed(SEED)
    start = torch.randn(SHAPE, generator=generator, dtype=dtype)
    latents, trajectory = start * scheduler.init_noise_sigma, []
    for i, t in enumerate(scheduler.timesteps):
        given = scheduler.scale_model_input(latents, t)
        prediction = (given.float() * 0.25 + direction[i % len(direction)]).to(dtype)
        latents = scheduler.step(prediction, t, latents, generator=generator, return_dict=False)[0]
        trajectory.append(latents.float())
    next_draw = torch.randn(4, generator=generator)  # differs if our sampler draws more or less from the generator
    return start.float(), torch.stack(trajectory), next_draw


def main():
    torch.set_num_threads(1)
    direction = torch.randn((4, *SHAPE), generator=torch.Generator().manual_seed(5))
    golden, listing = {"direction": direction}, []
    for name, config, steps, dtype in cases():
        scheduler = EulerAncestralDiscreteScheduler(**config)
        start, trajectory, next_draw = sample(scheduler, steps, dtype, direction)
        assert torch.isfinite(trajectory).all(), name
        golden |= {f"{name}.timesteps": scheduler.timesteps, f"{name}.latents": trajectory, f"{name}.next_draw": next_draw, f"start.{dtype}": start}
        saved = {key: value for key, value in scheduler.config.items() if key != "_use_default_values"}
        saved["_class_name"] = type(scheduler).__name__
        listing.append({"name": name, "config": saved, "steps": steps, "dtype": str(dtype), "prediction_dtype": str(dtype)})
    save_file({key: value.contiguous() for key, value in golden.items()}, DATA / "ancestral_schedulers_golden.safetensors")
    (DATA / "ancestral_schedulers_cases.json").write_text("[\n" + ",\n".join(map(json.dumps, listing)) + "\n]\n")


if __name__ == "__main__":
    main()
