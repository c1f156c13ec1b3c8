"""Tests `--lora`: how LoRAs change videos, where the option may be given, what recipes and reports say about LoRAs, and what is refused."""
import json
import shutil
import struct
import unittest

from support import MODEL, PROMPT, ROOT, CommandLineTest, read_safetensors, write_safetensors

FILES = ROOT / 'tests' / 'parity' / 'data' / 'lora'
STYLE, OTHER = FILES / 'metadata.safetensors', FILES / 'plain.safetensors'
ONE = ['--frames', 1, '--steps', 1, '--quiet']


class Lora(CommandLineTest):
    def latents(self, *arguments):
        """Runs `generate` for one frame with these arguments. Returns the latents after the last step."""
        self.succeed(self.generate(*ONE, '-o', 'a.gif', '--save-latents', 'a.safetensors', *arguments))
        return read_safetensors(self.folder / 'a.safetensors')['latents']

    def recipe(self, name):
        return json.loads(self.succeed(self.run_program('inspect', name, '--json')).stdout)['recipe']

    def changed(self, file):
        """Changes one number in a LoRA file, but no layer name or shape."""
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)

    def test_scale_of_zero_changes_nothing(self):
        none = self.latents()
        self.assertNotEqual(self.latents('--lora', STYLE), none)
        self.assertEqual(self.latents('--lora', f'{STYLE}:0'), none)
        self.assertEqual(self.latents('--lora', f'{STYLE}:0', '--lora', f'{STYLE}:-0.0,{OTHER}:0'), none)
        self.assertEqual(self.latents('--lora', ''), none)

    def test_accepts_several_one_by_one_or_in_a_list(self):
        both = self.latents('--lora', STYLE, '--lora', f'{OTHER}:-0.5')
        self.assertNotEqual(both, self.latents('--lora', STYLE))
        self.assertEqual(self.latents('--lora', f'{STYLE}:1,{OTHER}:-0.5'), both)
        (self.folder / 'my.yaml').write_text(f'lora: {STYLE},{OTHER}:-0.5\nsteps: 1\n')
        self.assertEqual(self.latents('--config', 'my.yaml'), both)
        self.assertEqual(self.latents('--config', 'my.yaml', '--lora', STYLE), self.latents('--lora', STYLE))

    def test_applies_layers_of_the_text_encoder(self):
        self.assertNotEqual(self.latents('--lora', FILES / 'text.safetensors'), self.latents())
        self.assertEqual(self.latents('--lora', FILES / 'kohya.safetensors'), self.latents('--lora', STYLE))

    def test_accepts_all_names_of_text_encoder_layers(self):
        source = (FILES / 'text.safetensors').read_bytes()
        size = int.from_bytes(source[:8], 'little')
        header, data = json.loads(source[8:8 + size]), source[8 + size:]
        expected = self.latents('--lora', FILES / 'text.safetensors')

        def kohya(layer, end):
            return f'lora_te_{layer.replace(".", "_")}.{end}'
        for spell in (kohya, *(lambda layer, end, prefix=prefix: f'{prefix}{layer}.{end}' for prefix in ('text_encoders.t5xxl.transformer.', 'text_encoders.'))):
            renamed = {name if name == '__metadata__' else spell(*name.removeprefix('text_encoder.').replace('.lora_', '|lora_').split('|')): entry for name, entry in header.items()}
            text = json.dumps(renamed).encode()
            (self.folder / 'renamed.safetensors').write_bytes(len(text).to_bytes(8, 'little') + text + data)
            self.assertEqual(self.latents('--lora', 'renamed.safetensors', '--strict-lora'), expected)

    def test_takes_alpha_from_the_peft_config_beside_the_file(self):
        """STYLE holds its alphas in its metadata. This test moves them to adapter_config.json beside the file, where peft stores them. The result must be the same."""
        plain = read_safetensors(STYLE)
        metadata = json.loads(plain.pop('__metadata__')['lora_adapter_metadata'])
        settings = {name.removeprefix('transformer.'): value for name, value in metadata.items() if name.startswith('transformer.')}
        (self.folder / 'peft').mkdir()
        write_safetensors(self.folder / 'peft' / 'adapter_model.safetensors', {name.replace('transformer.', 'base_model.model.', 1): tensor for name, tensor in plain.items()})
        config = self.folder / 'peft' / 'adapter_config.json'
        config.write_text(json.dumps(settings))
        self.assertEqual(self.latents('--lora', 'peft/adapter_model.safetensors'), self.latents('--lora', STYLE))
        config.write_text(json.dumps(settings | {'lora_alpha': 'much', 'alpha_pattern': {}}))
        self.fail_with(self.generate('-o', 'b.gif', '--lora', 'peft/adapter_model.safetensors'), 2, 'peft/adapter_config.json: lora_alpha is "much", not a finite 32-bit number')
        config.unlink()
        result = self.succeed(self.generate(*ONE, '-o', 'c.gif', '--lora', 'peft/adapter_model.safetensors'))
        self.assertIn("has PEFT's names but no alpha", result.stderr)

    def test_accepts_names_with_commas_and_colons(self):
        style = self.latents('--lora', STYLE)
        for name in ('ink, wash.safetensors', 'style:v2.safetensors'):
            shutil.copy(STYLE, self.folder / name)
            self.assertEqual(self.latents('--lora', name), style)
        both = self.latents('--lora', f'{STYLE}:0.5', '--lora', OTHER)
        self.assertEqual(self.latents('--lora', f'ink, wash.safetensors:0.5,{OTHER}'), both)
        self.assertEqual(self.latents('--lora', 'style:v2.safetensors:0.5', '--lora', OTHER), both)

    def test_adds_layers_to_bf16_weights(self):
        bf16 = ('--dtype', 'bf16', '--attention', 'full')
        self.assertNotEqual(self.latents('--lora', STYLE, *bf16), self.latents(*bf16))
        self.assertEqual(self.latents('--lora', f'{STYLE}:0', *bf16), self.latents(*bf16))

    def test_recipes_record_files_hashes_and_scales(self):
        style = shutil.copy(STYLE, self.folder / 'style.safetensors')
        self.succeed(self.generate(*ONE, '-o', 'a.mp4', '--lora', f'style.safetensors:0.8,{OTHER}', '--report', 'report.json'))
        recipe = self.recipe('a.mp4')
        self.assertEqual(recipe['lora'], 'style.safetensors:0.8,plain.safetensors')
        self.assertEqual([len(each) for each in recipe['lora_sha256'].split(',')], [64, 64])
        self.assertEqual(json.loads((self.folder / 'report.json').read_text())['recipe']['lora'], recipe['lora'])
        again = ('generate', '--quiet', '--from', 'a.mp4', '-m', MODEL, '-o', 'b.mp4')
        self.fail_with(self.run_program(*again), 2, '--from a.mp4', 'style.safetensors:0.8,plain.safetensors', '--lora')
        result = self.succeed(self.run_program(*again, '--lora', f'style.safetensors:0.8,{OTHER}'))
        self.assertEqual(result.stderr, '')
        self.assertEqual((self.folder / 'b.mp4').read_bytes(), (self.folder / 'a.mp4').read_bytes())
        other_scale = self.succeed(self.run_program(*again[:-1], 'c.mp4', '--lora', f'style.safetensors,{OTHER}'))
        self.assertIn('a.mp4 was made with style.safetensors:0.8,plain.safetensors', other_scale.stderr)
        self.changed(style)
        changed = self.succeed(self.run_program(*again[:-1], 'd.mp4', '--lora', f'style.safetensors:0.8,{OTHER}'))
        self.assertIn('the LoRA is not the one that a.mp4 was made with', changed.stderr)

    def test_config_show_prints_values_that_can_be_read_again(self):
        shown = self.succeed(self.run_program('config', 'show', '-m', MODEL, '--lora', f'{STYLE}:0.5')).stdout
        self.assertIn(f'lora: "{STYLE}:0.5"', shown)
        (self.folder / 'shown.yaml').write_text(shown)
        self.assertIn(f'lora: "{STYLE}:0.5"', self.succeed(self.run_program('config', 'show', '--config', 'shown.yaml')).stdout)

    def test_rows_of_a_set_have_separate_loras(self):
        (self.folder / 'set.jsonl').write_text('\n'.join(json.dumps({'prompt': PROMPT, **row}) for row in (
            {'output': 'none.mp4', 'seed': 42}, {'output': 'style.mp4', 'seed': 42, 'lora': 'style.safetensors:0.8'},
            {'output': 'missing.mp4', 'lora': 'missing.safetensors'})))
        style = shutil.copy(STYLE, self.folder / 'style.safetensors')
        batch = ('batch', 'set.jsonl', '-o', 'out', '-m', MODEL, '--device', 'cpu', *ONE)
        self.assertIn('missing.safetensors', self.run_program(*batch).stderr)
        for name, lora in (('none', []), ('style', ['--lora', 'style.safetensors:0.8'])):
            self.succeed(self.generate(*ONE, '-o', f'{name}.mp4', *lora))
            self.assertEqual((self.folder / f'{name}.mp4').read_bytes(), (self.folder / 'out' / f'{name}.mp4').read_bytes(), name)
        self.assertIn('0 rendered, 2 finished', self.run_program(*batch).stderr)
        self.changed(style)
        self.assertIn('1 rendered, 1 finished', self.run_program(*batch).stderr, 'a changed LoRA is another video')

    def test_warns_of_layers_that_the_model_does_not_have(self):
        size = int.from_bytes(STYLE.read_bytes()[:8], 'little')
        header, data = json.loads(STYLE.read_bytes()[8:8 + size]), STYLE.read_bytes()[8 + size:]
        image = {'dtype': 'F32', 'shape': [2], 'data_offsets': [len(data), len(data) + 8]}
        text = json.dumps({**header, 'transformer.img_emb.proj.1.diff_b': image}).encode()
        (self.folder / 'image.safetensors').write_bytes(len(text).to_bytes(8, 'little') + text + data + bytes(8))
        words = 'image.safetensors: left out: 1 layer that this model does not have: "transformer.img_emb.proj.1.diff_b"'
        result = self.generate(*ONE, '-o', 'a.gif', '--save-latents', 'a.safetensors', '--report', 'report.json', '--lora', 'image.safetensors')
        self.warn_with(self.succeed(result), words)
        self.assertEqual(json.loads((self.folder / 'report.json').read_text())['warnings'], [words])
        self.assertEqual(read_safetensors(self.folder / 'a.safetensors')['latents'], self.latents('--lora', STYLE))
        self.fail_with(self.generate('-o', 'b.gif', '--lora', 'image.safetensors', '--strict-lora'), 2, 'does not fit this model', '1 layer')
        self.succeed(self.generate(*ONE, '-o', 'b.gif', '--lora', STYLE, '--strict-lora'))

    def test_refuses_impossible_loras_before_it_makes_anything(self):
        wan = FILES.parent / 'wan' / 'lora' / 'kohya.safetensors'
        for lora, words in ((wan, ['it seems to be made for Wan, but this checkpoint is CogVideoX', '20 layers']),
                            ('none.safetensors', ['none.safetensors', 'No such file']),
                            (f'{STYLE}:x', ['--lora', 'not a finite 32-bit number']),
                            (f'{STYLE}@high', ['--lora', 'one transformer'])):
            with self.subTest(lora):
                self.fail_with(self.generate('-o', 'a.mp4', '--lora', lora), 2, *words)
                self.assertFalse((self.folder / 'a.mp4').exists())
        self.fail_with(self.run_program('generate', '--random-weights', ROOT / 'configs' / 'tiny.yaml', '--lora', STYLE), 2, '--lora',
                       '--random-weights')
        copy = shutil.copy(STYLE, self.folder / 'a.safetensors')
        self.fail_with(self.generate('-o', 'a.safetensors', '--lora', copy), 2, '--lora', '--output', 'same file')
        for value, words in (('a.safetensors:x', ['a.safetensors:x', 'not a finite 32-bit number']), (f'{STYLE}:0.5,none.safetensors:2', ['lora: none.safetensors: cannot be opened']),
                             (wan, [f'lora: {wan}: it seems to be made for Wan'])):
            (self.folder / 'my.yaml').write_text(f'steps: 1\nlora: {value}\n')
            self.fail_with(self.generate('-o', 'a.mp4', '--config', 'my.yaml'), 2, 'my.yaml:2:7: lora', *words)

    def test_names_the_lora_that_causes_nan(self):
        for scale in ('1e300', 'nan', '-inf', '1e39'):
            self.fail_with(self.generate('-o', 'a.mp4', '--lora', f'{STYLE}:{scale}'), 2, f'--lora {STYLE}:{scale}', 'not a finite 32-bit number')
        self.fail_with(self.generate('-o', 'a.mp4', *ONE, '--lora', f'{STYLE}:3e38'), 2, str(STYLE), 'scale', 'transformer_blocks.')
        broken = shutil.copy(STYLE, self.folder / 'broken.safetensors')
        size, = struct.unpack('<Q', broken.read_bytes()[:8])
        header = json.loads(broken.read_bytes()[8:8 + size])
        name = next(name for name, entry in header.items() if name.endswith('lora_B.weight'))
        end = 8 + size + header[name]['data_offsets'][1]
        broken.write_bytes(broken.read_bytes()[:end - 2] + b'\xff\x7f' + broken.read_bytes()[end:])  # these bytes are NaN in F32, F16 and BF16
        self.fail_with(self.generate('-o', 'a.mp4', *ONE, '--lora', broken), 2, 'broken.safetensors', f'"{name}" holds NaN or Inf')
        self.assertEqual(self.names(), ['broken.safetensors'])

    def test_recipe_records_noise_levels_of_few_steps(self):
        flow = ['-m', FILES.parent / 'wan' / 'pipeline', '--device', 'cpu', '--quiet']
        first = ['generate', *flow, '-p', PROMPT, '--size', '64x64', '--frames', 1, '--cfg-scale', 1, '--scheduler', 'euler', '--sigmas']
        self.succeed(self.run_program(*first, '1, 0.5', '--flow-shift', 5, '-o', 'a.mp4'))
        recipe = self.recipe('a.mp4')
        self.assertEqual((recipe['sigmas'], recipe['flow_shift'], recipe.get('steps')), ('1.0,0.5', 5, None))
        self.succeed(self.run_program('generate', *flow, '--from', 'a.mp4', '-o', 'b.mp4'))
        self.assertEqual((self.folder / 'b.mp4').read_bytes(), (self.folder / 'a.mp4').read_bytes())
        self.succeed(self.run_program('generate', *flow, '--from', 'a.mp4', '--steps', 2, '-o', 'c.mp4'))
        self.assertNotIn('sigmas', self.recipe('c.mp4'))
        for levels, words in (('0.5,1', ['--sigmas', 'do not fall']), ('2', ['--sigmas']), ('a', ['--sigmas', 'a list of numbers'])):
            self.fail_with(self.run_program(*first, levels), 2, *words)
        self.fail_with(self.run_program(*first, '1', '--steps', 1), 2, '--sigmas', '--steps')
        idle = self.run_program('generate', '-m', MODEL, '-p', PROMPT, '--device', 'cpu', '--sigmas', 1, '--frames', 1, '--size', '32x32', '-o', 'd.gif')
        self.assertIn('--sigmas 1 has no effect', self.succeed(idle).stderr)

    def test_inspect_names_the_model_of_a_lora(self):
        text = self.succeed(self.run_program('inspect', STYLE)).stdout
        for words in ('LoRA', 'CogVideoX', 'diffusers', 'inner width 32', '2 blocks', 'rank 4', '1.5', '0.75', 'transformer_blocks.*.attn1.to_q'):
            self.assertIn(words, text)
        lora = json.loads(self.succeed(self.run_program('inspect', FILES.parent / 'wan' / 'lora' / 'kohya.safetensors', '--json')).stdout)['lora']
        self.assertEqual((lora['family'], lora['naming'], lora['layers'], lora['ranks'], lora['scales']), ('Wan', 'kohya', 20, [2], [0.5]))
        self.assertEqual(lora['targets']['blocks_*_self_attn_q'], 2)
        copy = shutil.copy(OTHER, self.folder / 'wan_high_noise.safetensors')
        self.assertEqual(json.loads(self.succeed(self.run_program('inspect', copy, '--json')).stdout)['lora']['expert'], 'high')

    def test_inspect_counts_other_tensors(self):
        tensors = read_safetensors(STYLE)
        del tensors['__metadata__']
        more = write_safetensors(self.folder / 'more.safetensors', tensors | {'step': ('F32', [1], bytes(4))})
        self.assertIn('1 tensor outside the LoRA', self.succeed(self.run_program('inspect', more)).stdout)
        self.assertNotIn('outside the LoRA', self.succeed(self.run_program('inspect', STYLE)).stdout)
        for file, count in ((more, 1), (STYLE, 0)):
            self.assertEqual(json.loads(self.succeed(self.run_program('inspect', file, '--json')).stdout)['lora']['other_tensors'], count)

    def test_inspect_describes_files_that_are_not_loras(self):
        self.latents()
        self.assertNotIn('LoRA', self.succeed(self.run_program('inspect', 'a.safetensors')).stdout)
        broken = self.folder / 'dora.safetensors'
        broken.write_bytes(STYLE.read_bytes().replace(b'lora_A.weight', b'hada_w1_a.xyz'))
        shown = self.succeed(self.run_program('inspect', broken)).stdout
        self.assertIn('cannot be used', shown)
        self.assertIn('LoHa', shown)


class Experts(CommandLineTest):
    """Tests a model of two transformers, with one LoRA for each transformer."""
    model = FILES.parent / 'wan' / 'pipeline_two_experts'

    def frames_with(self, *loras, output='a.mp4'):
        options = [word for lora in loras for word in ('--lora', lora)]
        result = self.succeed(self.run_program('generate', '-m', self.model, '-p', PROMPT, '--size', '64x64', '--frames', 5, '--steps', 4, '--device', 'cpu', '--quiet',
                                               '-o', output, *options))
        return (self.folder / output).read_bytes(), result.stderr

    def test_pair_of_loras_is_matched_with_the_experts_by_name(self):
        for high, low in (('a_HIGH_fp16', 'a_LOW_fp16'), ('style-high', 'style-low'), ('high_noise_model/lora', 'low_noise_model/lora')):
            for name, source in ((high, 'kohya'), (low, 'original')):
                (self.folder / name).parent.mkdir(exist_ok=True)
                shutil.copy(self.model.parent / 'lora' / f'{source}.safetensors', self.folder / f'{name}.safetensors')
            high, low = f'{high}.safetensors', f'{low}.safetensors'
            wanted = self.frames_with(f'{high}@high', f'{low}@low')[0]
            made, said = self.frames_with(high, low)
            self.assertEqual(made, wanted)
            self.assertIn(f'{high} to the transformer for high noise, {low} to the transformer for low noise', said)
            recipe = json.loads(self.succeed(self.run_program('inspect', 'a.mp4', '--json')).stdout)['recipe']
            self.assertIn('@high,', recipe['lora'])
            self.assertTrue(recipe['lora'].endswith('@low'))
            self.assertNotEqual(self.frames_with(f'{high}@low', f'{low}@high')[0], wanted)


if __name__ == '__main__':
    unittest.main()
