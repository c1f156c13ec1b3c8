"""Tests `generate`: every kind of output, reports, recipes, latents, and that equal seeds give equal videos."""
import json
import shutil
import struct
import time
import unittest
from pathlib import Path

import quantized
from support import FAMILY, MODEL, PROMPT, ROOT, CommandLineTest, floats, read_safetensors, read_weights, write_safetensors

STAGES = ('start', 'libraries', 'open', 'check', 'text', 'load', 'denoise', 'keep', 'decode', 'write')


class Generate(CommandLineTest):
    """Tests that run for every family."""

    def test_writes_an_mp4_and_says_so_in_one_line(self):
        result = self.succeed(self.generate('-o', 'clip.mp4', '--fps', 8))
        self.assertEqual(self.names(), ['clip.mp4'])
        self.assertRegex(result.stdout, rf'\Aclip\.mp4: {FAMILY.frames / 8:.1f} s of video, 64x64, made in [0-9.]+ s\n\Z')
        self.assertEqual(result.stderr, '')  # no progress bar, because stderr is no terminal

    def test_verbose_adds_times_attention_and_memory(self):
        first, second = self.succeed(self.generate('-o', 'clip', '--verbose', '--seed', 'random')).stdout.splitlines()
        self.assertRegex(first, rf'^clip: {FAMILY.frames} frames, 64x64, made in [0-9.]+ s, seed \d+$')
        for word in (f'  {FAMILY.frames} frames, ', 'denoise', 'decode', 'sparsity', 'peak memory'):
            self.assertIn(word, second)

    def test_eight_bit_folder_makes_the_frames_of_its_unpacked_weights(self):
        """Compares two models with the same numbers. One packs all matrices of the transformer, the VAE and the text encoder in 8 bits; the other has all numbers in
        fp32."""
        for name in ('packed', 'twin'):
            shutil.copytree(MODEL, self.folder / name)
        scale = struct.unpack('<f', struct.pack('<f', 0.01))[0]
        for role, file in (('transformer', 'diffusion_pytorch_model'), ('text_encoder', 'model'), ('vae', 'diffusion_pytorch_model')):
            packed, twin = {}, {}
            for name, (dtype, shape, data) in read_weights(Path(MODEL) / role).items():
                numbers = struct.unpack(f'<{len(data) // quantized.SIZES[dtype]}{"e" if dtype == "F16" else "f"}', data)
                if is_matrix := name.endswith('.weight') and len(shape) > 1:
                    packed[name.replace('.weight', '.weight_scale')] = ('F32', [], struct.pack('<f', scale))
                stored, bytes_, values = quantized.int8(numbers, scale) if is_matrix else quantized.f32(numbers)
                packed[name], twin[name] = (stored, shape, bytes_), ('F32', shape, quantized.f32(values)[1])
            for folder, tensors in (('packed', packed), ('twin', twin)):
                for old in (self.folder / folder / role).glob(f'{file}*.safetensors*'):
                    old.unlink()
                write_safetensors(self.folder / folder / role / f'{file}.safetensors', tensors)
        self.assertEqual(*(self.frames(f'{name}.safetensors', '-m', name) for name in ('packed', 'twin')))

    def test_same_seed_gives_identical_frames_and_another_seed_does_not(self):
        first = self.frames('a.safetensors', '--seed', 5)
        self.assertEqual(first, self.frames('b.safetensors', '-s', 5))
        self.assertNotEqual(first, self.frames('c.safetensors', '--seed', 6))
        self.assertTrue(all(0 <= value <= 1 for value in first))
        self.assertGreater(max(first) - min(first), 0.01)

    def test_guidance_passes_in_turn_make_the_same_video(self):
        batched = self.frames('a.safetensors')
        in_turn = self.frames('b.safetensors', '--guidance-passes', 'in-turn')
        self.assertLess(max(abs(a - b) for a, b in zip(batched, in_turn)), 1e-3)
        recipes = [self.report('-o', 'c.gif', '--guidance-passes', passes)['recipe'] for passes in ('batched', 'in-turn')]
        self.assertEqual(recipes[1], recipes[0] | {'guidance_passes': 'in-turn'})
        again = self.report('--from', 'c.gif', '-o', 'd.gif')
        self.assertEqual(again['recipe'], recipes[1])
        self.assertEqual((self.folder / 'c.gif').read_bytes(), (self.folder / 'd.gif').read_bytes())

    def test_eight_bit_weights_change_the_video_little_and_are_in_the_recipe(self):
        usual = self.frames('a.safetensors', '--attention', 'full')
        recipe = self.report('-o', 'a.gif', '--attention', 'full')['recipe']
        seen = []
        for name, options in (('b', {'weights': 'fp8'}), ('c', {'text_weights': 'fp8'}), ('d', {'weights': 'fp8', 'text_weights': 'fp8'}), ('f', {'weights': 'int8'}),
                              ('g', {'weights': 'int8', 'text_weights': 'int8'})):
            given = [word for key, value in options.items() for word in ('--' + key.replace('_', '-'), value)]
            frames = self.frames(name + '.safetensors', '--attention', 'full', *given)
            self.assertNotIn(frames, [usual, *seen])
            self.assertLess(sum(abs(a - b) for a, b in zip(usual, frames)) / len(frames), 0.03)
            seen.append(frames)
            self.assertEqual(self.report('-o', name + '.gif', '--attention', 'full', *given)['recipe'], recipe | options)
        self.report('--from', 'd.gif', '-o', 'e.gif')
        self.assertEqual((self.folder / 'd.gif').read_bytes(), (self.folder / 'e.gif').read_bytes())

    def test_options_change_the_video(self):
        usual = self.frames('a.safetensors', '--attention', 'full')
        for i, changed in enumerate((['--steps', 3], ['--cfg-scale', 2], ['--dynamic-cfg'], ['-n', 'blurry'],
                                     *(['--scheduler', sampler] for sampler in FAMILY.samplers[1:]))):
            self.assertNotEqual(usual, self.frames(f'{i}.safetensors', '--attention', 'full', *changed), changed)

    def test_sparsity_grows_as_topk_falls(self):
        # 192 x 192 pixels have enough tokens that some blocks can be left out. 64 x 64 may have only one block, which is always computed.
        sparsity, frames = [], []
        for topk in ('1', '0.5', '0.2'):
            name = f'{topk}.safetensors'
            report = self.report('-o', name, '--size', '192x192', '--attention', 'sparse', '--topk', topk, '--pv-threshold', 32)
            self.assertAlmostEqual(report['attention']['sparsity'], report['recipe']['sparsity'])
            sparsity.append(report['attention']['sparsity'])
            frames.append((self.folder / name).read_bytes())
        self.assertEqual(sparsity[0], 0)
        self.assertGreater(sparsity[1], 0.2)
        self.assertGreater(sparsity[2], sparsity[1] + 0.1)
        self.assertEqual(len(set(frames)), 3)

    def test_token_orders_agree_with_full_attention(self):
        native = self.frames('native.safetensors', '--attention', 'full', '--token-order', 'native')
        for order in ('hilbert', 'time-major', 'morton', 'random'):
            other = self.frames(f'{order}.safetensors', '--attention', 'full', '--token-order', order)
            self.assertLess(max(abs(a - b) for a, b in zip(native, other)), 1e-4, order)

    def test_makes_the_requested_size_and_frame_rate(self):
        report = self.report('-o', 'clip.mp4', '--size', '48x32', '--frames', 25, '--fps', 12)
        self.assertEqual([report['output'][key] for key in ('width', 'height', 'frames', 'fps')], [48, 32, 25, 12])

    def test_warns_if_an_even_number_of_latent_frames_decodes_to_more_frames(self):
        asked, made = FAMILY.even_latents
        report = self.report('-o', 'clip.mp4', '--frames', asked)
        self.assertEqual(report['output']['frames'], made)
        other = [warning for warning in report['warnings'] if 'the model was not made for' not in warning]  # without the warning that the video is too small for the model
        self.assertEqual([f'{made} frames instead of {asked}' in warning for warning in other], [True] * (made > asked))

    def test_seconds_of_all_stages_add_up_to_those_of_the_process(self):
        ticks = 0.02  # in seconds: resolution of the system's process start times
        shares = []
        for _ in range(3):  # tries again, because on a busy machine a process may take long to end, and no report can contain that time
            begun = time.monotonic()
            report = self.report('-o', 'clip.y4m')
            wall = time.monotonic() - begun
            seconds = report['seconds']
            stages = sum(seconds[stage] for stage in STAGES)
            self.assertLessEqual(stages, seconds['total'] + ticks)
            self.assertGreater(stages, 0.95 * seconds['total'] - ticks)
            self.assertLessEqual(seconds['total'], wall + ticks)
            self.assertEqual(seconds['load'], sum(seconds['loads'].values()))
            shares.append((seconds['total'] + ticks) / wall)
            if shares[-1] > 0.8:
                break
        self.assertGreater(max(shares), 0.8)

    def test_report_has_every_field(self):
        report = self.report('-o', 'clip.mp4', '--report', 'report.json', '--attention', 'sparse', '--topk', '0.4',
                             '-n', 'blurry', '--seed', 9)
        self.assertEqual(report, json.loads((self.folder / 'report.json').read_text()))
        self.assertEqual(report['exit'], {'code': 0, 'state': 'done'})
        self.assertEqual(report['command'], 'generate')
        recipe = report['recipe']
        for key, value in {'prompt': PROMPT, 'negative_prompt': 'blurry', 'seed': 9, 'steps': 2, 'width': 64, 'height': 64,
                           'frames': FAMILY.frames, 'attention': 'sparse', 'topk': 0.4, 'dtype': 'fp32', 'device': 'cpu',
                           'token_order': 'hilbert', 'model': Path(MODEL).name, 'vae_tiling': 'off'}.items():
            self.assertEqual(recipe[key], value, key)
        self.assertEqual(len(report['seconds']['steps']), 2)
        for stage in (*STAGES, 'total'):
            self.assertGreaterEqual(report['seconds'][stage], 0)
        attention = report['attention']
        self.assertEqual(attention['mode'], 'sparse')
        self.assertIn('fp32', attention['note'])
        self.assertNotEqual(attention['kernel'], '')
        self.assertEqual(len(attention['layer_sparsity']), 2)
        self.assertGreater(report['memory']['host_bytes'], 1 << 20)
        self.assertGreater(report['output']['bytes'], 0)
        self.assertNotEqual(report['output']['encoder'], '')

    def test_dense_steps_and_layers_keep_every_block(self):
        def attention(*arguments):
            report = self.report('-o', 'clip.mp4', '--size', '128x128', '--attention', 'sparse', '--topk', '0.2',
                                 '--pv-threshold', '32', *arguments)
            return report['recipe'], report['attention']['layer_sparsity']

        recipe, usual = attention()
        self.assertEqual((recipe['dense_steps'], recipe['dense_layers']), (0, 0))
        self.assertTrue(all(share > 0 for share in usual), usual)
        recipe, layers = attention('--dense-layers', 1)
        self.assertEqual(recipe['dense_layers'], 1)
        self.assertEqual(layers[0], 0)
        self.assertGreater(layers[1], 0)
        recipe, layers = attention('--dense-steps', 1)  # dense in one of two steps
        self.assertEqual(recipe['dense_steps'], 1)
        for share, usually in zip(layers, usual):
            self.assertAlmostEqual(share, usually / 2)
        self.assertEqual(attention('--dense-steps', '50%'), (recipe, layers))
        self.assertEqual(attention('--dense-steps', 2)[1], [0, 0])

    def test_check_mode_reports_the_error_of_sparse_attention(self):
        def errors(topk):
            report = self.report('-o', 'clip.mp4', '--attention', 'check', '--size', '192x192', '--topk', topk, '--pv-threshold', 32, '--dropped', 'none')
            return report['attention']['mean_relative_l1'], report['attention']['max_relative_l1']

        mean, largest = errors(0.2)
        self.assertGreater(largest, mean)
        self.assertGreater(mean, 1e-3)
        self.assertLess(errors(1)[1], 1e-4)

    def test_latents_are_saved_decoded_and_used_as_a_start(self):
        usual = self.frames('a.safetensors', '--save-latents', 'latents.safetensors')
        saved = read_safetensors(self.folder / 'latents.safetensors')
        self.assertEqual(saved['latents'][1], FAMILY.latents)
        self.assertEqual(json.loads(saved['__metadata__']['recipe'])['prompt'], PROMPT)
        self.succeed(self.run_program('decode', 'latents.safetensors', '-m', MODEL, '-o', 'b.safetensors'))
        self.assertEqual(usual, floats(read_safetensors(self.folder / 'b.safetensors')['frames']))
        started = self.frames('c.safetensors', '--init-latents', 'latents.safetensors')
        self.assertNotEqual(usual, started)
        other = self.frames('d.safetensors', '--init-latents', 'latents.safetensors', '--seed', 1)
        (self.assertNotEqual if FAMILY.draws else self.assertEqual)(started, other)

    def test_warns_of_a_long_prompt(self):
        result = self.succeed(self.generate('-p', PROMPT * 4, '--max-sequence-length', 8, '--steps', 1, '-o', 'a.mp4'))
        self.assertIn('warning: the prompt was cut', result.stderr)

    def test_runs_in_half_precision(self):
        self.assertEqual(self.report('-o', 'clip.mp4', '--dtype', 'bf16', '--attention', 'full')['recipe']['dtype'], 'bf16')

    def test_recipe_records_tiling(self):
        self.assertEqual(self.report('-o', 'clip.mp4', '--vae-tiling', 'on')['recipe']['vae_tiling'], 'on')


class AnyFamily(CommandLineTest):
    """Tests that do not depend on the model."""

    def test_writes_every_kind_of_output(self):
        for name in ('clip.gif', 'clip.y4m', 'clip.safetensors', 'frames'):
            self.succeed(self.generate('-o', name))
        self.assertEqual(self.names(), ['clip.gif', 'clip.gif.json', 'clip.safetensors', 'clip.y4m', 'clip.y4m.json', 'frames', 'frames.json'])
        self.assertEqual(len(list((self.folder / 'frames').iterdir())), FAMILY.frames)
        dtype, shape, _ = read_safetensors(self.folder / 'clip.safetensors')['frames']
        self.assertEqual((dtype, shape), ('F32', [FAMILY.frames, 64, 64, 3]))

    def test_seed_is_42_unless_given(self):
        self.assertEqual(self.frames('a.safetensors'), self.frames('b.safetensors', '--seed', 42))

    def test_makes_a_video_with_the_default_model(self):
        report = json.loads(self.succeed(self.run_program('generate', '-p', PROMPT, '--steps', 2, '--device', 'cpu', '-o', 'clip.mp4', '--json')).stdout)
        self.assertTrue(report['model'].endswith('assets/tiny'), report['model'])
        self.assertEqual([report['output'][key] for key in ('width', 'height', 'frames', 'fps')], [256, 256, 33, 8])
        self.assertEqual(report['recipe']['topk'], 0.5)  # comes from configs/tiny.yaml, which matches this model
        self.assertEqual((report['preset']['name'], 'cache' in report), ('balanced', False))
        self.assertIn('balanced for fewer than 10 steps: 1 of 2 steps with every block, then topk 0.5; every step computed', report['preset']['text'])
        self.assertGreater(report['attention']['sparsity'], 0)
        self.assertEqual(len(report['attention']['layer_sparsity']), 6)

    def test_last_lines_name_and_explain_the_preset(self):
        tiny = ['generate', '-p', PROMPT, '--device', 'cpu', '--size', '64x64', '--frames', 9, '--steps', 10, '--quiet', '-o', 'a.mp4']
        hint = '; --preset exact for full attention'
        for arguments, line in (
                ([], r'balanced: 2 of 10 steps with every block, then topk 0\.5; forecast:0\.16:20%:1 computed \d+ of 10 steps' + hint),
                (['--topk', 0.7, '--cache', 'steps:4'], r'balanced, with --cache steps:4 and --topk 0\.7: 2 of 10 steps with every block, then topk 0\.7; steps:4 computed 4 of 10 steps' + hint),
                (['--preset', 'near'], r'near: every block, in 8 bits; forecast:0\.14:20%:1 computed \d+ of 10 steps' + hint),
                (['--attention', 'full'], 'exact: full attention; every step computed'),
                (['--preset', 'quality', '--cache', 0], 'near, with --cache 0: every block, in 8 bits; every step computed' + hint)):
            with self.subTest(arguments):
                first, _, third = self.succeed(self.run_program(*tiny, *arguments, '--verbose')).stdout.splitlines()
                self.assertRegex(first, rf'^a\.mp4: 1\.1 s of video, 64x64, made in [0-9.]+ s, preset {line.split(": ")[0]}$')
                self.assertRegex(third, f'^preset {line}$')
        self.assertEqual(len(self.succeed(self.run_program(*tiny[:-1], 'b.mp4', '--from', 'a.mp4')).stdout.splitlines()), 1)
        self.assertEqual(len(self.succeed(self.generate('-o', 'c.mp4')).stdout.splitlines()), 1)  # no line about presets, because this model has none
        lines = self.succeed(self.run_program(*tiny, '--count', 2)).stdout.splitlines()
        self.assertEqual([line.split(':')[0] for line in lines], ['a-1.mp4', 'a-2.mp4'])
        lines = self.succeed(self.run_program(*tiny, '--count', 2, '--verbose')).stdout.splitlines()
        self.assertEqual([line.split(':')[0] for line in lines if not line.startswith(' ')], ['a-1.mp4', 'a-2.mp4', 'preset balanced'])

    def test_report_says_what_replaced_dropped_blocks(self):
        attention = self.report('-o', 'clip.mp4', '--size', '192x192', '--topk', 0.3, '--dropped', 'mean', '--select', 'mass', '--cell', 32)['attention']
        self.assertEqual((attention['dropped'], attention['select'], attention['cell']), ('mean', 'mass', 32))
        self.assertAlmostEqual(attention['mean_share'], attention['mean_blocks'] / attention['total_blocks'])
        self.assertAlmostEqual(attention['sparsity'], 1 - (2 * attention['kept_blocks'] - attention['skipped_pv_blocks']) / (2 * attention['total_blocks']))
        attention = self.report('-o', 'clip.mp4', '--size', '192x192', '--topk', 0.3, '--dropped', 'none')['attention']
        self.assertEqual((attention['dropped'], attention['select']), ('none', 'mass'))
        for key in ('cell', 'mean_blocks', 'mean_share', 'predicted_error'):
            self.assertNotIn(key, attention)
        self.assertNotIn('dropped', self.report('-o', 'clip.mp4', '--attention', 'full')['attention'])

    def test_verbose_check_mode_prints_its_error(self):
        result = self.succeed(self.generate('-o', 'clip.mp4', '--verbose', '--size', '192x192', '--attention', 'check', '--topk', 0.3, '--dropped', 'none'))
        self.assertRegex(result.stdout, r'check attention, sparsity \d+\.\d%, relative L1 0\.\d{4},')

    def test_video_carries_its_recipe_unless_no_metadata_is_given(self):
        self.succeed(self.generate('-o', 'with.mp4', '--seed', 3))
        shown = json.loads(self.succeed(self.run_program('inspect', 'with.mp4', '--json')).stdout)
        self.assertEqual(shown['recipe']['seed'], 3)
        self.assertEqual(shown['recipe']['prompt'], PROMPT)
        self.assertIn('sparsity', shown['recipe'])
        self.succeed(self.generate('-o', 'without.mp4', '--no-metadata'))
        self.fail_with(self.run_program('inspect', 'without.mp4'), 2, 'without.mp4', 'recipe')
        self.succeed(self.generate('-o', 'without.gif', '--no-metadata'))
        self.assertNotIn('without.gif.json', self.names())
        self.succeed(self.generate('-o', 'again.gif'))
        self.assertIn('again.gif.json', self.names())
        self.succeed(self.generate('-o', 'again.gif', '--no-metadata'))
        self.assertNotIn('again.gif.json', self.names())  # the recipe of the replaced GIF is removed, too
        (self.folder / 'again.gif.json').write_text('{"mine": 1}')
        self.succeed(self.generate('-o', 'again.gif', '--no-metadata'))
        self.assertIn('again.gif.json', self.names())

    def test_writes_a_contact_sheet(self):
        self.succeed(self.generate('-o', 'clip.mp4', '--contact-sheet', 'sheet.png'))
        self.assertEqual((self.folder / 'sheet.png').read_bytes()[:8], b'\x89PNG\r\n\x1a\n')

    def test_previews_leave_the_video_as_it_is(self):
        def tiny(*arguments):
            return self.run_program('generate', '-p', 'a red circle', '--steps', 4, '--frames', 5, '--size', '64x64', '--device', 'cpu', *arguments)
        self.succeed(tiny('-o', 'plain.y4m', '--save-latents', 'plain.safetensors', '--no-metadata'))
        self.succeed(tiny('-o', 'seen.y4m', '--save-latents', 'seen.safetensors', '--no-metadata', '--preview', 'preview.png'))
        self.assertEqual((self.folder / 'plain.y4m').read_bytes(), (self.folder / 'seen.y4m').read_bytes())
        latents = [read_safetensors(self.folder / name)['latents'] for name in ('plain.safetensors', 'seen.safetensors')]
        self.assertEqual(*latents)
        picture = (self.folder / 'preview.png').read_bytes()
        self.assertEqual(picture[:8], b'\x89PNG\r\n\x1a\n')
        self.assertEqual(struct.unpack('>II', picture[16:24]), (8, 8))  # the preview has a pixel for each latent
        self.succeed(tiny('-o', 'clip.gif', '--preview', 'preview.gif', '--no-metadata', '--count', 2))
        for name in ('preview-1.gif', 'preview-2.gif'):
            self.assertEqual((self.folder / name).read_bytes()[:6], b'GIF89a')

    def test_warns_if_there_is_no_preview(self):
        result = self.generate('-o', 'clip.y4m', '--preview', 'preview.png')
        self.succeed(result)
        self.assertIn('preview has no effect', result.stderr)
        self.assertNotIn('preview.png', self.names())

    def test_keeps_latents_of_earlier_runs(self):
        (self.folder / 'clip.mp4.latents.safetensors').write_text('kept by hand')
        self.succeed(self.generate('-o', 'clip.mp4'))
        self.assertEqual(self.names(), ['clip.mp4', 'clip.mp4.latents.safetensors'])
        self.assertEqual((self.folder / 'clip.mp4.latents.safetensors').read_text(), 'kept by hand')

    def test_keeps_the_latents_that_it_starts_from(self):
        self.succeed(self.generate('-o', 'a.mp4', '--save-latents', 'clip.mp4.latents.safetensors'))
        before = (self.folder / 'clip.mp4.latents.safetensors').read_bytes()
        self.succeed(self.generate('-o', 'clip.mp4', '--init-latents', 'clip.mp4.latents.safetensors'))
        self.assertEqual(self.names(), ['a.mp4', 'clip.mp4', 'clip.mp4.latents.safetensors'])
        self.assertEqual((self.folder / 'clip.mp4.latents.safetensors').read_bytes(), before)

    def test_black_videos_warn_once_and_keep_their_latents(self):
        model = self.model_whose_videos_are(-8192)
        made = self.succeed(self.generate('-m', model, '--steps', 1, '-o', 'clip.mp4'))
        self.assertEqual(self.names(), ['clip.mp4', 'clip.mp4.latents.safetensors', 'model'])
        decoded = self.succeed(self.run_program('decode', 'clip.mp4.latents.safetensors', '-m', model, '-o', 'b.mp4'))
        for result in (made, decoded):
            self.assertEqual(result.stderr.count('warning: '), 1, result.stderr)
            self.assertIn('is black', result.stderr)
        self.assertIn('clip.mp4.latents.safetensors', made.stderr)

    def test_videos_of_nan_fail_and_keep_their_latents(self):
        model = self.model_whose_videos_are(float('nan'))
        words = ['frames hold NaN', "check that the checkpoint's weights are complete"]
        self.fail_with(self.generate('-m', model, '--steps', 1, '-o', 'clip.mp4'), 1, *words,
                       'sparsereel decode clip.mp4.latents.safetensors')
        self.fail_with(self.run_program('decode', 'clip.mp4.latents.safetensors', '-m', model, '-o', 'clip.mp4'), 1, *words)
        self.assertEqual(self.names(), ['clip.mp4.latents.safetensors', 'model'])

    def test_quiet_silences_the_encoder(self):
        for codec in ('libx264', 'libx265'):
            result = self.generate('--codec', codec, '-o', 'clip.mp4', '--quiet')
            if 'no such video encoder' not in result.stderr:
                self.assertEqual(self.succeed(result).stderr, '')

    def test_reads_a_prompt_file(self):
        (self.folder / 'prompt.txt').write_text('\ufeff' + PROMPT + '\r\n', newline='')
        self.succeed(self.run_program('generate', '-m', MODEL, '--prompt-file', 'prompt.txt', '--steps', 2, *FAMILY.size, '-o', 'a.safetensors'))
        read = floats(read_safetensors(self.folder / 'a.safetensors')['frames'])
        self.assertEqual(read, self.frames('b.safetensors'))

    def test_refuses_an_empty_prompt(self):
        for prompt in ('', ' \t\n', '\u3000\u00a0'):
            self.fail_with(self.generate('-p', prompt, '-o', 'a.mp4'), 2, '--prompt', 'is empty')
            (self.folder / 'my.yaml').write_text(json.dumps({'prompt': prompt}))
            self.fail_with(self.run_program('generate', '-m', MODEL, '--config', 'my.yaml', '-o', 'a.mp4'), 2, 'my.yaml', 'is empty')
        self.assertEqual(self.names(), ['my.yaml'])
        self.succeed(self.generate('-n', '', '--steps', 1, '-o', 'a.mp4'))

    def test_report_records_threads(self):
        self.assertEqual(self.report('-o', 'clip.mp4', '--threads', 1)['threads'], 1)

    def test_accepts_colons_and_spaces_in_names(self):
        self.succeed(self.generate('-o', 'a: b c.mp4'))
        self.assertEqual(self.names(), ['a: b c.mp4'])


class RandomWeights(CommandLineTest):
    def video(self, name, *arguments):
        return self.run_program('generate', '--random-weights', ROOT / 'configs' / 'tiny.yaml', '--size', '64x64', '--frames', 9, '--steps', 1,
                                '--device', 'cpu', '--quiet', '-o', name, *arguments)

    def test_make_the_same_video_without_a_prompt(self):
        report = json.loads(self.succeed(self.video('a.y4m', '--json')).stdout)
        self.assertEqual((report['recipe']['model'], report['recipe']['prompt']), ('random weights of tiny.yaml', ''))
        self.assertEqual(set(report['seconds']['loads']), {'text_encoder', 'transformer', 'vae'})
        self.succeed(self.video('b.y4m'))
        self.succeed(self.video('c.y4m', '-p', 'other tokens'))
        a, b, c = ((self.folder / name).read_bytes() for name in ('a.y4m', 'b.y4m', 'c.y4m'))
        self.assertEqual(a, b)
        self.assertNotEqual(a, c)

    def test_decode_latents_with_the_same_weights(self):
        self.succeed(self.video('a.y4m', '--save-latents', 'a.safetensors'))
        self.succeed(self.run_program('decode', 'a.safetensors', '--random-weights', ROOT / 'configs' / 'tiny.yaml', '--device', 'cpu', '-o', 'b.y4m'))
        self.assertEqual((self.folder / 'a.y4m').read_bytes(), (self.folder / 'b.y4m').read_bytes())

    def test_config_show_names_the_file(self):
        out = self.succeed(self.run_program('config', 'show', '--random-weights', ROOT / 'configs' / 'cogvideox-5b.yaml', '--device', 'cpu')).stdout
        self.assertIn('cogvideox-5b.yaml"', out)
        self.assertIn('random_weights: ', out)
        self.assertIn('scheduler: "CogVideoXDPMScheduler"', out)

    def test_wrong_config_files_are_refused(self):
        (self.folder / 'a.yaml').write_text('match: {class: CogVideoXTransformer3DModel}\narchitecture:\n  transformer: {num_layers: two}\n  vae: {}\n'
                                            '  text_encoder: {feed_forward_proj: gated-gelu}\n  scheduler: {_class_name: CogVideoXDDIMScheduler}\n')
        self.fail_with(self.run_program('generate', '--random-weights', 'a.yaml', '-o', 'a.y4m'), 2, 'a.yaml: architecture.transformer', 'num_layers')
        self.fail_with(self.run_program('generate', '--random-weights', 'b.yaml', '-o', 'a.y4m'), 2, 'b.yaml')
        (self.folder / 'a.yaml').write_text('match: {class: WanTransformer3DModel}\narchitecture:\n  boundary_ratio: {high: 0.5}\n')
        self.fail_with(self.run_program('generate', '--random-weights', 'a.yaml', '-o', 'a.y4m'), 2, 'a.yaml: architecture.boundary_ratio is not a single value')
        self.assertEqual(self.names(), ['a.yaml'])

    def test_components_that_do_not_fit_together_are_named(self):
        text = (ROOT / 'configs' / 'tiny.yaml').read_text()
        (self.folder / 'a.yaml').write_text(text.replace('latent_channels: 8', 'latent_channels: 16'))
        self.fail_with(self.run_program('generate', '--random-weights', 'a.yaml', '-o', 'a.y4m'), 2, 'a.yaml: architecture.vae: latent_channels 16', 'out_channels 8')

    def test_outputs_never_replace_the_architecture(self):
        text = (ROOT / 'configs' / 'tiny.yaml').read_text()
        (self.folder / 'a.yaml').write_text(text)
        for option in ('--report', '--save-latents'):
            self.fail_with(self.run_program('generate', '--random-weights', 'a.yaml', '-o', 'a.y4m', option, 'a.yaml'), 2, '--random-weights', 'same file')
        self.assertEqual((self.folder / 'a.yaml').read_text(), text)


if __name__ == '__main__':
    unittest.main()
