"""Tests the tiny model with the LoRA that lets its videos begin with a picture."""
import struct
import unittest
import zlib

from support import ROOT, CommandLineTest, floats, psnr, read_safetensors

PICTURE = ROOT / 'assets' / 'first-frame.png'
PROMPT = 'an orange triangle slides to the right on a blue background'
TINY = ROOT / 'assets' / 'tiny'
LORAS = [ROOT / 'assets' / f'tiny-{name}.safetensors' for name in ('image', '4-steps')]
SIDE = 256


def pixels_of(path):
    """Returns the pixels of an RGB PNG as values in 0..1. The PNG's rows must have no filter."""
    data, at, packed = path.read_bytes(), 8, b''
    while at < len(data):
        size, kind = struct.unpack('>I4s', data[at:at + 8])
        packed += data[at + 8:at + 8 + size] if kind == b'IDAT' else b''
        at += 12 + size
    rows, width = zlib.decompress(packed), 3 * SIDE
    return [value / 255 for y in range(SIDE) for value in rows[y * (width + 1) + 1:(y + 1) * (width + 1)]]


class TinyImage(CommandLineTest):
    def test_begins_with_the_picture_and_goes_on(self):
        loras = [word for lora in LORAS for word in ('--lora', lora)]
        self.succeed(self.run_program('generate', '-m', TINY, '-i', PICTURE, '-p', PROMPT, '-o', 'v.safetensors', '--distilled', 4, *loras))
        values = floats(read_safetensors(self.folder / 'v.safetensors')['frames'])
        size, picture = 3 * SIDE * SIDE, pixels_of(PICTURE)
        first, last = values[:size], values[-size:]
        self.assertGreater(psnr(first, picture), 26)
        self.assertLess(psnr(last, picture), 20, 'the triangle did not move')

    def test_names_the_lora_if_it_is_missing(self):
        self.fail_with(self.run_program('generate', '-m', TINY, '-i', PICTURE, '-p', PROMPT, '-o', 'v.safetensors'), 2, '--image is given', 'text only', 'LoRA')


if __name__ == '__main__':
    unittest.main()
