"""Tests bad arguments and bad files: the exit code, one line of cause, one line of remedy, and that no file is left behind."""
import json
import os
import re
import resource
import shutil
import struct
import time
import unittest
from pathlib import Path

from support import MODEL, PROMPT, ROOT, CommandLineTest, limited_memory


class Failures(CommandLineTest):
    def generate_from(self, model):
        return self.run_program('generate', '-m', model, '-p', PROMPT, '--steps', 1, '-o', 'clip.mp4')

    def test_refuses_wrong_arguments(self):
        for arguments, words in (
                (['--steps', '0'], ['--steps 0']),
                (['--steps', 'many'], ['--steps', 'many']),
                (['--steps', '1001'], ['--steps 1001']),
                (['--width', '250'], ['--width 250', '240', '256']),
                (['--height', '33'], ['--height 33', '32', '48']),
                (['--frames', '30'], ['--frames 30', '25', '32']),
                (['--size', '64'], ['--size 64', 'WxH']),
                (['--size', '64x64', '--width', '64'], ['--size', '--width', 'exclude']),
                (['--topk', '0.5', '--cdf', '0.9'], ['--topk', '--cdf', 'exclude']),
                (['--topk', '0.5', '--error', '0.1'], ['--topk', '--error', 'exclude']),
                (['--cdf', '0.5', '--error', '0.1'], ['--cdf', '--error', 'exclude']),
                (['--error', '0'], ['error is 0']),
                (['--error', '0.5', '--block-error', '0.1'], ['--error', '--block-error', 'exclude']),
                (['--block-error', '-1'], ['block-error is -1']),
                (['--dropped', 'none', '--select', 'error'], ['--dropped none and --select error exclude each other', 'give one of them']),
                (['--dropped', 'none', '--error', '0.1'], ['--dropped none and --error exclude each other']),
                (['--select', 'mass', '--error', '0.1'], ['--select mass and --error exclude each other']),
                (['--select', 'mass', '--block-error', '0.1'], ['--select mass and --block-error exclude each other']),
                (['--dropped', 'median'], ['--dropped median', 'mean, none']),
                (['--select', 'topk'], ['--select topk', 'error, mass']),
                (['--dropped', 'mean', '--cell', '48'], ['--cell 48', '16, 32, 64']),
                (['--arithmetic', '32'], ['--arithmetic 32', '8, 16']),
                (['--attention', 'quantized', '--arithmetic', '16'], ['--arithmetic 16 and --attention quantized exclude each other']),
                (['--topk', '0'], ['topk']),
                (['--topk', '1.5'], ['topk is 1.5\n']),
                (['--topk', '1.0000001'], ['topk is 1.0000001\n', 'at most 1']),
                (['--cdf', '2'], ['cdf']),
                (['--cfg-scale', 'nan'], ['--cfg-scale']),
                (['--cfg-scale', '1e30'], ['--cfg-scale 1e+30 is not a number from 0 to 1000']),
                (['--cfg-scale-2', '1e30'], ['--cfg-scale-2 1e+30 is not a number from 0 to 1000']),
                (['--flow-shift', '1e300'], ['--flow-shift 1e+300 is not a number above 0 and at most 1e+09']),
                (['--flow-shift', '-1'], ['--flow-shift -1 is not a number above 0']),
                (['--fps', '0'], ['--fps']),
                (['--fps', '100', '-o', 'a.gif'], ['--fps', 'GIF']),
                (['--crf', '60'], ['--crf 60']),
                (['--codec', 'nonsense'], ['--codec nonsense']),
                (['--codec', 'libsvtav1'], ['--codec libsvtav1', 'libaom-av1']),
                (['--scheduler', 'euler'], ['--scheduler euler']),
                (['--guidance-passes', 'both'], ['--guidance-passes both', 'batched, in-turn']),
                (['--cache', 'teacache:0.1'], ['--cache teacache:0.1', 'first-block', 'forecast']),
                (['--cache', 'forecast:nan'], ['--cache forecast:nan']),
                (['--cache=-1'], ['--cache -1']),
                (['--cache', 'steps:0'], ['--cache steps:0', 'the number of steps must be a whole number of at least 1', 'steps:20']),
                (['--cache', 'steps:x'], ['--cache steps:x', 'the number of steps must be a whole number of at least 1']),
                (['--cache', 'steps:1.5'], ['--cache steps:1.5', 'the number of steps must be a whole number of at least 1']),
                (['--attention', 'full', '--topk', '1.5'], ['topk']),
                (['--attention', 'dense'], ['--attention dense', 'sparse']),
                (['--dense-steps', '-1'], ['--dense-steps', '-1']), (['--dense-steps', '101%'], ['--dense-steps 101%', '20%']),
                (['--dense-layers', '1.5'], ['--dense-layers 1.5']),
                (['--token-order', 'peano'], ['--token-order peano', 'hilbert']),
                (['--device', 'tpu'], ['tpu']),
                (['--dtype', 'int8'], ['--dtype int8']),
                (['--vae-tiling', 'maybe'], ['--vae-tiling maybe']),
                (['--seed', '-2'], ['--seed -2']),
                (['--threads', '0'], ['--threads 0']),
                (['--threads', '513'], ['--threads 513', '512', 'CPU cores']),
                (['--max-sequence-length', '17'], ['--max-sequence-length 17', '16']),
                (['--prompt-file', 'a.txt'], ['--prompt', '--prompt-file']),
                (['--init-latents', 'none.safetensors'], ['none.safetensors']),
                (['--contact-sheet', 'a.jpg'], ['a.jpg']),
                (['--preview', 'a.jpg'], ['a.jpg', '.gif']),
                (['-o', 'clip.avi'], ['clip.avi', '.mp4']),
                (['-o', 'none/clip.mp4'], ['none']),
                (['-o', ''], ['--output']),
                (['-o', '-'], ['--output -', 'standard output']),
                (['-n', 'caf\udce9'], ['--negative-prompt is not UTF-8']),
                (['--report', 'none/report.json'], ['none']),
                (['--save-latents', 'none/latents.safetensors'], ['none']),
                (['stray'], ['stray'])):
            with self.subTest(arguments=arguments):
                self.fail_with(self.generate(*arguments), 2, *words)
        self.assertEqual(self.names(), [])

    def test_refuses_videos_too_large_for_memory_at_once(self):
        model = ['-m', MODEL, '--device', 'cpu', '--steps', 1]
        remedy = 'choose a smaller width or height, or fewer frames'
        for size in (['--width', 16000000, '--height', 16000000], ['--frames', 1600000001], ['--size', '9223372036854775792x16'],
                     ['--width', 16000000, '--height', 16000000, '--frames', 1600000001]):
            for command in (['generate', '-p', PROMPT, *model, '-o', 'clip.mp4'], ['generate', '-p', PROMPT, *model, '-o', 'frames'],
                            ['bench', 'pipeline', *model], ['tune', '-p', PROMPT, *model, '-o', 'profile.yaml']):
                with self.subTest(command=command[:2], size=size):
                    start = time.monotonic()
                    # If the program does not refuse these sizes, this limit protects the memory of the machine.
                    result = self.run_program(*command, *size, **limited_memory(8 << 30))
                    self.assertLess(time.monotonic() - start, 10)  # usually it takes half a second
                    self.fail_with(result, 2, f'{size[1]}'.partition('x')[0], 'needs at least', 'but only', remedy)
                    self.assertEqual(self.names(), [])

    def test_refuses_models_too_large_for_memory_at_once(self):
        available = int(re.search(r'MemAvailable: *(\d+) kB', Path('/proc/meminfo').read_text())[1]) >> 20
        if available > 50:
            self.skipTest('this machine has enough memory for them')
        (self.folder / 'set.txt').write_text(PROMPT + '\n')
        model = ['--random-weights', ROOT / 'configs' / 'wan-2.1-14b.yaml', '--size', '64x64', '--frames', 5, '--steps', 1, '--device', 'cpu']
        for command in (['generate', *model, '-o', 'a.mp4'], ['bench', 'pipeline', *model], ['tune', '-p', PROMPT, *model, '-o', 'profile.yaml']):
            with self.subTest(command=command[:2]):
                result = self.run_program(*command, timeout=60, **limited_memory(8 << 30))
                self.fail_with(result, 2, "the transformer's weights alone need 53.", 'but only', 'use ', 'a machine with more memory')
        result = self.run_program('batch', 'set.txt', '-o', 'out', *model, timeout=60, **limited_memory(8 << 30))
        self.assertIn("set.txt:1: the transformer's weights alone need 53.", result.stderr)
        self.succeed(self.run_program('config', 'show', *model))

    def test_config_show_works_for_videos_too_large_for_memory(self):
        shown = self.succeed(self.run_program('config', 'show', '-m', MODEL, '--device', 'cpu', '--width', 16000000, '--frames', 1600000001))
        self.assertIn('width: 16000000', shown.stdout)

    def test_text_to_video_models_refuse_images(self):
        self.fail_with(self.generate('--image', '1'), 2, '--image')

    def test_refuses_missing_and_unknown_commands(self):
        self.fail_with(self.run_program(), 2)
        self.fail_with(self.run_program('fly'), 2, 'fly')

    def test_refuses_a_missing_prompt(self):
        self.fail_with(self.run_program('generate', '-m', MODEL), 2, 'prompt', '-p')

    def test_refuses_missing_and_empty_prompt_files(self):
        (self.folder / 'empty.txt').write_text('\n')
        for name in ('none.txt', 'empty.txt', '.'):
            self.fail_with(self.run_program('generate', '-m', MODEL, '--prompt-file', name), 2, name)

    def test_refuses_files_that_never_end(self):
        model = self.copy_of_the_model()
        os.mkfifo(self.folder / 'pipe')
        os.mkfifo(self.folder / 'pipe.mp4')
        (self.folder / 'clip.gif').write_text('GIF89a')
        os.mkfifo(self.folder / 'clip.gif.json')
        (self.folder / 'model' / 'tokenizer' / 'spiece.model').unlink()
        os.mkfifo(self.folder / 'model' / 'tokenizer' / 'spiece.model')
        for arguments, words in (
                (['--prompt-file', 'pipe'], ['pipe: is a device or a pipe', '- for standard input']),
                (['--prompt-file', '/dev/zero'], ['/dev/zero: is a device or a pipe', '- for standard input']),
                (['-p', 'x', '--config', 'pipe'], ['pipe']), (['-p', 'x', '--config', '/dev/zero'], ['/dev/zero']),
                (['-p', 'x', '--profile', 'pipe'], ['pipe']), (['-p', 'x', '--profile', '/dev/zero'], ['/dev/zero']),
                (['-p', 'x', '--init-latents', 'pipe'], ['pipe']), (['--from', 'pipe.mp4'], ['pipe.mp4']),
                (['--from', 'clip.gif'], ['clip.gif.json']), (['-p', 'x', '-m', model], ['spiece.model'])):
            with self.subTest(arguments=arguments):
                given = arguments if '-m' in arguments else [*arguments, '-m', MODEL]
                self.fail_with(self.run_program('generate', *given, '--device', 'cpu', '-o', 'a.mp4', timeout=20, **limited_memory(4 << 30)), 2, *words)
        for arguments in (['generate', '--random-weights', 'pipe'], ['inspect', 'pipe.mp4'], ['decode', 'pipe', '-m', MODEL],
                          ['bench', 'plot', 'pipe']):
            with self.subTest(arguments=arguments):
                self.fail_with(self.run_program(*arguments, timeout=20), 2, 'pipe')
        # This run writes clip.gif.json. A run that replaces the GIF reads this recipe.
        self.succeed(self.generate('-o', 'clip.gif', '--no-metadata', timeout=20))

    def test_refuses_files_that_are_too_large(self):
        mebibyte = 1 << 20
        (self.folder / 'prompt.txt').write_text('x' * (mebibyte + 1))
        (self.folder / 'negative.yaml').write_text(f'negative_prompt: {"x" * (mebibyte + 1)}\n')
        (self.folder / 'large.yaml').write_text('#' * (4 * mebibyte + 1))
        for arguments, words in ((['--prompt-file', 'prompt.txt'], ['prompt.txt: is larger than 1 MiB', 'less than 1 MiB']),
                                 (['--prompt-file', '-'], ['standard input: is larger than 1 MiB']),
                                 (['-p', 'x', '--config', 'negative.yaml'], ['negative_prompt', 'is longer than 1 MiB']),
                                 (['-p', 'x', '--config', 'large.yaml'], ['large.yaml: is larger than 4 MiB']),
                                 (['-p', 'x', '--profile', 'large.yaml'], ['large.yaml: is larger than 4 MiB'])):
            with self.subTest(arguments=arguments):
                self.fail_with(self.run_program('generate', *arguments, '-m', MODEL, '-o', 'a.mp4', input='x' * (mebibyte + 1)), 2, *words)
        self.succeed(self.run_program('generate', '-m', MODEL, '--prompt-file', '-', '--steps', 1, '-o', 'a.mp4', input='x' * mebibyte))

    def test_refuses_a_missing_model(self):
        self.fail_with(self.generate_from('nowhere'), 2, 'nowhere')

    def test_refuses_a_folder_without_a_model(self):
        (self.folder / 'empty').mkdir()
        self.fail_with(self.generate_from('empty'), 2, 'model_index.json')

    def test_refuses_truncated_weights(self):
        model = self.copy_of_the_model()
        weights = model / 'vae' / 'diffusion_pytorch_model.safetensors'
        weights.write_bytes(weights.read_bytes()[:-100])
        self.fail_with(self.generate_from(model), 2, 'diffusion_pytorch_model.safetensors')
        self.assertEqual(self.names(), ['model'])

    def test_checks_weights_before_any_step(self):
        for component, file, tensor in (
                ('vae', 'diffusion_pytorch_model.safetensors', b'"decoder.conv_in.conv.bias"'),
                ('transformer', 'diffusion_pytorch_model-00001-of-00002.safetensors', None)):
            with self.subTest(component=component):
                model = Path(shutil.copytree(MODEL, self.folder / component))
                weights = model / component / file
                if tensor:
                    weights.write_bytes(weights.read_bytes().replace(tensor, tensor.upper()))
                else:
                    config = model / component / 'config.json'
                    config.write_text(config.read_text().replace('"time_embed_dim": 16', '"time_embed_dim": 32'))
                (model / 'tokenizer' / 'spiece.model').write_bytes(b'')  # an empty tokenizer would make the text stage fail, so this shows that weights are checked before it
                self.fail_with(self.generate_from(model), 2, 'the weights do not fit', component)
                self.assertEqual(self.names(), sorted({'vae', component}))

    def test_refuses_a_missing_shard(self):
        model = self.copy_of_the_model()
        (model / 'transformer' / 'diffusion_pytorch_model-00002-of-00002.safetensors').unlink()
        self.fail_with(self.generate_from(model), 2, '00002-of-00002')

    def test_refuses_a_broken_config_json(self):
        model = self.copy_of_the_model()
        (model / 'transformer' / 'config.json').write_text('{"num_layers": ')
        self.fail_with(self.generate_from(model), 2, 'config.json')

    def test_refuses_a_wrong_field_in_config_json(self):
        model = self.copy_of_the_model()
        config = model / 'transformer' / 'config.json'
        config.write_text(config.read_text().replace('"num_layers": 2', '"num_layers": "two"'))
        self.fail_with(self.generate_from(model), 2, 'config.json', 'num_layers')

    def test_refuses_init_latents_of_another_shape(self):
        self.succeed(self.generate('--save-latents', 'latents.safetensors', '-o', 'a.mp4'))
        self.fail_with(self.generate('--init-latents', 'latents.safetensors', '--frames', 5), 2, '--init-latents')
        # `config show` loads no model, yet it refuses the latents: the program checks them before it loads anything.
        self.fail_with(self.run_program('config', 'show', '-m', MODEL, '--init-latents', 'latents.safetensors', '--frames', 5), 2,
                       '--init-latents')

    def test_refuses_latents_that_hold_nan(self):
        self.succeed(self.generate('--save-latents', 'latents.safetensors', '-o', 'a.mp4', '--dtype', 'fp32'))
        file = self.folder / 'latents.safetensors'
        file.write_bytes(file.read_bytes()[:-4] + struct.pack('<f', float('nan')))
        self.fail_with(self.generate('--init-latents', file, '-o', 'b.mp4'), 2, 'latents.safetensors', 'holds NaN or Inf')
        self.fail_with(self.run_program('decode', file, '-m', MODEL, '-o', 'b.mp4'), 2, 'latents.safetensors', 'holds NaN or Inf')
        self.assertEqual(self.names(), ['a.mp4', 'latents.safetensors'])

    def test_out_of_memory_error_suggests_what_needs_less(self):
        # The result of the first convolution on 2048 x 2048 latents needs 3 GiB. The file takes no disk space, because its data is a hole.
        header = json.dumps({'latents': {'dtype': 'F16', 'shape': [1, 1, 4, 2048, 2048], 'data_offsets': [0, 1 << 25]}}).encode()
        with open(self.folder / 'latents.safetensors', 'wb') as file:
            file.write(struct.pack('<Q', len(header)) + header)
            file.truncate(8 + len(header) + (1 << 25))
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
        result = self.run_program('decode', 'latents.safetensors', '-m', MODEL, '-o', 'clip.y4m', '--vae-tiling', 'off', '--threads', 1,
                                  '--device', 'cpu', preexec_fn=limit)
        self.fail_with(result, 1, 'out of memory', 'smaller size', 'vae_tiling on')

    def test_help_and_version_succeed(self):
        self.assertIn('generate', self.succeed(self.run_program('--help')).stdout)
        self.assertIn('--attention', self.succeed(self.run_program('generate', '--help')).stdout)
        self.assertRegex(self.succeed(self.run_program('--version')).stdout, r'sparsereel \d+\.\d+\.\d+')

    def test_device_cuda_without_a_gpu_names_the_reason(self):
        if Path('/dev/nvidiactl').exists():
            self.skipTest('this machine has a GPU')
        self.fail_with(self.generate('--device', 'cuda'), 2, 'cuda')


if __name__ == '__main__':
    unittest.main()
