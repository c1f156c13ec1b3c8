"""Tests Wan: models of two transformers, and faulty model folders. The error must name the file and the field before a step is made."""
import itertools
import json
import math
import os
import re
import shutil
import struct
import unittest
from pathlib import Path

import quantized
from published import authors_name
from support import FAMILY, MODEL, PROMPT, CommandLineTest, floats, read_safetensors, read_weights, write_safetensors

PIPELINES = Path(MODEL).parent
TWO = PIPELINES / 'pipeline_two_experts'
LATENTS_OF_16_PIXELS = PIPELINES / 'pipeline_5b'


class Wan(CommandLineTest):
    def test_second_transformer_has_a_separate_guidance_scale(self):
        usual, same, other = (self.frames(f'{name}.safetensors', '-m', TWO, '--steps', 4, *scale)
                              for name, scale in (('a', []), ('b', ['--guidance-scale-2', 5]), ('c', ['--guidance-scale-2', 2])))
        self.assertEqual(usual, same)
        self.assertNotEqual(usual, other)
        self.warn_with(self.generate('--cfg-scale-2', 2, '-o', 'd.y4m'), '--cfg-scale-2 2 has no effect for a model with one transformer')

    def test_accepts_the_option_names_of_the_authors_program(self):
        usual = ['--steps', 3, '--flow-shift', 5, '--cfg-scale', 4, '--seed', 7]
        theirs = ['--sample_steps', 3, '--sample_shift', 5, '--sample_guide_scale', 4, '--base_seed', 7, '--frame_num', 9, '--size', '64*64']
        made = []
        for name, arguments in (('a', [*usual, *FAMILY.size]), ('b', theirs)):
            self.succeed(self.run_program('generate', '-m', MODEL, '-p', PROMPT, '--device', 'cpu', '-o', f'{name}.y4m', *arguments))
            made.append((self.folder / f'{name}.y4m').read_bytes())
        self.assertEqual(*made)

    def test_inspect_names_the_version(self):
        for model, transformers, pixels in ((MODEL, 1, 8), (TWO, 2, 8), (LATENTS_OF_16_PIXELS, 1, 16)):
            summary = json.loads(self.succeed(self.run_program('inspect', model, '--json')).stdout)
            self.assertEqual(sum('transformer' in part['name'] for part in summary['components']), transformers)
            self.assertEqual((summary['family'], summary['frames']), ('Wan', 81 if pixels == 8 else 121))

    def test_bench_pipeline_measures_every_stage(self):
        report = json.loads(self.succeed(self.run_program('bench', 'pipeline', '-m', TWO, '--device', 'cpu', '--steps', 2, *FAMILY.size, '--modes', 'full,sparse',
                                                          '--warmup', 0, '--quiet', '--json')).stdout)
        self.assertEqual([row['stage'] for row in report['rows'] if row['stage'] != 'encode'],
                         ['load text_encoder', 'text', 'load transformer', 'step', 'step', 'load vae', 'decode'])

    def test_warns_if_no_layer_can_use_eight_bits(self):
        narrow = {'transformer': {'num_attention_heads': 1, 'attention_head_dim': 24, 'ffn_dim': 24, 'num_layers': 1, 'text_dim': 24, 'freq_dim': 16},
                  'vae': {'base_dim': 4, 'z_dim': 16, 'dim_mult': [1, 2, 2, 2], 'num_res_blocks': 1},
                  'text_encoder': {'model_type': 'umt5', 'vocab_size': 99, 'd_model': 24, 'd_kv': 12, 'd_ff': 24, 'num_layers': 1, 'num_heads': 2, 'feed_forward_proj': 'gated-gelu'},
                  'scheduler': {'_class_name': 'UniPCMultistepScheduler', 'prediction_type': 'flow_prediction', 'use_flow_sigmas': True}}
        (self.folder / 'narrow.yaml').write_text(json.dumps({'match': {'class': 'WanTransformer3DModel'}, 'architecture': narrow}))
        usual = ['--random-weights', 'narrow.yaml', '--device', 'cpu', '--steps', 1, *FAMILY.size]
        warnings = ['--weights fp8 has no effect for a transformer whose blocks have no layer with sizes that are multiples of 16',
                    '--text-weights fp8 has no effect for a text encoder without a layer whose sizes are multiples of 16']
        both = ['--weights', 'fp8', '--text-weights', 'fp8']
        self.warn_with(self.run_program('generate', *usual, '-o', 'a.gif'))
        self.warn_with(self.run_program('generate', *usual, *both, '-o', 'b.gif'), *warnings)
        self.assertEqual((self.folder / 'a.gif').read_bytes(), (self.folder / 'b.gif').read_bytes())
        self.assertEqual(*(json.loads(self.succeed(self.run_program('inspect', name, '--json')).stdout)['recipe'] for name in ('a.gif', 'b.gif')))
        self.warn_with(self.run_program('generate', *usual, '--weights', 'auto', '-o', 'c.gif'))
        (self.folder / 'set.txt').write_text('a dog\na cat\n')
        self.warn_with(self.run_program('batch', 'set.txt', *usual, *both, '-o', 'out', '--format', 'gif', '--quiet'), *[f'set.txt:1 and 1 more row: {text}' for text in warnings])
        for command in (['bench', 'quality', 'set.txt', '--timed-steps', 0], ['bench', 'pipeline', '--warmup', 0, '--no-decode']):
            result = self.run_program(*command, *both, *(usual if 'quality' in command else usual[:4] + FAMILY.size + ['--steps', 1]), '--quiet', '--json')
            self.warn_with(result, *warnings)
            report = json.loads(result.stdout)
            self.assertEqual((report['warnings'], {'weights', 'text_weights'} & report['settings'].keys()), (warnings, set()))

    def test_tune_makes_a_profile_that_generate_uses(self):
        self.succeed(self.run_program('tune', '-m', MODEL, '-p', PROMPT, '--device', 'cpu', '--size', '96x96', '--frames', 9, '--steps', 1, '--samples', 1, '--videos', 0,
                                      '--quiet', '-o', 'p.yaml'))
        report = self.report('--profile', 'p.yaml', '--size', '96x96', '--steps', 1, '-o', 'a.y4m')
        self.assertEqual(report['recipe']['profile'], 'p.yaml')

    def test_recipe_makes_the_same_video(self):
        first = self.report('-m', TWO, '--guidance-scale-2', 2, '--flow-shift', 4, '--scheduler', 'euler', '--threads', 1, '-o', 'a.mp4')
        again = self.report('-m', TWO, '--from', 'a.mp4', '--steps', 2, '--threads', 1, '-o', 'b.mp4')
        self.assertEqual(again['recipe'], first['recipe'])
        self.assertEqual((self.folder / 'a.mp4').read_bytes(), (self.folder / 'b.mp4').read_bytes())


class BadFolders(CommandLineTest):
    def model(self, source=MODEL):
        shutil.rmtree(self.folder / 'model', ignore_errors=True)
        return Path(shutil.copytree(source, self.folder / 'model'))

    def edit(self, file, **changes):
        config = json.loads(file.read_text()) | changes
        file.write_text(json.dumps({key: value for key, value in config.items() if value != 'none'}))

    def refused(self, model, *words):
        self.fail_with(self.generate('-m', model, '-o', 'clip.mp4'), 2, *words)
        self.assertEqual(self.names(), ['model'])

    def test_names_the_missing_transformer_of_two(self):
        model = self.model(TWO)
        for file in (model / 'transformer_2').glob('*.safetensors*'):
            file.unlink()
        self.refused(model, 'model/transformer_2: no diffusion_pytorch_model.safetensors', 'download')
        shutil.rmtree(model / 'transformer_2')
        self.refused(model, 'model/transformer_2/config.json: no such file', 'download')
        self.edit(model / 'model_index.json', transformer_2=[None, None])
        self.refused(model, 'model_index.json: boundary_ratio is 0.75, but transformer_2 is missing', 'a model of two transformers has boundary_ratio and transformer_2')

    def test_refuses_an_impossible_boundary(self):
        model = self.model(TWO)
        for value, words in ((0, 'boundary_ratio is 0, which is not a number between 0 and 1'), (1, 'boundary_ratio is 1,'), (875, 'boundary_ratio is 875'),
                             ('high', 'boundary_ratio is "high"'), (True, 'boundary_ratio is true'), ('none', 'transformer_2 is given, but boundary_ratio is missing')):
            with self.subTest(value):
                self.edit(model / 'model_index.json', boundary_ratio=value)
                self.refused(model, f'model_index.json: {words}', 'a model of two transformers has')

    def test_refuses_the_vae_of_another_version(self):
        model = self.model(LATENTS_OF_16_PIXELS)
        shutil.rmtree(model / 'vae')
        shutil.copytree(Path(MODEL) / 'vae', model / 'vae')
        self.refused(model, 'model_index.json: expand_timesteps is true, but is_residual of the vae is false', 'one checkpoint')
        model = self.model()
        self.edit(model / 'vae' / 'config.json', z_dim=2, latents_mean=[0, 0], latents_std=[1, 1])
        self.refused(model, "vae/config.json: z_dim 2 does not fit the transformer's out_channels 4", 'one checkpoint')
        model = self.model()
        config = (model / 'vae' / 'config.json').read_text()
        shutil.rmtree(model / 'vae')
        shutil.copytree(LATENTS_OF_16_PIXELS / 'vae', model / 'vae')
        (model / 'vae' / 'config.json').write_text(config)
        self.refused(model, 'model/vae: the weights do not fit', 'decoder')

    def test_refuses_the_text_encoder_of_another_model(self):
        model = self.model()
        shutil.rmtree(model / 'text_encoder')
        shutil.copytree(PIPELINES.parent / 'pipeline' / 'text_encoder', model / 'text_encoder')
        self.refused(model, 'text_encoder/config.json: model_type', '"t5" is not supported', 'umt5')
        self.edit(model / 'text_encoder' / 'config.json', model_type='umt5')
        self.refused(model, 'model/text_encoder: the weights do not fit', 'relative_attention_bias')
        model = self.model()
        self.edit(model / 'model_index.json', text_encoder=['transformers', 'T5EncoderModel'])
        self.refused(model, 'model_index.json: text_encoder: "T5EncoderModel" is not supported', 'UMT5EncoderModel')
        model = self.model()
        self.edit(model / 'text_encoder' / 'config.json', d_model=48)
        self.refused(model, "text_encoder/config.json: d_model 48 does not fit the transformer's text_dim 32", 'one checkpoint')

    def test_names_missing_and_truncated_shards(self):
        first, second = (f'diffusion_pytorch_model-0000{number}-of-00002.safetensors' for number in (1, 2))
        model = self.model()
        (model / 'transformer' / second).unlink()
        self.refused(model, 'diffusion_pytorch_model.safetensors.index.json', 'missing shards (1)', second, 'download')
        model = self.model(TWO)
        for size, words in ((60000, ['data_offsets', 'end outside of the file']), (5, ['truncated: 5 bytes']), (0, [])):
            os.truncate(model / 'transformer_2' / first, size)
            self.refused(model, f'transformer_2/{first}: ', *words, 'download')

    def test_names_the_missing_tokenizer(self):
        model = self.model()
        (model / 'tokenizer' / 'spiece.model').unlink()
        wanted = ['--tokenizer is needed', 'model/tokenizer', "google/umt5-xxl's spiece.model"]
        self.refused(model, *wanted)
        shutil.rmtree(model / 'tokenizer')
        self.refused(model, *wanted)
        self.edit(model / 'model_index.json', tokenizer='none')
        self.refused(model, 'model_index.json: names no component "tokenizer"', 'download')


class OneFile(CommandLineTest):
    """Tests --transformer with one file that replaces the folder's transformer. The file's tensors have the authors' or diffusers' names."""

    def file(self, name, change=lambda tensors: None, spell=authors_name, folder=Path(MODEL) / 'transformer'):
        tensors = {spell(each): tensor for each, tensor in read_weights(folder).items()}
        change(tensors)
        return write_safetensors(self.folder / name, tensors)

    def video(self, *arguments):
        """Runs `generate`. Returns the frames and the latents after the last step."""
        frames = self.frames('a.safetensors', '--save-latents', 'latents.safetensors', *arguments)
        return frames, read_safetensors(self.folder / 'latents.safetensors')['latents']

    @staticmethod
    def other_values(tensors):
        dtype, shape, data = tensors['head.head.bias']
        tensors['head.head.bias'] = (dtype, shape, struct.pack('<e', 0.5) * (len(data) // 2))

    @staticmethod
    def folded(tensors):
        """Merges dimensions so that no tensor has more than four, as in GGUF files."""
        for name in tensors:
            dtype, shape, data = tensors[name]
            if name == 'patch_embedding.weight':
                shape = [shape[0] * shape[1], *shape[2:]]
            if name.endswith('modulation'):
                shape = shape[1:]
            tensors[name] = (dtype, shape, data)
        tensors['freqs'] = ('F32', [2], bytes(8))

    def test_makes_the_same_frames_as_the_folder(self):
        usual = self.video()
        for name, file in (('bare', self.file('bare.safetensors')), ('folded', self.file('folded.safetensors', self.folded)),
                           ('prefixed', self.file('prefixed.safetensors', spell=lambda each: 'model.diffusion_model.' + authors_name(each))),
                           ('diffusers', self.file('diffusers.safetensors', spell=str))):
            with self.subTest(name):
                self.assertEqual(self.video('--transformer', file), usual)
        self.assertNotEqual(self.video('--transformer', self.file('other.safetensors', self.other_values)), usual)

    def test_accepts_wrapped_tensor_names(self):
        usual = self.video()
        state = {authors_name(name): tensor for name, tensor in read_weights(Path(MODEL) / 'transformer').items()}
        wrapped = {'model.' + re.sub(r'(blocks\.\d+\.)', r'\1_fsdp_wrapped_module.', name): tensor for name, tensor in state.items()}
        self.assertEqual(self.video('--transformer', write_safetensors(self.folder / 'fsdp.safetensors', wrapped)), usual)
        other = {f'model.{name}': (dtype, shape, bytes(len(data))) for name, (dtype, shape, data) in state.items()}
        averaged = quantized.write_pth(self.folder / 'trainer.pt', generator=other, generator_ema=wrapped, critic=other)
        self.assertEqual(self.video('--transformer', averaged), usual)

    def test_adds_a_lora_to_the_patch_embedding(self):
        weights = read_weights(Path(MODEL) / 'transformer')
        name = 'patch_embedding.weight'
        _, shape, data = weights[name]
        columns = math.prod(shape[1:])
        down, up = [(i % 5 - 2) / 8 for i in range(columns)], [(i % 3 - 1) / 4 for i in range(shape[0])]
        sums = [number + up[i // columns] * down[i % columns] for i, number in enumerate(struct.unpack(f'<{len(data) // 2}e', data))]
        merged = self.video('--transformer', write_safetensors(self.folder / 'merged.safetensors', weights | {name: ('F32', shape, struct.pack(f'<{len(sums)}f', *sums))}))
        self.assertNotEqual(merged, self.video())
        a, b = struct.pack(f'<{columns}f', *down), struct.pack(f'<{shape[0]}f', *up)
        for title, a_shape, b_shape in (('convolutions', [1, *shape[1:]], [shape[0], 1, 1, 1, 1]), ('matrices', [1, columns], [shape[0], 1])):
            layer = 'diffusion_model.patch_embedding'
            lora = write_safetensors(self.folder / 'lora.safetensors', {f'{layer}.lora_A.weight': ('F32', a_shape, a), f'{layer}.lora_B.weight': ('F32', b_shape, b)})
            for file in ([], ['--transformer', self.file('folded.safetensors', self.folded)]):
                with self.subTest(title, file=file):
                    self.assertEqual(self.video('--lora', lora, '--strict-lora', *file), merged)

    def test_each_of_two_experts_has_its_own_file(self):
        usual = self.video('-m', TWO)
        high, low = (self.file(f'{name}.safetensors', folder=TWO / name) for name in ('transformer', 'transformer_2'))
        self.assertEqual(self.video('-m', TWO, '--transformer', high, '--transformer-2', low), usual)
        self.assertEqual(self.video('-m', TWO, '--transformer-2', low), usual)
        self.assertNotEqual(self.video('-m', TWO, '--transformer', low, '--transformer-2', high), usual)

    def test_recipe_records_the_file(self):
        self.file('one.safetensors')
        usual, named = (self.report('-o', f'{name}.mp4', *file)['recipe'] for name, file in (('a', []), ('b', ['--transformer', 'one.safetensors'])))
        self.assertEqual((usual.get('transformer'), named['transformer']), (None, 'one.safetensors'))
        self.assertNotEqual(named['model_sha256'], usual['model_sha256'])
        again = ('generate', '-m', MODEL, '--from', 'b.mp4', '--device', 'cpu', '--quiet', '-o', 'c.mp4')
        self.fail_with(self.run_program(*again), 2, 'one.safetensors', '--transformer')
        self.warn_with(self.run_program(*again, '--transformer', 'one.safetensors'))
        self.assertEqual((self.folder / 'c.mp4').read_bytes(), (self.folder / 'b.mp4').read_bytes())
        (self.folder / 'two').mkdir()
        self.file('two/one.safetensors', spell=str)
        other = self.succeed(self.run_program(*again, '--transformer', 'two/one.safetensors')).stderr
        self.assertIn('the model (transformer) is not the one that b.mp4 was made with', other)

    def test_rows_of_a_set_may_name_a_file(self):
        self.file('one.safetensors')
        (self.folder / 'set.jsonl').write_text('\n'.join(json.dumps({'output': f'{name}.y4m', 'seed': 42, **file}) for name, file in (
            ('a', {}), ('b', {'transformer': 'one.safetensors'}), ('c', {'transformer': 'none.safetensors'}))))
        result = self.run_program('batch', 'set.jsonl', '-m', MODEL, '-p', PROMPT, '--device', 'cpu', '--steps', 1, *FAMILY.size, '-o', 'out', '--quiet')
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn('none.safetensors', result.stderr)
        self.assertEqual((self.folder / 'out' / 'a.y4m').read_bytes(), (self.folder / 'out' / 'b.y4m').read_bytes())

    def quantized_files(self):
        """Yields (format, quantized file, twin) for GGUF and 8-bit formats. The twin is a file with the same numbers in fp32."""
        scale = struct.unpack('<f', struct.pack('<f', 0.003))[0]

        def mixed(name):  # q, k and v of a layer have different types, as in published files
            return quantized.q4_0 if name.endswith('attn.k.weight') else quantized.f16 if name.endswith('attn.v.weight') else quantized.q8_0
        formats = {'gguf': mixed, 'e4m3': lambda _: lambda numbers: quantized.e4m3(numbers, scale), 'e5m2': lambda _: lambda numbers: quantized.e5m2(numbers, scale),
                   'int8': lambda _: lambda numbers: quantized.int8(numbers, scale)}
        for form, packing in formats.items():
            packed, twin = {}, {}
            for name, (_, shape, data) in read_weights(Path(MODEL) / 'transformer').items():
                name, numbers = authors_name(name), struct.unpack(f'<{len(data) // 2}e', data)
                is_matrix = name.startswith('blocks.') and len(shape) == 2 and shape[-1] % 32 == 0
                dtype, bytes_, values = (packing(name) if is_matrix else quantized.f32)(numbers)
                packed[name], twin[name] = (dtype, shape, bytes_), ('F32', shape, quantized.f32(values)[1])
                if is_matrix and form != 'gguf':
                    packed[name.replace('.weight', '.weight_scale' if form == 'int8' else '.scale_weight')] = ('F32', [], struct.pack('<f', scale))
            file = (quantized.write_gguf if form == 'gguf' else write_safetensors)(self.folder / f'{form}.file', packed)
            yield form, file, write_safetensors(self.folder / 'twin.safetensors', twin)

    def test_quantized_files_make_the_frames_of_their_unpacked_weights(self):
        for form, file, twin in self.quantized_files():
            with self.subTest(form):
                self.assertEqual(self.video('--transformer', file), self.video('--transformer', twin))
                file.write_bytes(file.read_bytes()[:-100])
                self.refused(file, file.name, 'truncated')

    def comfy_files(self):
        """Yields (format, file, twin) for ComfyUI's formats. The twin is a file with the same numbers in fp32. The format's description is in the file's header for the
        matrices of block 0, and in a tensor beside each other matrix."""
        for form in (quantized.int8_convrot, quantized.scaled_columns, quantized.nvfp4, quantized.mxfp8, quantized.w4a4):
            packed, twin, layers = {}, {}, {}
            for name, (_, shape, data) in read_weights(Path(MODEL) / 'transformer').items():
                name, numbers = authors_name(name), struct.unpack(f'<{len(data) // 2}e', data)
                own = 'model.diffusion_model.' + name
                if not name.startswith('blocks.') or len(shape) != 2:
                    packed[own] = twin[own] = ('F32', shape, quantized.f32(numbers)[1])
                    continue
                packed[own], beside, mark, values = form(shape, numbers)
                twin[own] = ('F32', shape, quantized.f32(values)[1])
                packed |= {own.replace('.weight', f'.{part}'): tensor for part, tensor in beside.items()}
                if name.startswith('blocks.0.'):
                    layers[name.removesuffix('.weight')] = mark
                else:
                    text = json.dumps(mark).encode() + bytes(3)
                    packed[own.replace('.weight', '.comfy_quant')] = ('U8', [len(text)], text)
            about = {'_quantization_metadata': json.dumps({'format_version': '1.0', 'layers': layers})}
            yield (form.__name__, write_safetensors(self.folder / f'{form.__name__}.safetensors', packed, about),
                   write_safetensors(self.folder / 'twin.safetensors', twin))

    def test_comfyui_formats_make_the_frames_of_their_unpacked_weights(self):
        for form, file, twin in self.comfy_files():
            with self.subTest(form):
                self.assertEqual(self.video('--transformer', file), self.video('--transformer', twin))
                name = {'scaled_columns': 'I8 with scales', 'w4a4': 'convrot_w4a4'}.get(form, form)
                self.assertIn(name, self.succeed(self.run_program('inspect', file.name)).stdout)

    def test_int8_files_are_multiplied_as_they_are(self):
        """Files whose matrices are already in int8 are not rounded again by --weights int8. Other packed formats are, and a warning says so."""
        lora = ['--lora', PIPELINES / 'lora' / 'kohya.safetensors']
        words = 'weights int8 rounds weights of transformer a second time: its file already holds them packed or in 8 bits'
        for form, file, twin in self.comfy_files():
            expected = [] if form in ('int8_convrot', 'scaled_columns') else [words]
            for extra in ([], lora):
                with self.subTest(form, lora=extra):
                    options = ['--steps', 1, '--report', 'report.json', *extra]
                    self.warn_with(self.generate('--transformer', file, '--weights', 'int8', '-o', 'a.safetensors', *options), *expected)
                    self.assertEqual(json.loads((self.folder / 'report.json').read_text())['recipe']['weights'], 'int8')
                    self.warn_with(self.generate('--transformer', twin, '-o', 'b.safetensors', *options))
                    found, exact = (floats(read_safetensors(self.folder / f'{name}.safetensors')['frames']) for name in 'ab')
                    self.assertNotEqual(found, exact)
                    self.assertLess(sum(abs(a - b) for a, b in zip(found, exact)) / len(exact), 0.03)

    def test_loras_on_quantized_files_match_those_on_unpacked_weights(self):
        """Allows differences in the last bits of the latents, because sums in fp32 have another order."""
        kohya, original = (PIPELINES / 'lora' / f'{name}.safetensors' for name in ('kohya', 'original'))
        for form, file, twin in itertools.chain(self.quantized_files(), self.comfy_files()):
            latents = []
            for lora in ([], ['--lora', f'{kohya}:0.8'], ['--lora', f'{kohya}:-2,{original}:0.5']):
                with self.subTest(form, lora=lora):
                    (_, shape, data), (_, _, expected) = (self.video('--transformer', each, *lora)[1] for each in (file, twin))
                    latents.append(struct.unpack(f'<{len(data) // 4}f', data))
                    expected = struct.unpack(f'<{len(expected) // 4}f', expected)
                    self.assertEqual(len(expected), math.prod(shape))
                    self.assertLess(max(abs(a - b) for a, b in zip(latents[-1], expected)), 1e-5 * max(map(abs, expected)))
            self.assertEqual(len(set(latents)), 3, form)

    def test_warns_of_a_second_rounding_to_eight_bits(self):
        usual = ['--weights', 'fp8', '--steps', 1, '--report', 'report.json', '-o', 'a.gif']
        words = 'weights fp8 rounds weights of transformer a second time: its file already holds them packed or in 8 bits'
        lora = ['--lora', PIPELINES / 'lora' / 'kohya.safetensors']
        for form, file, twin in self.quantized_files():
            kept = []
            if form in ('e5m2', 'int8'):  # no 8-bit matrix product of --weights fp8 takes these formats
                count = sum(name.endswith(('.scale_weight', '.weight_scale')) for name in read_safetensors(file))
                kept = [f'weights fp8 has no effect for {count} weights in {"int8" if form == "int8" else "float8_e5m2"} of transformer: they stay as their file stores '
                        'them, and are not multiplied in 8 bits']
            again = {'gguf': (True, True), 'e4m3': (False, True)}.get(form, (False, False))
            for extra, is_again in zip(([], lora), again):
                with self.subTest(form, lora=extra):
                    expected = [words] * is_again + kept
                    self.warn_with(self.generate('--transformer', file, *usual, *extra), *expected)
                    self.assertEqual(json.loads((self.folder / 'report.json').read_text())['warnings'], expected)
        self.warn_with(self.generate('--transformer', twin, *usual, *lora))

    def test_inspect_recognizes_the_model_by_its_shapes(self):
        published = json.loads((PIPELINES / 'dit_names.json').read_text())['2.1 14b']
        shapes = published['rest'] | {f'blocks.{i}.{name}': shape for i in range(published['config']['num_layers']) for name, shape in published['block'].items()}
        header, end = {}, 0
        for name, shape in shapes.items():
            header[authors_name(name)] = {'dtype': 'U8', 'shape': shape, 'data_offsets': [end, end + math.prod(shape)]}
            end += math.prod(shape)
        text = json.dumps(header).encode()
        with open(self.folder / 'large.safetensors', 'wb') as file:
            file.write(struct.pack('<Q', len(text)) + text)
            file.truncate(8 + len(text) + end)  # the tensors' data are a hole, which takes no disk space
        shown = self.succeed(self.run_program('inspect', 'large.safetensors')).stdout.splitlines()
        self.assertEqual(shown[1], '  transformer of wan-2.1-14b.yaml or wan-2.2-a14b.yaml')
        summary = json.loads(self.succeed(self.run_program('inspect', 'large.safetensors', '--json')).stdout)
        self.assertEqual(summary['transformer_of'], ['wan-2.1-14b.yaml', 'wan-2.2-a14b.yaml'])
        self.assertNotIn('transformer_of', json.loads(self.succeed(self.run_program('inspect', self.file('one.safetensors'), '--json')).stdout))

    def refused(self, file, *words, model=MODEL):
        self.fail_with(self.generate('-m', model, '--transformer', file, '-o', 'clip.mp4'), 2, *words)
        self.assertFalse((self.folder / 'clip.mp4').exists())

    def test_refuses_tensors_that_do_not_fit_by_name(self):
        def missing(tensors):
            del tensors['blocks.1.cross_attn.o.weight']

        def misshaped(tensors):
            dtype, shape, data = tensors['blocks.0.ffn.2.weight']
            tensors['blocks.0.ffn.2.weight'] = (dtype, shape[::-1], data)

        def unknown(tensors):
            tensors['blocks.0.self_attn.k_img.weight'] = ('F32', [1], bytes(4))

        def twice(tensors):
            tensors['proj_out.bias'] = tensors['head.head.bias']
        for change, words in ((missing, ['1 missing: "blocks.1.cross_attn.o.weight" [32, 32]']), (unknown, ['1 unexpected: "blocks.0.self_attn.k_img.weight"']),
                              (misshaped, ['1 misshaped: "blocks.0.ffn.2.weight" is [24, 32], expected [32, 24]']),
                              (twice, ['"head.head.bias"', '"proj_out.bias"', 'one tensor'])):
            with self.subTest(change.__name__):
                self.refused(self.file('one.safetensors', change), 'one.safetensors', *words)

    def test_refuses_transformers_of_other_models_in_one_line(self):
        def three_blocks(tensors):
            for name in [name for name in tensors if name.startswith('blocks.1.')]:
                tensors[name.replace('.1.', '.2.', 1)] = tensors[name]
        one = self.file('one.safetensors')
        self.refused(self.file('deep.safetensors', three_blocks), 'deep.safetensors: does not fit', 'transformer/config.json: num_layers is 3, not 2')
        self.refused(Path(MODEL) / 'vae' / 'diffusion_pytorch_model.safetensors', 'holds no WanTransformer3DModel')
        self.refused(Path(MODEL) / 'vae', 'vae: holds no transformer')
        self.refused('none.safetensors', 'none.safetensors', 'No such file')
        self.fail_with(self.generate('--transformer-2', one, '-o', 'clip.mp4'), 2, '--transformer-2', 'this model has no transformer_2')
        self.fail_with(self.generate('--transformer', one, '-o', one), 2, '--transformer', '--output', 'same file')
        self.fail_with(self.run_program('generate', '--random-weights', 'a.yaml', '--transformer', one), 2, '--transformer', '--random-weights')


if __name__ == '__main__':
    unittest.main()
