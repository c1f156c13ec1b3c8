"""Writes PNG files."""
import struct
import zlib


def write_png(path, picture):
    """Writes a picture [3, H, W] in -1..1 as an RGB PNG."""
    rows = ((picture.float().clamp(-1, 1) + 1) * 127.5).round().byte().permute(1, 2, 0).cpu().numpy()
    raw = b''.join(b'\0' + row.tobytes() for row in rows)
    chunk = lambda kind, body: struct.pack('>I', len(body)) + kind + body + struct.pack('>I', zlib.crc32(kind + body))
    with open(path, 'wb') as f:
        f.write(b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', rows.shape[1], rows.shape[0], 8, 2, 0, 0, 0))
                + chunk(b'IDAT', zlib.compress(raw, 6)) + chunk(b'IEND', b''))
