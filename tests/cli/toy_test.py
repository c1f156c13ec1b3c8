"""Tests the toy family (tests/toy): features that a family's row may have and that the tests of all families do not cover."""
import hashlib
import json
import math
import shutil
import struct
import unittest
import zlib
from pathlib import Path

from support import MODEL, PROMPT, ROOT, CommandLineTest, floats, read_safetensors, read_weights


class Toy(CommandLineTest):
    def inspect(self, model):
        return json.loads(self.succeed(self.run_program('inspect', model, '--json')).stdout)

    def test_inspect_lists_every_transformer(self):
        summary = self.inspect(MODEL)
        components = {component['name']: component for component in summary['components']}
        self.assertEqual(components['transformer_2']['parameters'], components['transformer']['parameters'])
        self.assertEqual((summary['family'], summary['width'], summary['frames']), ('Toy', 64, 7))
        weights = {name: 4 * component['parameters'] for name, component in components.items()}
        encoder = sum(4 * math.prod(shape) for name, (_, shape, _) in read_weights(Path(MODEL) / 'vae').items() if name.startswith('encoder.'))
        self.assertGreater(encoder, 0)
        decoder = weights['vae'] - encoder  # the VAE's encoder is loaded only to encode an image, and is freed before the first step
        self.assertEqual(summary['memory'][1]['weights'], weights['transformer'] + decoder)  # in bytes of fp32. The steps need these weights; encoding the text needs less memory

    def test_optional_part_may_be_missing(self):
        model = self.copy_of_the_model()
        shutil.rmtree(model / 'transformer_2')
        index = json.loads((model / 'model_index.json').read_text())
        del index['boundary_ratio']
        for entry in ([None, None], None):
            index.pop('transformer_2')
            if entry:
                index['transformer_2'] = entry
            (model / 'model_index.json').write_text(json.dumps(index))
            self.assertEqual([component['name'] for component in self.inspect(model)['components']],
                             ['scheduler', 'text_encoder', 'tokenizer', 'transformer', 'vae'])
            self.succeed(self.run_program('generate', '-m', model, '-p', PROMPT, '--device', 'cpu', '-o', 'one.safetensors'))

    def test_each_step_uses_the_transformer_of_its_timestep(self):
        # The toy's first transformer computes steps with more than nine tenths of the noise. With this schedule and its shift, these are the first three of four steps.
        model = self.copy_of_the_model()
        for name, step in (('transformer_2', 4), ('transformer', 1)):
            weights = model / name / 'diffusion_pytorch_model.safetensors'
            data = bytearray(weights.read_bytes())
            size, = struct.unpack('<Q', data[:8])
            begin = 8 + size + json.loads(data[8:8 + size])['head.bias']['data_offsets'][0]
            data[begin:begin + 4] = struct.pack('<f', math.nan)
            weights.write_bytes(data)
            self.fail_with(self.run_program('generate', '-m', model, '-p', PROMPT, '--device', 'cpu', '--steps', 4, '-o', 'a.mp4'), 1,
                           f'step {step}: the transformer')

    def test_uses_the_negative_prompt_of_the_model_by_default(self):
        usual = self.frames('a.safetensors')
        self.assertEqual(usual, self.frames('b.safetensors', '-n', 'grey'))
        self.assertNotEqual(usual, self.frames('c.safetensors', '-n', ''))
        recipe = self.succeed(self.run_program('config', 'show', '-m', MODEL, '-p', PROMPT, '--device', 'cpu')).stdout
        self.assertIn('grey', recipe)

    def test_family_cleans_the_prompt(self):
        self.assertEqual(self.frames('a.safetensors'), self.frames('b.safetensors', '-p', '  ' + PROMPT.replace(' ', ' &nbsp; ')))

    def test_bench_pipeline_measures_every_stage(self):
        report = json.loads(self.succeed(self.run_program('bench', 'pipeline', '-m', MODEL, '--device', 'cpu', '--steps', 2, '--modes', 'full,sparse',
                                                          '--warmup', 0, '--quiet', '--json')).stdout)
        self.assertEqual([row['stage'] for row in report['rows']],
                         ['load text_encoder', 'text', 'load transformer', 'step', 'step', 'load vae', 'decode', 'encode'])
        self.assertIn('transformer_2', report['architecture'])

    def test_field_of_a_family_is_an_option_everywhere(self):
        self.assertIn('--draft', self.succeed(self.run_program('generate', '--help')).stdout)
        make = ['generate', '-m', MODEL, '-p', PROMPT, '--device', 'cpu', '--json', '--quiet', '--frames', 1]

        def recipe(*arguments):
            return json.loads(self.succeed(self.run_program(*make, *arguments)).stdout)['recipe']
        asked = recipe('--draft', '-o', 'a.mp4')
        self.assertEqual((asked['draft'], asked['steps']), (True, 1))
        self.assertNotIn('draft', recipe('-o', 'b.mp4'))
        (self.folder / 'c.yaml').write_text('draft: true\n')
        self.assertEqual(recipe('--config', 'c.yaml', '-o', 'c.mp4'), asked)
        again = json.loads(self.succeed(self.run_program('generate', '-m', MODEL, '--device', 'cpu', '--from', 'a.mp4', '-o', 'd.mp4', '--json')).stdout)
        self.assertEqual(again['recipe'], asked)
        self.fail_with(self.run_program(*make, '--config', 'c.yaml', '--draft=maybe'), 2, '--draft')

    def test_changed_field_of_a_family_renders_a_row_again(self):
        def rendered(draft):
            (self.folder / 'set.jsonl').write_text(json.dumps({'prompt': PROMPT, 'draft': draft}))
            report = self.succeed(self.run_program('batch', 'set.jsonl', '-o', 'out', '-m', MODEL, '--device', 'cpu', '--frames', 1, '--steps', 2,
                                                   '--quiet', '--json')).stdout
            return json.loads(report)['set']['rendered']
        self.assertEqual([rendered(True), rendered(True), rendered(False)], [1, 0, 1])


def png(width, height, pixel):
    """Returns an RGB PNG. pixel(x, y) returns (red, green, blue)."""
    rows = b''.join(b'\0' + bytes(value for x in range(width) for value in pixel(x, y)) for y in range(height))

    def chunk(kind, data):
        return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
    return (b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', width, height, 8, 2, 0, 0, 0)) + chunk(b'IDAT', zlib.compress(rows)) +
            chunk(b'IEND', b''))


class ImageConditions(CommandLineTest):
    """Tests text with a mask, videos that begin with a picture, and a schedule that only the toy family has."""

    def setUp(self):
        super().setUp()
        self.picture('warm.png', lambda x, y: (250, 8 * x, 40))
        self.picture('cold.png', lambda x, y: (20, 90, 7 * y))

    def picture(self, name, pixel, size=(30, 20)):
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_bytes(png(*size, pixel))

    def latents(self, name, *arguments):
        """Runs `generate` and returns a list with the values of each latent frame, all channels together."""
        self.succeed(self.generate('-o', 'some.safetensors', '--save-latents', name, *arguments))
        dtype, shape, data = read_safetensors(self.folder / name)['latents']
        values, (_, channels, frames, height, width) = floats((dtype, shape, data)), shape
        size = height * width
        return [[values[(c * frames + f) * size:(c * frames + f + 1) * size] for c in range(channels)] for f in range(frames)]

    def test_picture_stays_the_first_frame(self):
        for frames in (7, 5):  # 4 latent frames, then 3: the model takes pairs of them, so one is added in front of an odd number
            options = ['--frames', frames, '--steps', 3, '--size', '64x64']
            plain, warm = self.latents('a.safetensors', *options), self.latents('b.safetensors', *options, '--image', 'warm.png')
            other = self.latents('c.safetensors', *options, '--image', 'warm.png', '--seed', 7)
            cold = self.latents('d.safetensors', *options, '--image', 'cold.png')
            self.assertEqual(warm[0], other[0])
            self.assertNotEqual(warm[0], plain[0])
            self.assertNotEqual(warm[0], cold[0])
            for frame in range(1, len(warm)):  # the other frames attend to the first one, so a picture changes them, too
                self.assertNotEqual(warm[frame], plain[frame])
                self.assertNotEqual(warm[frame], cold[frame])
                self.assertNotEqual(warm[frame], other[frame])

    def test_recipe_records_name_and_hash_of_the_image(self):
        made = self.report('-o', 'a.mp4', '--steps', 1, '--image', 'warm.png')['recipe']
        self.assertEqual((made['image'], made['image_sha256']), ('warm.png', hashlib.sha256((self.folder / 'warm.png').read_bytes()).hexdigest()))
        again = ['generate', '-m', MODEL, '--device', 'cpu', '--from', 'a.mp4', '-o', 'b.mp4']
        self.fail_with(self.run_program(*again), 2, 'made with the file warm.png', '--image')
        self.succeed(self.run_program(*again, '--image', 'warm.png'))
        self.assertEqual((self.folder / 'a.mp4').read_bytes(), (self.folder / 'b.mp4').read_bytes())
        self.warn_with(self.run_program(*again, '--image', 'cold.png'), 'the image is not the one that a.mp4 was made with: the new video differs')

    def test_video_has_the_shape_of_the_image_unless_a_size_is_given(self):
        report = self.report('-o', 'a.mp4', '--steps', 1, '--image', 'warm.png')  # the picture has 30x20 pixels
        self.assertEqual((report['output']['width'], report['output']['height']), (80, 48))  # the picture's shape, rounded to multiples of the model's unit, with about the area of 64x64
        self.assertEqual(report['shape_of_image'], {'width': 30, 'height': 20})
        self.assertEqual((report['recipe']['width'], report['recipe']['height'], report['recipe']['resize']), (80, 48, 'cover'))
        self.picture('high.png', lambda x, y: (9, 9, 9), (20, 30))
        line = self.succeed(self.generate('-o', 'b.mp4', '--steps', 1, '--init-img', 'high.png')).stdout
        self.assertIn('b.mp4: 0.9 s of video, 48x80 in the shape of high.png, ', line)
        line = self.succeed(self.generate('-o', 'c.mp4', '--steps', 1, '--first-frame', 'high.png', '--width', 32)).stdout
        self.assertIn('c.mp4: 0.9 s of video, 32x64, ', line)
        shown = self.succeed(self.run_program('config', 'show', '-m', MODEL, '-p', PROMPT, '--device', 'cpu', '-i', 'warm.png')).stdout
        self.assertRegex(shown, r'width: 80 +# in the shape of warm.png\n')
        self.assertRegex(shown, r'resize: "cover" +# default\n')
        again = json.loads(self.succeed(self.run_program('generate', '-m', MODEL, '--device', 'cpu', '--from', 'a.mp4', '--image', 'warm.png', '-o', 'd.mp4',
                                                         '--json')).stdout)
        self.assertEqual(again['recipe'], report['recipe'])
        self.assertNotIn('shape_of_image', again)

    def test_image_of_another_shape_is_cropped_or_stretched(self):
        options = ['--steps', 2, '--size', '32x64', '--image', 'warm.png']
        usual = self.frames('a.safetensors', *options)
        self.assertEqual(usual, self.frames('b.safetensors', '--resize', 'cover', *options))
        self.assertNotEqual(usual, self.frames('c.safetensors', '--resize', 'stretch', *options))
        self.warn_with(self.generate('-o', 'd.mp4', '--steps', 1, '--resize', 'stretch'), '--resize stretch has no effect without an image')
        self.fail_with(self.generate('-o', 'e.mp4', '--resize', 'crop', *options), 2, '--resize crop', 'cover')

    def test_continues_a_video_from_its_last_frame(self):
        self.succeed(self.generate('-o', 'a.mp4', '--steps', 1, '--size', '32x48'))
        report = self.report('-o', 'b.mp4', '--steps', 1, '--image', 'a.mp4')
        self.assertEqual(report['shape_of_image'], {'width': 32, 'height': 48})
        self.assertEqual(report['recipe']['image'], 'a.mp4')

    def test_refuses_a_last_image_if_the_model_cannot_use_it(self):
        self.fail_with(self.generate('-o', 'a.mp4', '--image', 'warm.png', '--last-image', 'cold.png'), 2,
                       '--last-image is given, but this model takes no image for the last frame')
        self.fail_with(self.generate('-o', 'a.mp4', '--end-img', 'none.png'), 2, 'none.png')

    def test_refuses_a_large_picture_before_anything_loads(self):
        (self.folder / 'large.ppm').write_text('P6 30000 30000 255\n')
        self.fail_with(self.generate('-o', 'a.mp4', '--image', 'large.ppm'), 2, 'large.ppm: is a picture of 30000x30000', 'scale it down first')

    def test_refuses_files_without_a_picture_and_models_without_images(self):
        self.fail_with(self.generate('--image', 'none.png', '-o', 'a.mp4'), 2, 'none.png')
        (self.folder / 'text.png').write_text('no picture')
        self.fail_with(self.generate('--image', 'text.png', '-o', 'a.mp4'), 2, 'text.png: cannot be read as an image')
        pipeline = ROOT / 'tests' / 'parity' / 'data' / 'pipeline'
        self.fail_with(self.run_program('generate', '-m', pipeline, '-p', PROMPT, '--device', 'cpu', '--image', 'warm.png', '-o', 'a.mp4'), 2,
                       '--image is given, but this model makes videos from text only')
        self.assertFalse((self.folder / 'a.mp4').exists())

    def test_needs_the_encoder_only_for_an_image(self):
        model = self.copy_of_the_model()
        weights = model / 'vae' / 'diffusion_pytorch_model.safetensors'
        weights.write_bytes(weights.read_bytes().replace(b'encoder.block.weight', b'encoder.other.weight'))
        make = ['generate', '-m', model, '-p', PROMPT, '--device', 'cpu', '--steps', 1, '-o', 'a.safetensors']
        self.succeed(self.run_program(*make))
        self.fail_with(self.run_program(*make, '--image', 'warm.png'), 2, '1 missing: "encoder.block.weight" [4, 96]')

    def rendered(self, *rows):
        (self.folder / 'set.jsonl').write_text('\n'.join(map(json.dumps, rows)) + '\n')
        report = self.succeed(self.run_program('batch', 'set.jsonl', '-o', 'out', '-m', MODEL, '--device', 'cpu', '--steps', 2, '--seed', 5, '--quiet',
                                               '--json')).stdout
        return json.loads(report)['set']['rendered']

    def test_each_row_of_a_set_uses_its_picture(self):
        self.picture('other/warm.png', lambda x, y: (0, 0, 6 * x))  # another picture with the same file name
        images = ('warm.png', 'other/warm.png', 'cold.png', None)
        rows = [{'prompt': PROMPT, 'output': f'{i}.safetensors', 'seed': 5, **({'image': image} if image else {})} for i, image in enumerate(images)]
        self.assertEqual(self.rendered(*rows), 4)
        for i, image in enumerate(images):
            alone = self.frames('alone.safetensors', '--steps', 2, '--seed', 5, *(['--image', image] if image else []))
            self.assertEqual(floats(read_safetensors(self.folder / 'out' / f'{i}.safetensors')['frames']), alone, image)
        self.assertEqual(self.rendered(*rows), 0)
        self.picture('cold.png', lambda x, y: (1, 2, 3))  # the file's content has changed, so its row is rendered again
        self.assertEqual(self.rendered(*rows), 1)

    def test_rows_with_the_same_picture_have_separate_sizes(self):
        rows = [{'prompt': PROMPT, 'output': f'{width}.safetensors', 'image': 'warm.png', 'size': f'{width}x32', 'resize': rule}
                for width, rule in ((32, 'cover'), (64, 'cover'), (48, 'stretch'))]
        self.assertEqual(self.rendered(*rows), 3)
        for row in rows:
            alone = self.frames('alone.safetensors', '--steps', 2, '--seed', 5 + rows.index(row), '--image', 'warm.png', '--size', row['size'],
                                '--resize', row['resize'])
            self.assertEqual(floats(read_safetensors(self.folder / 'out' / row['output'])['frames']), alone, row)

    def test_killed_run_resumes_to_the_same_video(self):
        for scheduler in ('euler', 'unipc'):
            options = ['--scheduler', scheduler, '--steps', '300', '--threads', '1', '--image', 'warm.png']
            self.succeed(self.generate(*options, '-o', 'whole.mp4'))
            self.run_to_step(10, '--checkpoint-every', '5', *options)
            report = self.report(*options, '--checkpoint-every', '5', '-o', 'clip.mp4')
            self.assertGreaterEqual(report['resumed_at_step'], 10)
            self.assertEqual((self.folder / 'clip.mp4').read_bytes(), (self.folder / 'whole.mp4').read_bytes(), scheduler)
            (self.folder / 'clip.mp4').unlink()

    def test_does_not_use_a_checkpoint_of_another_picture(self):
        options = ['--steps', '300', '--image', 'warm.png', '--checkpoint-every', '5']
        self.run_to_step(10, *options)
        self.picture('warm.png', lambda x, y: (1, 2, 3))
        self.assertNotIn('resumed_at_step', self.report(*options, '-o', 'clip.mp4'))

    def test_bench_pipeline_measures_the_image(self):
        def report(*arguments):
            return json.loads(self.succeed(self.run_program('bench', 'pipeline', '-m', MODEL, '--device', 'cpu', '--steps', 2, '--modes', 'full', '--warmup', 0,
                                                            '--quiet', '--json', *arguments)).stdout)['rows']
        self.assertEqual([row['stage'] for row in report('--image', 'warm.png')],
                         ['load text_encoder', 'text', 'image', 'load transformer', 'step', 'load vae', 'decode', 'encode'])
        self.fail_with(self.run_program('bench', 'pipeline', '-m', MODEL, '--device', 'cpu', '--image', 'none.png'), 2, 'none.png')

    def test_masks_padding_of_the_text(self):
        def near(one, other):
            return max(abs(a - b) for a, b in zip(one, other)) < 1e-4
        long, short = (self.frames(f'{length}.safetensors', '-p', 'a', '-n', 'b', '--steps', 2, '--max-sequence-length', length) for length in (12, 4))
        self.assertTrue(near(long, short))
        self.assertFalse(near(long, self.frames('other.safetensors', '-p', 'c', '-n', 'b', '--steps', 2)))

    def test_uses_the_schedule_of_the_family(self):
        def frames(name, *arguments):
            self.succeed(self.run_program('generate', '-m', MODEL, '-p', PROMPT, '--device', 'cpu', '-o', name, *arguments))
            return floats(read_safetensors(self.folder / name)['frames'])
        usual = frames('a.safetensors', '--steps', 4)
        self.assertEqual(usual, frames('b.safetensors', '--sigmas', '1,0.9875,0.975,0.725'))
        self.assertNotEqual(usual, frames('c.safetensors', '--sigmas', '1,0.75,0.5,0.25'))
        even = frames('d.safetensors', '--steps', 4, '--scheduler', 'unipc')  # the family's row gives no schedule to this sampler
        self.assertEqual(even, frames('e.safetensors', '--sigmas', '1,0.75025,0.5005,0.25075', '--scheduler', 'unipc'))


if __name__ == '__main__':
    unittest.main()
