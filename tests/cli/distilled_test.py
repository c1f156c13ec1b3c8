"""Tests `--distilled`: the settings that it gives to models of a few steps, and the advice that the program prints if a LoRA of a few steps is given without it."""
import json
import re
import unittest

import published
from support import PROMPT, ROOT, CommandLineTest, write_safetensors

WIDTH = 5120  # channels of the transformers of Wan 2.2 A14B
PARTS = [f'diffusion_models/wan2.2_t2v_{noise}_noise_14B_fp8_scaled.safetensors' for noise in ('high', 'low')]
PARTS += ['text_encoders/umt5_xxl_fp8_e4m3fn_scaled.safetensors', 'vae/wan_2.1_vae.safetensors']


class Distilled(CommandLineTest):
    def setUp(self):
        """Writes the files of Wan 2.2 A14B as in ComfyUI's folder. Their contents are holes, which take no disk space."""
        super().setUp()
        for part in PARTS:
            published.write(self.folder / 'comfy' / part, published.FILES[part.rsplit('/', 1)[-1]]())

    def pair(self, folder):
        """Writes one LoRA for each of the two transformers of A14B, with file names as on Hugging Face."""
        (self.folder / folder).mkdir(parents=True)
        layer = {f'diffusion_model.blocks.0.self_attn.q.lora_{end}.weight': ('BF16', shape, bytes(2 * WIDTH)) for end, shape in (('down', [1, WIDTH]), ('up', [WIDTH, 1]))}
        for noise in ('high', 'low'):
            write_safetensors(self.folder / folder / f'{noise}_noise_model.safetensors', layer)
        return folder

    def settings(self, *arguments):
        """Returns what `config show` prints: {option: value and source}."""
        out = self.succeed(self.run_program('config', 'show', '-m', 'comfy', *arguments)).stdout
        return dict(re.findall(r'^(\w+): (.*)$', out, re.M))

    def test_sets_what_a_pair_of_loras_in_a_folder_needs(self):
        shown = self.settings('--lora', self.pair('Wan2.2-Lightning/rank64-Seko'), '--distilled', 4)
        for option, value in {'scheduler': '"FlowMatchEulerDiscreteScheduler"', 'sigmas': '"1.0,0.75,0.5,0.25"', 'flow_shift': '5.0', 'cfg_scale': '1.0'}.items():
            self.assertRegex(shown[option], rf'^{re.escape(value)} .*wan-2.2-a14b.yaml:\d+ \(distilled 4\)')
        self.assertNotIn('distilled', shown)
        self.assertNotIn('steps', shown)
        self.assertIn('high_noise_model.safetensors', shown['lora'])
        self.assertIn('low_noise_model.safetensors', shown['lora'])

    def test_options_that_are_given_win(self):
        pair = self.pair('Lightning')
        shown = self.settings('--lora', pair, '--distilled', 4, '--steps', 6, '--flow-shift', 8)
        self.assertNotIn('sigmas', shown)
        self.assertRegex(shown['steps'], '^6 ')
        self.assertRegex(shown['flow_shift'], '^8.0 ')
        self.assertRegex(shown['scheduler'], 'Euler')

    def test_names_the_loras_that_are_missing(self):
        result = self.run_program('generate', '-m', 'comfy', '-p', PROMPT, '--distilled', 4, '--dry-run')
        self.fail_with(result, 2, '--distilled 4: no LoRA is given', 'wan2.2_t2v_A14b_high_noise_lora_rank64_lightx2v_4step_1217.safetensors', 'lightx2v/Wan2.2-Distill-Loras', '--lora')

    def test_sets_what_a_whole_model_needs(self):
        shown = self.succeed(self.run_program('config', 'show', '--random-weights', ROOT / 'configs' / 'wan-2.1-1.3b.yaml', '--distilled', 3)).stdout
        for line in ('scheduler: "FlowMatchLCMScheduler"', 'sigmas: "1.0,0.28,0.12"', 'flow_shift: 8.0', 'cfg_scale: 1.0'):
            self.assertIn('\n' + line, '\n' + shown)

    def test_sets_what_the_loras_of_a_model_with_sound_need(self):
        model = ['--random-weights', ROOT / 'configs' / 'minimax-h3.yaml']
        for steps, sigmas in ((4, '1.0,0.75,0.5,0.25'), (8, '1.0,0.875,0.75,0.625,0.5,0.375,0.25,0.125')):
            shown = self.succeed(self.run_program('config', 'show', *model, '--distilled', steps)).stdout
            for line in (f'sigmas: "{sigmas}"', 'flow_shift: 6.0'):
                self.assertIn('\n' + line, '\n' + shown)
        self.fail_with(self.run_program('config', 'show', *model, '--distilled', 3), 2, '--distilled 4 or 8')

    def test_refuses_steps_and_models_without_settings(self):
        self.fail_with(self.run_program('generate', '-m', 'comfy', '-p', PROMPT, '--distilled', 8, '--dry-run'), 2, '--distilled 8: no settings are known', '--distilled 4')
        mochi = self.run_program('generate', '--random-weights', ROOT / 'configs' / 'mochi-1.yaml', '-p', PROMPT, '--distilled', 4, '--dry-run')
        self.fail_with(mochi, 2, '--distilled 4: no settings are known for this model', 'sigmas')
        self.fail_with(self.generate('--distilled', 'few'), 2, '--distilled few')

    def test_warns_of_a_distilled_lora_without_it(self):
        pair = self.pair('lightx2v')
        command = ['generate', '-m', 'comfy', '-p', PROMPT, '--dry-run', '--size', '320x192', '--frames', 5, '--lora', pair]
        self.assertIn('give --distilled 4', self.succeed(self.run_program(*command)).stderr)
        for known in (['--distilled', 4], ['--sigmas', '1,0.75,0.5,0.25'], ['--steps', 4]):
            self.assertNotIn('give --distilled', self.succeed(self.run_program(*command, *known)).stderr)

    def test_is_a_column_of_prompt_sets(self):
        pair = self.pair('lightx2v')
        (self.folder / 'set.csv').write_text(f'prompt,distilled,lora\n{PROMPT},4,{pair}\n{PROMPT},,\n{PROMPT},4,\n')
        batch = ['batch', 'set.csv', '-o', 'out', '-m', 'comfy', '--dry-run', '--size', '320x192', '--frames', 5]
        result = self.run_program(*batch)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertRegex(result.stderr, r'(?m)^error: set.csv:4: distilled 4: no LoRA is given')
        (self.folder / 'set.csv').write_text(f'prompt,distilled,lora\n{PROMPT},4,{pair}\n{PROMPT},,\n')
        out = self.succeed(self.run_program(*batch)).stdout
        self.assertIn('4 steps', out)
        self.assertIn('40 steps', out)

    def test_a_folder_of_other_files_is_refused(self):
        (self.folder / 'none').mkdir()
        self.fail_with(self.generate('--lora', 'none'), 2, 'none: this folder holds 0 .safetensors files', 'name the file')
        for name in 'abc':
            write_safetensors(self.folder / 'none' / f'{name}.safetensors', {})
        self.fail_with(self.generate('--lora', 'none'), 2, 'none: this folder holds 3 .safetensors files')

    def test_inspect_names_the_method_of_a_lora(self):
        file = self.folder / self.pair('Wan2.2-Lightning') / 'high_noise_model.safetensors'
        self.assertIn('distilled to 4 steps (lightx2v)', self.succeed(self.run_program('inspect', file)).stdout)
        self.assertEqual(json.loads(self.succeed(self.run_program('inspect', file, '--json')).stdout)['lora']['distilled'], {'name': 'lightx2v', 'steps': 4})


if __name__ == '__main__':
    unittest.main()
