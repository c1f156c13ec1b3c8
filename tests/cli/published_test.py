"""Files with the names, shapes and dtypes of those that people download; their contents are holes, which take no room."""
import unittest

import published
from support import CommandLineTest

TRANSFORMERS = {'wan2.2_t2v_high_noise_14B_fp8_scaled.safetensors': 'wan-2.1-14b.yaml or wan-2.2-a14b.yaml', 'wan2.1_t2v_14B_fp16.safetensors': 'wan-2.1-14b.yaml or wan-2.2-a14b.yaml',
                'wan2.1-t2v-14b-Q4_K_M.gguf': 'wan-2.1-14b.yaml or wan-2.2-a14b.yaml', 'wan2.2_ti2v_5B_fp16.safetensors': 'wan-2.2-5b.yaml'}


class Published(CommandLineTest):
    def write(self, name):
        return published.write(self.folder / name, published.FILES[name]())

    def test_lists_are_those_of_the_published_files_to_the_byte(self):
        for name, size in published.PUBLISHED_BYTES.items():
            with self.subTest(name):
                self.assertEqual(self.write(name).stat().st_size, size)

    def test_transformers_are_known_by_their_tensors(self):
        for name, model in TRANSFORMERS.items():
            with self.subTest(name):
                self.assertIn(f'transformer of {model}\n', self.succeed(self.run_program('inspect', self.write(name))).stdout)


if __name__ == '__main__':
    unittest.main()
