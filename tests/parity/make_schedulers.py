#!/usr/bin/env python3
"""python tests/parity/make_schedulers.py: writes data/schedulers_golden.safetensors and data/schedulers_cases.json. They hold whole sampling runs of diffusers'
CogVideoX samplers on a small latent with a made-up model. Needs torch, diffusers, safetensors.

torch computes fp32 square roots, logarithms and exponentials with oneMKL, whose last bit depends on the processor. The samplers amplify this difference to 1e-4. So
this script computes these functions in fp64 and rounds the result once, as our code does. The numbers are then the same on every machine."""
import json
import pathlib

import torch
from diffusers import CogVideoXDDIMScheduler, CogVideoXDPMScheduler
from safetensors.torch import save_file

DATA = pathlib.Path(__file__).parent / "data"
CLASSES = {"ddim": CogVideoXDDIMScheduler, "dpm": CogVideoXDPMScheduler}
SHAPE = (1, 2, 3, 2, 4)  # B, F, C, H, W
SEED = 11
# The sampler of the published checkpoints: 2b has DDIM with snr_shift_scale 3, 5b has DPM with 1.
PUBLISHED = {"prediction_type": "v_prediction", "rescale_betas_zero_snr": True, "timestep_spacing": "trailing", "snr_shift_scale": 3.0, "clip_sample": False}


def compute_in_double(name):
    usual = getattr(torch.Tensor, name)

    def once(x):
        return usual(x.double()).float() if x.dtype == torch.float32 else usual(x)
    setattr(torch, name, once)
    setattr(torch.Tensor, name, once)


for function in ("sqrt", "log", "exp", "expm1"):
    compute_in_double(function)


def cases():
    """Yields the cases (name, short name of the scheduler's class, its config, number of steps, dtype of the predictions)."""
    for short in CLASSES:
        for prediction in ("epsilon", "sample", "v_prediction"):
            for spacing in ("linspace", "leading", "trailing"):
                # Zero terminal SNR divides by zero with epsilon prediction at the largest timestep.
                config = {**PUBLISHED, "prediction_type": prediction, "timestep_spacing": spacing, "rescale_betas_zero_snr": prediction != "epsilon"}
                yield f"{short}_{prediction}_{spacing}", short, config, 10, torch.float32
        for steps in (1, 2, 4, 7, 25, 50):
            yield f"{short}_{steps}_steps", short, PUBLISHED, steps, torch.float32
        variants = {
            "no_zero_snr": {"rescale_betas_zero_snr": False},
            "no_shift": {"snr_shift_scale": 1.0},
            "alpha_not_one": {"set_alpha_to_one": False},
            "offset": {"timestep_spacing": "leading", "steps_offset": 1},
            "linear": {"beta_schedule": "linear"},
            "cosine": {"beta_schedule": "squaredcos_cap_v2"},
            "trained_betas": {"trained_betas": [0.001 + 0.0005 * i for i in range(40)], "num_train_timesteps": 40},
            "few_train_steps": {"num_train_timesteps": 37},
            "clip_sample": {"clip_sample": True, "clip_sample_range": 0.5},  # has no effect, because the reference never clips
        }
        for name, change in variants.items():
            yield f"{short}_{name}", short, {**PUBLISHED, **change}, 6, torch.float32
        yield f"{short}_defaults", short, {}, 6, torch.float32
        yield f"{short}_bf16", short, PUBLISHED, 10, torch.bfloat16
        yield f"{short}_fp16", short, PUBLISHED, 10, torch.float16


def sample(scheduler, steps, dtype, direction):
    """Runs the denoising loop of diffusers' CogVideoXPipeline without guidance, with a formula in place of the model. Returns the start, the latents of every
    step, and the next numbers of the generator."""
    scheduler.set_timesteps(steps)
    generator = torch.Generator().manual_seed(SEED)
    latents = torch.randn(SHAPE, generator=generator, dtype=dtype)
    start, trajectory, old = latents, [], None
    for i, t in enumerate(scheduler.timesteps):
        prediction = latents.float() * 0.25 + direction[i % len(direction)]
        if isinstance(scheduler, CogVideoXDDIMScheduler):
            latents = scheduler.step(prediction, t, latents, eta=0.0, generator=generator, return_dict=False)[0]
        else:
            previous = scheduler.timesteps[i - 1] if i > 0 else None
            latents, old = scheduler.step(prediction, old, t, previous, latents, generator=generator, return_dict=False)
        latents = latents.to(dtype)
        trajectory.append(latents.float())
    next_draw = torch.randn(4, generator=generator)  # differs if our sampler draws more or less from the generator
    return start.float(), torch.stack(trajectory), next_draw


def timestep_sums():
    """Returns the number of timesteps and the weighted sum of the timesteps, for every possible number of steps: [spacing, steps - 1, 2]."""
    sums = []
    for spacing in ("linspace", "leading", "trailing"):
        scheduler = CogVideoXDDIMScheduler(timestep_spacing=spacing)
        rows = []
        for steps in range(1, 1001):
            scheduler.set_timesteps(steps)
            t = scheduler.timesteps
            rows.append([len(t), int((t * torch.arange(1, len(t) + 1)).sum())])
        sums.append(rows)
    return torch.tensor(sums)


def main():
    torch.set_num_threads(1)
    direction = torch.randn((4, *SHAPE), generator=torch.Generator().manual_seed(5))
    golden = {"direction": direction, "timestep_sums": timestep_sums()}
    listing = []
    for name, short, config, steps, dtype in cases():
        scheduler = CLASSES[short](**config)
        start, trajectory, next_draw = sample(scheduler, steps, dtype, direction)
        assert torch.isfinite(trajectory).all(), name
        golden |= {f"{name}.timesteps": scheduler.timesteps, f"{name}.latents": trajectory, f"{name}.next_draw": next_draw}
        if "start." + str(dtype) not in golden:
            golden["start." + str(dtype)] = start
        saved = {key: value for key, value in scheduler.config.items() if key != "_use_default_values"}
        saved["_class_name"] = CLASSES[short].__name__
        listing.append({"name": name, "config": saved, "steps": steps, "dtype": str(dtype)})
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        # torch's generator has different code for 7 and for 1000 numbers. Both are drawn from one seed, in this order.
        generator = torch.Generator().manual_seed(1234)
        for count in (7, 1000):
            golden[f"noise.{dtype}.{count}"] = torch.randn(count, generator=generator, dtype=dtype).float()
    save_file({key: value.contiguous() for key, value in golden.items()}, DATA / "schedulers_golden.safetensors")
    (DATA / "schedulers_cases.json").write_text("[\n" + ",\n".join(map(json.dumps, listing)) + "\n]\n")


if __name__ == "__main__":
    main()
