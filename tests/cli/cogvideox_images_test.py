"""Tests image to video with CogVideoX: videos that begin with a picture, sets whose rows have the same picture, LoRAs for pictures, and what is refused."""
import json
import math
import shutil
import struct
import unittest
from pathlib import Path

from support import PROMPT, ROOT, CommandLineTest, floats, psnr, read_safetensors, read_weights, write_safetensors

DATA = ROOT / 'tests' / 'parity' / 'data'
FIXED, FREE = DATA / 'cogvideox_i2v' / 'pipeline', DATA / 'cogvideox_i2v' / 'pipeline_1.5'
PUBLISHED = [ROOT / 'configs' / f'cogvideox-{name}.yaml' for name in ('5b-i2v', '1.5-5b-i2v')]
PATCHES = 'patch_embed.proj.weight'
SMALL = ['--size', '48x80', '--frames', 5]


def packed(numbers):
    return struct.pack(f'<{len(numbers)}f', *numbers)


class Images(CommandLineTest):
    def setUp(self):
        super().setUp()
        for name, color in (('warm', b'\xfa\x80\x20'), ('cold', b'\x10\x50\xe0')):
            (self.folder / f'{name}.ppm').write_bytes(b'P6 30 20 255\n' + color * 300 + color[::-1] * 300)

    def video(self, name, *arguments, model=FIXED, image='warm.ppm'):
        return self.frames(name, '-m', model, '--image', image, '--attention', 'full', *arguments)

    def test_video_depends_on_picture_and_seed(self):
        for model, options in ((FIXED, []), (FREE, SMALL)):
            first = self.video('a.safetensors', *options, model=model)
            self.assertEqual(first, self.video('b.safetensors', *options, model=model))
            self.assertNotEqual(first, self.video('c.safetensors', *options, '--seed', 7, model=model))
            self.assertNotEqual(first, self.video('d.safetensors', *options, model=model, image='cold.ppm'))

    def test_seeds_of_a_set_with_one_image_give_the_frames_of_single_runs(self):
        rows = [{'prompt': PROMPT, 'output': f'{seed}.safetensors', 'seed': seed, 'image': 'warm.ppm'} for seed in (3, 4)]
        (self.folder / 'set.jsonl').write_text('\n'.join(map(json.dumps, rows)) + '\n')
        self.succeed(self.run_program('batch', 'set.jsonl', '-o', 'out', '-m', FIXED, '--device', 'cpu', '--steps', 2, '--attention', 'full', '--quiet'))
        for row in rows:
            made = floats(read_safetensors(self.folder / 'out' / row['output'])['frames'])
            self.assertEqual(made, self.video('alone.safetensors', '--seed', row['seed']))

    def test_killed_run_resumes_to_the_same_video(self):
        options = ['-m', FIXED, '--image', 'warm.ppm', '--attention', 'full', '--steps', '300', '--threads', '1']
        self.succeed(self.generate(*options, '-o', 'whole.mp4'))
        self.run_to_step(10, '--checkpoint-every', '5', *options)
        report = self.report(*options, '--checkpoint-every', '5', '-o', 'clip.mp4')
        self.assertGreaterEqual(report['resumed_at_step'], 10)
        self.assertEqual((self.folder / 'clip.mp4').read_bytes(), (self.folder / 'whole.mp4').read_bytes())

    def test_model_of_a_fixed_size_refuses_other_sizes(self):
        for options, words in ((['--size', '48x80'], '--width 48'), (['--frames', 5], '--frames 5'), (['--max-sequence-length', 8], '--max-sequence-length 8')):
            self.fail_with(self.generate('-o', 'a.mp4', '-m', FIXED, '--image', 'warm.ppm', *options), 2, words, 'leave it out')
        report = self.report('-o', 'a.mp4', '-m', FIXED, '--image', 'warm.ppm', '--steps', 1)
        self.assertEqual((report['output']['width'], report['output']['height']), (64, 64))  # this model has one size, so the shape of the picture does not matter

    def test_newer_model_uses_the_shape_of_the_picture(self):
        (self.folder / 'square.ppm').write_bytes(b'P6 20 20 255\n' + bytes(1200))
        report = self.report('-o', 'a.mp4', '-m', FREE, '--image', 'square.ppm', '--frames', 1, '--steps', 1)
        self.assertEqual((report['output']['width'], report['output']['height']), (160, 160))
        report = self.report('-o', 'b.mp4', '-m', FREE, '--image', 'warm.ppm', '--frames', 1, '--steps', 1)  # the picture is 30x20, and the model has positions for at most 160 pixels
        self.assertEqual((report['output']['width'], report['output']['height']), (160, 96))
        self.fail_with(self.generate('-o', 'c.mp4', '-m', FREE, '--image', 'warm.ppm', '--frames', 1, '--size', '192x128'), 2, '--width 192 is beyond this model', 'use at most 160')

    def test_requires_exactly_one_picture(self):
        self.fail_with(self.generate('-o', 'a.mp4', '-m', FIXED), 2, '--image is missing')
        self.fail_with(self.generate('-o', 'a.mp4', '-m', FIXED, '--image', 'warm.ppm', '--last-image', 'cold.ppm'), 2, '--last-image is given')

    def test_names_missing_encoder_weights_before_anything_runs(self):
        model = Path(shutil.copytree(FIXED, self.folder / 'model'))
        tensors = read_weights(FIXED / 'vae')
        write_safetensors(model / 'vae' / 'diffusion_pytorch_model.safetensors', {name: tensor for name, tensor in tensors.items() if not name.startswith('encoder.')})
        self.fail_with(self.generate('-o', 'a.mp4', '-m', model, '--image', 'warm.ppm'), 2, 'model/vae', 'encoder.conv_in.conv.weight')

    def test_caches_8_bit_weights_and_loras_work_with_pictures(self):
        usual = self.video('a.safetensors', '--steps', 4)

        def fidelity(*options):
            return psnr(self.video('b.safetensors', '--steps', 4, *options), usual)
        lora = DATA / 'cogvideox_i2v' / 'lora' / 'blocks.safetensors'
        for options in (['--cache', 'steps:2'], ['--cache', 'steps:3'], ['--weights', 'fp8']):
            self.assertTrue(25 < fidelity(*options) < math.inf, options)
        self.assertLess(fidelity('--cache', 'steps:2'), fidelity('--cache', 'steps:3'))
        whole, half, none = (fidelity('--lora', f'{lora}:{scale}') for scale in (1, 0.5, 0))
        self.assertTrue(12 < whole < half - 3, (whole, half))
        self.assertEqual(none, math.inf)

    def test_knows_the_published_models(self):
        for config, lines in zip(PUBLISHED, (('width: 720 ', 'height: 480 ', 'frames: 49 '), ('width: 1360 ', 'height: 768 ', 'frames: 81 ', 'fps: 16.0 '))):
            shown = self.succeed(self.run_program('config', 'show', '--random-weights', config, '--device', 'cpu')).stdout
            for line in lines + (config.name, 'dynamic_cfg: true '):
                self.assertIn(line, shown)

    def test_bench_measures_the_encoding_of_the_picture(self):
        rows = json.loads(self.succeed(self.run_program('bench', 'pipeline', '-m', FIXED, '--device', 'cpu', '--steps', 2, '--modes', 'full', '--warmup', 0, '--image', 'warm.ppm',
                                                        '--quiet', '--json')).stdout)['rows']
        self.assertEqual([row['stage'] for row in rows if row['stage'] != 'encode'], ['load text_encoder', 'text', 'image', 'load transformer', 'step', 'load vae', 'decode'])

    def test_inspect_names_the_task(self):
        summary = json.loads(self.succeed(self.run_program('inspect', FREE, '--json')).stdout)
        self.assertEqual((summary['pipeline_class'], summary['family']), ('CogVideoXImageToVideoPipeline', 'CogVideoX'))
        self.assertIn('image to video, 1.5 layout', summary['variant'])


class WidenedInput(CommandLineTest):
    """Tests a text-to-video model with a LoRA that widens the input layer by the channels of an image."""
    def setUp(self):
        super().setUp()
        (self.folder / 'warm.ppm').write_bytes(b'P6 30 20 255\n' + b'\xfa\x80\x20' * 300 + b'\x10\x50\xe0' * 300)
        model = DATA / 'pipeline'
        self.weights = read_weights(model / 'transformer')
        _, (rows, self.channels, *kernel), _ = self.weights[PATCHES]
        self.columns = 2 * self.channels * math.prod(kernel)
        self.up, self.down = [(k % 3 - 1) / 2 for k in range(rows)], [(k % 5 - 2) / 2 for k in range(self.columns)]  # the products are small multiples of 1/4, so sums are exact
        self.lora = self.write_lora('wide.safetensors', [1, 2 * self.channels, *kernel])
        self.size = ['--frames', 5, '--steps', 2, '--attention', 'full']

    def write_lora(self, name, shape):
        tensors = {'lora_A': ('F32', shape, packed(self.down[:math.prod(shape)])), 'lora_B': ('F32', [len(self.up), 1, 1, 1], packed(self.up))}
        return write_safetensors(self.folder / name, {f'transformer.patch_embed.proj.{end}.weight': tensor for end, tensor in tensors.items()})

    def model_with_images(self):
        """Writes the image-to-video model that results when the LoRA is added to the text-to-video model."""
        model = Path(shutil.copytree(DATA / 'pipeline', self.folder / 'model'))
        dtype, (rows, channels, *kernel), data = self.weights[PATCHES]
        self.assertEqual(dtype, 'F16')
        old, wide = struct.unpack(f'<{len(data) // 2}e', data), []
        for row in range(rows):
            half = self.columns // 2
            wide += [(old[row * half + k] if k < half else 0) + self.up[row] * self.down[k] for k in range(self.columns)]
        for file in model.glob('transformer/*.safetensors*'):
            file.unlink()
        write_safetensors(model / 'transformer' / 'diffusion_pytorch_model.safetensors', self.weights | {PATCHES: ('F32', [rows, 2 * channels, *kernel], packed(wide))})
        config = json.loads((model / 'transformer' / 'config.json').read_text())
        (model / 'transformer' / 'config.json').write_text(json.dumps(config | {'in_channels': 2 * channels}))
        return model

    def test_makes_the_video_of_a_model_whose_weights_are_so(self):
        image = ['--image', 'warm.ppm', '--size', '64x64', *self.size]
        made = self.frames('a.safetensors', '-m', DATA / 'pipeline', '--lora', self.lora, *image)
        expected = self.frames('b.safetensors', '-m', self.model_with_images(), *image)
        self.assertGreater(psnr(made, expected), 100)
        self.assertLess(psnr(made, self.frames('c.safetensors', '-m', DATA / 'pipeline', '--lora', self.lora, '--size', '64x64', *self.size)), 60)

    def test_takes_an_image_only_with_the_lora(self):
        plain = ['-m', DATA / 'pipeline', *self.size]
        self.fail_with(self.generate('-o', 'a.mp4', '--image', 'warm.ppm', *plain), 2, '--image is given, but this model makes videos from text only')
        none = self.frames('a.safetensors', *plain)
        self.assertEqual(self.frames('b.safetensors', '--lora', f'{self.lora}:0', *plain), none)
        self.assertNotEqual(self.frames('c.safetensors', '--lora', self.lora, *plain), none)
        report = self.report('-o', 'd.mp4', '--image', 'warm.ppm', '--lora', self.lora, *plain)
        self.assertEqual(report['recipe']['image'], 'warm.ppm')

    def test_leaves_out_a_layer_for_other_channels(self):
        query = 'transformer.transformer_blocks.0.attn1.to_q'
        width = self.weights['transformer_blocks.0.attn1.to_q.weight'][1][0]
        other = self.write_lora('other.safetensors', [1, self.channels + 1, 2, 2])
        tensors = {name: tensor for name, tensor in read_safetensors(other).items() if name != '__metadata__'}
        write_safetensors(other, tensors | {f'{query}.lora_A.weight': ('F32', [1, width], packed([0] * width)), f'{query}.lora_B.weight': ('F32', [width, 1], packed([0] * width))})
        options = ['-m', DATA / 'pipeline', '--lora', other, *self.size]
        self.assertIn('1 with other input channels: "transformer.patch_embed.proj', self.succeed(self.generate('-o', 'a.mp4', *options)).stderr)
        self.fail_with(self.generate('-o', 'a.mp4', '--image', 'warm.ppm', *options), 2, '--image is given')


if __name__ == '__main__':
    unittest.main()
