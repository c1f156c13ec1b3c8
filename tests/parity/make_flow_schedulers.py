#!/usr/bin/env python3
"""python tests/parity/make_flow_schedulers.py: writes data/flow_schedulers_golden.safetensors and data/flow_schedulers_cases.json. They hold whole sampling
runs of the samplers that diffusers uses for flow-matching models, on a small latent with a made-up model. Needs torch, diffusers 0.42, safetensors."""
import json

import numpy
import torch
from diffusers import DPMSolverMultistepScheduler, FlowMatchEulerDiscreteScheduler, FlowMatchLCMScheduler, UniPCMultistepScheduler
from diffusers.pipelines.mochi.pipeline_mochi import linear_quadratic_schedule
from make_schedulers import DATA, SEED, SHAPE
from safetensors.torch import save_file

CLASSES = {"unipc": UniPCMultistepScheduler, "euler": FlowMatchEulerDiscreteScheduler, "dpm": DPMSolverMultistepScheduler, "lcm": FlowMatchLCMScheduler}
SHIFTS = (1.0, 3.0, 5.0, 12.0)
# The settings of Wan's published checkpoints.
PUBLISHED = {"prediction_type": "flow_prediction", "use_flow_sigmas": True}
COUNTS = [*range(1, 101), 200, 500, 1000]


def config_of(short, shift, **change):
    return {"shift": shift, **change} if short in ("euler", "lcm") else {**PUBLISHED, "flow_shift": shift, **change}


def cases():
    """Yields the cases (name, short name of the scheduler's class, its config, number of steps or list of noise levels, dtype of the predictions)."""
    for short in CLASSES:
        for shift in SHIFTS:
            for steps in (1, 2, 3, 10):
                yield f"{short}_shift_{int(shift)}_{steps}_steps", short, config_of(short, shift), steps, torch.float32
        yield f"{short}_50_steps", short, config_of(short, 5.0), 50, torch.float32
        yield f"{short}_40_steps", short, config_of(short, 12.0), 40, torch.float32
        yield f"{short}_odd_shift", short, config_of(short, 2.7), 7, torch.float32
        yield f"{short}_shift_below_1", short, config_of(short, 0.3), 7, torch.float32
        yield f"{short}_few_train_steps", short, config_of(short, 3.0, num_train_timesteps=37), 6, torch.float32
        yield f"{short}_bf16", short, config_of(short, 3.0), 10, torch.bfloat16
        yield f"{short}_fp16", short, config_of(short, 3.0), 10, torch.float16
        if short == "dpm":  # this sampler takes no noise levels
            continue
        yield f"{short}_sigmas", short, config_of(short, 5.0), [1.0, 0.75, 0.5, 0.25], torch.float32  # the noise levels of models that are distilled to four steps
        yield f"{short}_odd_sigmas", short, config_of(short, 2.7), [0.9, 0.83, 0.31, 0.3, 0.001], torch.float32
        yield f"{short}_one_sigma", short, config_of(short, 1.0), [0.7], torch.float32
    inverted = config_of("euler", 1.0, invert_sigmas=True)
    yield "euler_inverted", "euler", inverted, 8, torch.float32
    yield "euler_inverted_shift", "euler", {**inverted, "shift": 3.0}, 8, torch.float32
    yield "euler_inverted_linear_quadratic", "euler", inverted, linear_quadratic_schedule(64, 0.025), torch.float32
    yield "euler_inverted_linear_quadratic_odd", "euler", inverted, linear_quadratic_schedule(7, 0.025), torch.float32
    for name, steps in {"first": [0], "some": [0, 1, 4], "all": list(range(8))}.items():
        yield f"unipc_disable_corrector_{name}", "unipc", config_of("unipc", 3.0, disable_corrector=steps), 8, torch.float32


def sample(scheduler, steps, dtype, direction):
    """Runs the denoising loop of diffusers' WanPipeline without guidance, with a formula in place of the model. Returns the start, the latents of every step,
    and the next numbers of the generator."""
    if isinstance(steps, list):
        scheduler.set_timesteps(sigmas=numpy.array(steps))
    else:
        scheduler.set_timesteps(steps)
    generator = torch.Generator().manual_seed(SEED)
    start = latents = torch.randn(SHAPE, generator=generator)
    trajectory = []
    for i, t in enumerate(scheduler.timesteps):
        prediction = (latents.float() * 0.25 + direction[i % len(direction)]).to(dtype)
        latents = scheduler.step(prediction, t, latents, return_dict=False, **(dict(generator=generator) if isinstance(scheduler, FlowMatchLCMScheduler) else {}))[0]
        trajectory.append(latents.float())
    next_draw = torch.randn(4, generator=generator)  # differs if our sampler draws more or less from the generator
    return start, torch.stack(trajectory), next_draw


def timestep_sums():
    """Returns the sum of (i + 1) * timestep i over all steps, for each number of steps in COUNTS: fp64 [class, shift, index in COUNTS]. The sums are exact, because they
    need fewer than 53 bits."""
    sums = torch.zeros(len(CLASSES), len(SHIFTS), len(COUNTS), dtype=torch.float64)
    for kind, (short, make) in enumerate(CLASSES.items()):
        for row, shift in enumerate(SHIFTS):
            scheduler = make(**config_of(short, shift))
            for column, count in enumerate(COUNTS):
                scheduler.set_timesteps(count)
                timesteps = scheduler.timesteps.double()
                assert len(timesteps) == count
                sums[kind, row, column] = (timesteps * torch.arange(1, count + 1)).sum()
    # Multiply by 2^24, because golden files hold only integers and fp32. Timesteps have at most 24 binary digits after the point.
    scaled = sums * 2**24
    assert (scaled == scaled.round()).all()
    return scaled.long()


def main():
    torch.set_num_threads(1)
    direction = torch.randn((4, *SHAPE), generator=torch.Generator().manual_seed(5))
    golden = {"direction": direction, "timestep_sums": timestep_sums(), "counts": torch.tensor(COUNTS), "shifts": torch.tensor(SHIFTS)}
    listing = []
    for name, short, config, steps, dtype in cases():
        scheduler = CLASSES[short](**config)
        start, trajectory, next_draw = sample(scheduler, steps, dtype, direction)
        assert torch.isfinite(trajectory).all(), name
        golden |= {f"{name}.timesteps": scheduler.timesteps, f"{name}.latents": trajectory, f"{name}.next_draw": next_draw}
        golden["start.torch.float32"] = start
        steps = {"steps": len(steps), "sigmas": steps} if isinstance(steps, list) else {"steps": steps}
        listing.append({"name": name, "config": {"_class_name": CLASSES[short].__name__, **config}, **steps, "dtype": "torch.float32", "prediction_dtype": str(dtype)})
    save_file({key: value.contiguous() for key, value in golden.items()}, DATA / "flow_schedulers_golden.safetensors")
    (DATA / "flow_schedulers_cases.json").write_text("[\n" + ",\n".join(map(json.dumps, listing)) + "\n]\n")


if __name__ == "__main__":
    main()
