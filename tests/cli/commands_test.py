"""Tests `inspect`, `decode` and `doctor`."""
import json
import math
import struct
import unittest
from pathlib import Path

from support import FAMILY, MODEL, PROMPT, ROOT, CommandLineTest


class Commands(CommandLineTest):
    def write_safetensors(self, name, header, data=b''):
        text = json.dumps(header).encode()
        (self.folder / name).write_bytes(struct.pack('<Q', len(text)) + text + data)

    def test_inspect_describes_a_checkpoint(self):
        text = self.succeed(self.run_program('inspect', MODEL)).stdout
        width, height, frames = FAMILY.video
        for word in (FAMILY.name, 'transformer', *FAMILY.classes, 'text_encoder', 'vae', 'F16', f'{width}x{height}', f'{frames} frames', 'needs about'):
            self.assertIn(word, text)
        summary = json.loads(self.succeed(self.run_program('inspect', MODEL, '--json')).stdout)
        self.assertEqual((summary['width'], summary['height'], summary['frames']), FAMILY.video)
        for part in summary['components']:
            reducible = part['name'] == 'text_encoder' or part['name'].startswith('transformer')
            self.assertEqual('fp8_bytes' in part, reducible)
            if reducible:
                self.assertTrue(part['parameters'] < part['fp8_bytes'] < 2 * part['parameters'], part)
                self.assertIn(' in memory with --' + ('text-' if part['name'] == 'text_encoder' else '') + 'weights fp8', text)
        bf16, _, fp8 = summary['memory']
        self.assertEqual((fp8['dtype'], fp8['activations']), ('fp8', bf16['activations']))
        self.assertLess(fp8['weights'], bf16['weights'])
        self.assertIn('with --weights fp8 --text-weights fp8 (weights', text)
        self.assertEqual([each['gpus'] for each in bf16['of_each']], [2, 4, 8])
        self.assertIn(', each of 2 GPUs ', text)

    def test_inspect_shows_where_weights_stay_on_a_gpu_of_a_given_size(self):
        model = ROOT / 'configs' / 'wan-2.2-a14b.yaml'
        plans = [json.loads(self.succeed(self.run_program('inspect', model, '--json', '--max-vram', gib)).stdout)['plan'] for gib in (160, 60, 16)]
        self.assertEqual([plan['transformers'] for plan in plans], [2, 1, 1])
        self.assertEqual([plan['resident_blocks'] == plan['blocks'] for plan in plans], [True, True, False])
        self.assertIn('  on the GPU: all 40 blocks of the transformer stay in 60.0 GiB of the GPU', self.succeed(self.run_program('inspect', model, '--max-vram', 60)).stdout)
        self.fail_with(self.run_program('inspect', model, '--max-vram', 0), 2, 'max-vram')

    @unittest.skipUnless(FAMILY.name == 'CogVideoX', 'only this transformer names one')
    def test_inspect_prints_the_video_size_if_the_transformer_names_a_square(self):
        model = self.copy_of_the_model()
        file = model / 'transformer' / 'config.json'
        file.write_text(json.dumps(json.loads(file.read_text()) | {
            'num_layers': 42, 'num_attention_heads': 48, 'attention_head_dim': 64, 'patch_size_t': 2, 'sample_width': 300,
            'sample_height': 300, 'sample_frames': 81, 'use_rotary_positional_embeddings': True, 'in_channels': 16, 'out_channels': 16}))
        file = model / 'vae' / 'config.json'
        file.write_text(json.dumps(json.loads(file.read_text()) | {'latent_channels': 16}))
        summary = json.loads(self.succeed(self.run_program('inspect', model, '--json')).stdout)
        self.assertEqual((summary['width'], summary['height'], summary['frames']), (1360, 768, 81))

    def test_inspect_describes_a_safetensors_file(self):
        file = Path(MODEL) / 'vae' / 'diffusion_pytorch_model.safetensors'
        shown = json.loads(self.succeed(self.run_program('inspect', file, '--json')).stdout)
        tensors = {tensor['name']: tensor for tensor in shown['tensors']}
        self.assertIn(FAMILY.decoders_last, tensors)
        self.assertIn(f'{FAMILY.decoders_last}  F16 [', self.succeed(self.run_program('inspect', file, '--tensors')).stdout)

    def test_inspect_prints_the_recipe_of_a_video(self):
        self.succeed(self.generate('-o', 'clip.gif', '--seed', 7))
        text = self.succeed(self.run_program('inspect', 'clip.gif')).stdout
        self.assertIn('  seed: 7', text)
        self.assertIn(f'  prompt: {PROMPT}', text)

    def test_inspect_describes_a_checkpoint_beside_a_file_of_its_name(self):
        model = self.copy_of_the_model()
        (self.folder / 'model.json').write_text('{}')
        self.assertIn(FAMILY.name, self.succeed(self.run_program('inspect', model)).stdout)

    def test_inspect_prints_the_recipe_of_a_video_without_an_extension(self):
        self.succeed(self.generate('-o', 'clip.mp4', '--seed', 7, '--frames', 1))
        (self.folder / 'clip.mp4').rename(self.folder / 'clip')
        (self.folder / 'clip.json').write_text('{}')
        self.assertIn('  seed: 7', self.succeed(self.run_program('inspect', 'clip')).stdout)

    def test_inspect_refuses_wrong_files(self):
        (self.folder / 'text.mp4').write_text('no video')
        (self.folder / 'short.safetensors').write_bytes(b'abc')
        for path in ('nowhere', 'text.mp4', 'short.safetensors', '.'):
            self.fail_with(self.run_program('inspect', path), 2)
        self.fail_with(self.run_program('inspect'), 2, 'PATH')

    def test_decode_writes_the_recipe_of_the_latents(self):
        self.succeed(self.generate('-o', 'a.mp4', '--save-latents', 'latents.safetensors', '--seed', 11))
        result = self.succeed(self.run_program('decode', 'latents.safetensors', '-m', MODEL, '-o', 'b.mp4', '--fps', 12,
                                               '--vae-tiling', 'on', '--contact-sheet', 'sheet.png'))
        self.assertRegex(result.stdout, rf'\Ab\.mp4: {FAMILY.frames / 12:.1f} s of video, 64x64, decoded in [0-9.]+ s\n\Z')
        again = ('decode', 'latents.safetensors', '-m', MODEL, '-o', 'c.safetensors', '--verbose')
        self.assertRegex(self.succeed(self.run_program(*again)).stdout, rf'\n  {FAMILY.frames} frames, peak memory')
        recipe = json.loads(self.succeed(self.run_program('inspect', 'b.mp4', '--json')).stdout)['recipe']
        self.assertEqual((recipe['seed'], recipe['fps'], recipe['vae_tiling']), (11, 12, 'on'))
        self.assertIn('sheet.png', self.names())

    def test_decode_keeps_the_frame_rate_of_the_latents(self):
        self.succeed(self.generate('-o', 'a.mp4', '--save-latents', 'latents.safetensors', '--fps', 12))
        self.succeed(self.run_program('decode', 'latents.safetensors', '-m', MODEL, '-o', 'b.mp4'))
        self.assertEqual(json.loads(self.succeed(self.run_program('inspect', 'b.mp4', '--json')).stdout)['recipe']['fps'], 12)

    def test_decode_accepts_latents_with_a_wrong_recipe(self):
        size = 4 * math.prod(FAMILY.latents)
        zeros = {'dtype': 'F32', 'shape': FAMILY.latents, 'data_offsets': [0, size]}
        for recipe in ('{"prompt": 5, "fps": "fast"}', '[]', 'no JSON', '{}'):
            with self.subTest(recipe):
                self.write_safetensors('latents.safetensors', {'__metadata__': {'recipe': recipe}, 'latents': zeros}, bytes(size))
                self.succeed(self.run_program('decode', 'latents.safetensors', '-m', MODEL, '-o', 'b.mp4', '--contact-sheet', 'b.png'))

    def test_decode_prints_a_report(self):
        self.succeed(self.generate('-o', 'a.mp4', '--save-latents', 'latents.safetensors'))
        result = self.succeed(self.run_program('decode', 'latents.safetensors', '-m', MODEL, '-o', 'b.mp4', '--json'))
        report = json.loads(result.stdout)
        self.assertEqual((report['command'], report['exit']['code'], report['output']['frames']), ('decode', 0, FAMILY.frames))

    def test_decode_refuses_wrong_latents(self):
        one = {'dtype': 'F32', 'shape': [1, 1, 1, 1, 1], 'data_offsets': [0, 4]}
        self.write_safetensors('wrong_name.safetensors', {'noise': one}, bytes(4))
        self.write_safetensors('wrong_rank.safetensors', {'latents': one | {'shape': [1]}}, bytes(4))
        self.write_safetensors('wrong_dtype.safetensors', {'latents': one | {'dtype': 'I32'}}, bytes(4))
        self.write_safetensors('wrong_channels.safetensors', {'latents': one}, bytes(4))
        for name in ('none', 'wrong_name', 'wrong_rank', 'wrong_dtype', 'wrong_channels'):
            with self.subTest(name=name):
                self.fail_with(self.run_program('decode', f'{name}.safetensors', '-m', MODEL, '-o', 'b.mp4'), 2, 'latents' if name != 'none' else 'none')
        self.fail_with(self.run_program('decode', '-m', MODEL), 2, 'LATENTS')
        self.fail_with(self.run_program('decode', 'a.safetensors', '--steps', 3), 2, '--steps')
        self.assertNotIn('b.mp4', self.names())

    def test_doctor_lists_the_encoders_of_every_format(self):
        found = json.loads(self.succeed(self.run_program('doctor', '--json')).stdout)
        self.assertEqual(list(found['encoders_of']), ['.mkv', '.mov', '.mp4', '.webm'])
        for encoders in found['encoders_of'].values():
            self.assertLessEqual(set(encoders), set(found['encoders']))
        self.assertEqual(found['encoders_of']['.webm'][:1] == ['libvpx-vp9'], not any('libvpx-vp9' in gap['what'] for gap in found['missing']))
        text = self.succeed(self.run_program('doctor')).stdout
        self.assertRegex(text, r'(?m)^encoders +\.mp4, \.mov, \.mkv: \w')
        self.assertRegex(text, r'(?m)^ +\.webm: ')

    def test_doctor_describes_the_machine_and_the_libraries(self):
        text = self.succeed(self.run_program('doctor')).stdout
        for word in ('sparsereel', 'installed', 'libtorch', 'CUDA', 'CPU', 'GPU', 'FFmpeg', 'encoders'):
            self.assertIn(word, text)


if __name__ == '__main__':
    unittest.main()
