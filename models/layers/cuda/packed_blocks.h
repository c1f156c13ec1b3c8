// Unpacks packed formats, in which blocks of consecutive elements of a row share scales. CPUs and GPUs use the same
// code. The formulas of ggml's formats come from its reference code (ggml-quants.c, ggml-common.h), and the tests
// compare them with the gguf package. The tests compare ComfyUI's formats with the comfy-kitchen package. No torch,
// C++17.
#pragma once

#include <cstdint>
#include <cstring>

#include "hilbert/half.h"
#include "models/files/dtype.h"

namespace sparsereel::models {

constexpr int kUnpackedAtOnce = 8;  // a GPU thread stores this many 16-bit elements with one instruction

namespace packed_bits {

/// Reads a little-endian fp16 number at any address.
SPARSEREEL_BOTH inline float half_at(const uint8_t* p) {
  return float_of_half(static_cast<uint16_t>(p[0] | p[1] << 8));
}

SPARSEREEL_BOTH inline float float_at(const uint8_t* p) {
  const uint32_t bits = p[0] | p[1] << 8 | p[2] << 16 | static_cast<uint32_t>(p[3]) << 24;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
SPARSEREEL_BOTH inline float bfloat_at(const uint8_t* p) {
  const uint8_t wide[] = {0, 0, p[0], p[1]};
  return float_at(wide);
}

/// Reads an e4m3 number. Its bits, shifted left by 7, are those of an fp16 number that is 256 times too small. e4m3 has
/// a NaN but no infinity.
SPARSEREEL_BOTH inline float e4m3_at(const uint8_t* p) {
  const int bits = *p & 0x7F, sign = *p & 0x80;
  const int half = bits == 0x7F ? 0x7E00 : bits << 7;
  return float_of_half(static_cast<uint16_t>(sign << 8 | half)) * 256;
}

/// Reads an e8m0 number: 2^(byte - 127). The byte 0 is zero and 255 is NaN, as comfy-kitchen reads them.
SPARSEREEL_BOTH inline float power_at(const uint8_t* p) {
  const uint32_t bits = *p == 255 ? 0x7FC00000U : static_cast<uint32_t>(*p) << 23;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// Returns the number with these four bits: one bit of sign, two of exponent and one of mantissa.
SPARSEREEL_BOTH inline float e2m1(int bits) {
  const int magnitude = bits & 7, exponent = magnitude >> 1, mantissa = magnitude & 1;
  const float value = exponent == 0
                          ? 0.5F * static_cast<float>(mantissa)
                          : (1.0F + 0.5F * static_cast<float>(mantissa)) * static_cast<float>(1 << exponent) * 0.5F;
  return bits & 8 ? -value : value;
}

/// Returns the low or the high four bits of a byte.
SPARSEREEL_BOTH inline int nibble(uint8_t byte, bool high) {
  return high ? byte >> 4 : byte & 15;
}

/// The scale and the minimum, 6 bits each, of a group of 32 elements (MiddleBlock).
struct SixBits {
  int scale, minimum;
};
/// Unpacks scale `j` and minimum `j`. The 12 bytes at `s` hold eight scales and eight minimums of 6 bits each.
SPARSEREEL_BOTH inline SixBits six_bits(const uint8_t* s, int j) {
  if (j < 4) return {s[j] & 63, s[j + 4] & 63};
  return {(s[j + 4] & 15) | s[j - 4] >> 6 << 4, s[j + 4] >> 4 | s[j] >> 6 << 4};
}

/// Returns the number for a 4-bit code of ggml's IQ4 formats, whose 16 numbers lie closer together near zero. Each
/// constant holds eight of them as signed bytes, the first in the lowest byte.
SPARSEREEL_BOTH inline float iq4_level(int index) {
  const uint64_t eight = index < 8 ? 0xF6EADDCFBFAD9881 : 0x7159453526190D01;
  return static_cast<float>(static_cast<int8_t>(eight >> 8 * (index % 8) & 0xFF));
}

}  // namespace packed_bits

/// Describes a block of a packed dtype: its number of elements, its size in bytes, and at(), which unpacks the eight
/// elements from `first` on (a multiple of eight). If kHasBlockScale is true, at() leaves out the block's scale, which
/// scale_of() returns. The caller multiplies the elements by this scale times the row's scale.
template <Dtype kDtype>
struct PackedBlock;

/// 32 elements of four or five bits with one scale. Elements j and j + 16 share a byte. With kMinimum, an element is
/// scale * code + minimum; otherwise codes are centered at zero.
template <int kBits, bool kMinimum>
struct SmallBlock {
  static constexpr int elements = 32, header = kMinimum ? 4 : 2, bytes = header + (kBits == 5 ? 4 : 0) + 16;

  SPARSEREEL_BOTH static void at(const uint8_t* block, int first, float* out) {
    const float scale = packed_bits::half_at(block);
    const float minimum = kMinimum ? packed_bits::half_at(block + 2) : -scale * static_cast<float>(1 << (kBits - 1));
    const uint8_t* values = block + header + (kBits == 5 ? 4 : 0);
    for (int i = 0; i < kUnpackedAtOnce; ++i) {
      const int j = first + i;
      int value = packed_bits::nibble(values[j % 16], j >= 16);
      if (kBits == 5) value |= (block[header + j / 8] >> j % 8 & 1) << 4;
      out[i] = kMinimum ? scale * static_cast<float>(value) + minimum
                        : scale * static_cast<float>(value - (1 << (kBits - 1)));
    }
  }
};
template <>
struct PackedBlock<Dtype::q4_0> : SmallBlock<4, false> {};
template <>
struct PackedBlock<Dtype::q4_1> : SmallBlock<4, true> {};
template <>
struct PackedBlock<Dtype::q5_0> : SmallBlock<5, false> {};
template <>
struct PackedBlock<Dtype::q5_1> : SmallBlock<5, true> {};

template <>
struct PackedBlock<Dtype::q8_0> {
  static constexpr int elements = 32, bytes = 34;

  SPARSEREEL_BOTH static void at(const uint8_t* block, int first, float* out) {
    const float scale = packed_bits::half_at(block);
    for (int i = 0; i < kUnpackedAtOnce; ++i)
      out[i] = scale * static_cast<float>(static_cast<int8_t>(block[2 + first + i]));
  }
};

/// 256 elements of four or five bits in groups of 32. Each group has a scale and a minimum. Two groups share their
/// bytes: one has the low four bits, one the high four.
template <int kBits>
struct MiddleBlock {
  static constexpr int elements = 256, bytes = 16 + (kBits == 5 ? 32 : 0) + 128;

  SPARSEREEL_BOTH static void at(const uint8_t* block, int first, float* out) {
    const int group = first / 32, l = first % 32;
    const packed_bits::SixBits six = packed_bits::six_bits(block + 4, group);
    const float scale = packed_bits::half_at(block) * static_cast<float>(six.scale);
    const float minimum = packed_bits::half_at(block + 2) * static_cast<float>(six.minimum);
    const uint8_t* values = block + 16 + (kBits == 5 ? 32 : 0) + group / 2 * 32 + l;
    for (int i = 0; i < kUnpackedAtOnce; ++i) {
      int value = packed_bits::nibble(values[i], group % 2 == 1);
      if (kBits == 5) value |= (block[16 + l + i] >> group & 1) << 4;
      out[i] = scale * static_cast<float>(value) - minimum;
    }
  }
};
template <>
struct PackedBlock<Dtype::q4_k> : MiddleBlock<4> {};
template <>
struct PackedBlock<Dtype::q5_k> : MiddleBlock<5> {};

/// 256 elements of six bits in groups of 16, with one scale for each group. The low four bits and the high two bits of
/// an element are stored in different bytes.
template <>
struct PackedBlock<Dtype::q6_k> {
  static constexpr int elements = 256, bytes = 210;

  SPARSEREEL_BOTH static void at(const uint8_t* block, int first, float* out) {
    const int half = first / 128, quarter = first % 128 / 32, l = first % 32;
    const uint8_t* low = block + 64 * half + (quarter % 2) * 32 + l;
    const uint8_t* high = block + 128 + 32 * half + l;
    const auto group = static_cast<int8_t>(block[192 + first / 16]);
    const float scale = packed_bits::half_at(block + 208) * static_cast<float>(group);
    for (int i = 0; i < kUnpackedAtOnce; ++i) {
      const int value = packed_bits::nibble(low[i], quarter >= 2) | (high[i] >> 2 * quarter & 3) << 4;
      out[i] = scale * static_cast<float>(value - 32);
    }
  }
};

/// 256 elements of three bits in groups of 16. Each group has a 6-bit scale. The third bit of an element is stored in
/// another byte than the low two.
template <>
struct PackedBlock<Dtype::q3_k> {
  static constexpr int elements = 256, bytes = 110;

  SPARSEREEL_BOTH static void at(const uint8_t* block, int first, float* out) {
    const int half = first / 128, pair = first % 128 / 32, l = first % 32, group = first / 16;
    const uint8_t* s = block + 96;
    const int six = (s[group % 8] >> 4 * (group / 8) & 15) | (s[8 + group % 4] >> 2 * (group / 4) & 3) << 4;
    const float scale = packed_bits::half_at(block + 108) * static_cast<float>(six - 32);
    for (int i = 0; i < kUnpackedAtOnce; ++i) {
      const int low = block[32 + 32 * half + l + i] >> 2 * pair & 3;
      out[i] = scale * static_cast<float>(low - ((block[l + i] >> (4 * half + pair) & 1) != 0 ? 0 : 4));
    }
  }
};

/// 256 elements of two bits in groups of 16. Each group has a scale and a minimum of 4 bits.
template <>
struct PackedBlock<Dtype::q2_k> {
  static constexpr int elements = 256, bytes = 84;

  SPARSEREEL_BOTH static void at(const uint8_t* block, int first, float* out) {
    const int half = first / 128, pair = first % 128 / 32, l = first % 32;
    const uint8_t group = block[first / 16];
    const float scale = packed_bits::half_at(block + 80) * static_cast<float>(group & 15);
    const float minimum = packed_bits::half_at(block + 82) * static_cast<float>(group >> 4);
    for (int i = 0; i < kUnpackedAtOnce; ++i)
      out[i] = scale * static_cast<float>(block[16 + 32 * half + l + i] >> 2 * pair & 3) - minimum;
  }
};

/// 32 elements with 4-bit codes (iq4_level()) and one scale. Elements j and j + 16 share a byte.
template <>
struct PackedBlock<Dtype::iq4_nl> {
  static constexpr int elements = 32, bytes = 18;

  SPARSEREEL_BOTH static void at(const uint8_t* block, int first, float* out) {
    const float scale = packed_bits::half_at(block);
    for (int i = 0; i < kUnpackedAtOnce; ++i)
      out[i] = scale * packed_bits::iq4_level(packed_bits::nibble(block[2 + (first + i) % 16], first >= 16));
  }
};

/// 256 elements with 4-bit codes (iq4_level()) in groups of 32. Each group has a 6-bit scale, whose low four bits and
/// high two bits are stored in different bytes.
template <>
struct PackedBlock<Dtype::iq4_xs> {
  static constexpr int elements = 256, bytes = 136;

  SPARSEREEL_BOTH static void at(const uint8_t* block, int first, float* out) {
    const int group = first / 32, l = first % 32;
    const int high = block[2 + group / 4] >> 2 * (group % 4) & 3;
    const int six = packed_bits::nibble(block[4 + group / 2], group % 2 == 1) | high << 4;
    const float scale = packed_bits::half_at(block) * static_cast<float>(six - 32);
    const uint8_t* values = block + 8 + 16 * group;
    for (int i = 0; i < kUnpackedAtOnce; ++i)
      out[i] = scale * packed_bits::iq4_level(packed_bits::nibble(values[(l + i) % 16], l >= 16));
  }
};

/// 8-bit integers. Their scales are in another tensor.
template <>
struct PackedBlock<Dtype::i8> {
  static constexpr int elements = kUnpackedAtOnce, bytes = kUnpackedAtOnce;

  SPARSEREEL_BOTH static void at(const uint8_t* block, int /*first*/, float* out) {
    for (int i = 0; i < kUnpackedAtOnce; ++i) out[i] = static_cast<float>(static_cast<int8_t>(block[i]));
  }
};
template <>
struct PackedBlock<Dtype::f8_e5m2> {  // the upper eight bits of an fp16 number
  static constexpr int elements = kUnpackedAtOnce, bytes = kUnpackedAtOnce;

  SPARSEREEL_BOTH static void at(const uint8_t* block, int /*first*/, float* out) {
    for (int i = 0; i < kUnpackedAtOnce; ++i) out[i] = float_of_half(static_cast<uint16_t>(block[i] << 8));
  }
};
template <>
struct PackedBlock<Dtype::f8_e4m3> {
  static constexpr int elements = kUnpackedAtOnce, bytes = kUnpackedAtOnce;

  SPARSEREEL_BOTH static void at(const uint8_t* block, int /*first*/, float* out) {
    for (int i = 0; i < kUnpackedAtOnce; ++i) out[i] = packed_bits::e4m3_at(block + i);
  }
};

/// 32 e4m3 numbers, then their scale, a power of two (the OCP's microscaling format).
template <>
struct PackedBlock<Dtype::mxfp8> {
  static constexpr int elements = 32, bytes = 33;

  SPARSEREEL_BOTH static void at(const uint8_t* block, int first, float* out) {
    PackedBlock<Dtype::f8_e4m3>::at(block + first, 0, out);
    const float scale = packed_bits::power_at(block + 32);
    for (int i = 0; i < kUnpackedAtOnce; ++i) out[i] *= scale;
  }
};

/// 16 numbers of four bits (e2m1), even elements in the low bits, then their scale in e4m3.
template <>
struct PackedBlock<Dtype::nvfp4> {
  static constexpr int elements = 16, bytes = 9;

  SPARSEREEL_BOTH static float scale_of(const uint8_t* block) { return packed_bits::e4m3_at(block + 8); }
  SPARSEREEL_BOTH static void at(const uint8_t* block, int first, float* out) {
    for (int i = 0; i < kUnpackedAtOnce; ++i)
      out[i] = packed_bits::e2m1(packed_bits::nibble(block[(first + i) / 2], (first + i) % 2 == 1));
  }
};

/// Signed four-bit integers, even elements in the low bits. Their scales are in another tensor.
template <>
struct PackedBlock<Dtype::int4> {
  static constexpr int elements = kUnpackedAtOnce, bytes = kUnpackedAtOnce / 2;

  SPARSEREEL_BOTH static void at(const uint8_t* block, int /*first*/, float* out) {
    for (int i = 0; i < kUnpackedAtOnce; ++i)
      out[i] = static_cast<float>((packed_bits::nibble(block[i / 2], i % 2 == 1) ^ 8) - 8);
  }
};

/// 64 four-bit integers from -8 to 7, stored with 8 added, even elements in the low bits. Two fp32 numbers follow, the
/// scale and the zero point: element = integer * scale + zero.
template <>
struct PackedBlock<Dtype::awq4> {
  static constexpr int elements = 64, bytes = 40;

  SPARSEREEL_BOTH static void at(const uint8_t* block, int first, float* out) {
    const float scale = packed_bits::float_at(block + 32), zero = packed_bits::float_at(block + 36);
    for (int i = 0; i < kUnpackedAtOnce; ++i) {
      const int j = first + i;
      out[i] = static_cast<float>(packed_bits::nibble(block[j / 2], j % 2 == 1) - 8) * scale + zero;
    }
  }
};

/// True for the formats whose blocks have a scale that at() leaves out (PackedBlock::scale_of()).
template <Dtype kDtype>
inline constexpr bool kHasBlockScale = kDtype == Dtype::nvfp4;

/// Numbers that are not packed, in the same interface, because a layer that is joined from several tensors may hold
/// them beside packed rows.
template <int kBytes, float (*kRead)(const uint8_t*)>
struct Numbers {
  static constexpr int elements = kUnpackedAtOnce, bytes = kUnpackedAtOnce * kBytes;

  SPARSEREEL_BOTH static void at(const uint8_t* block, int /*first*/, float* out) {
    for (int i = 0; i < kUnpackedAtOnce; ++i) out[i] = kRead(block + i * kBytes);
  }
};
template <>
struct PackedBlock<Dtype::f32> : Numbers<4, packed_bits::float_at> {};
template <>
struct PackedBlock<Dtype::f16> : Numbers<2, packed_bits::half_at> {};
template <>
struct PackedBlock<Dtype::bf16> : Numbers<2, packed_bits::bfloat_at> {};

}  // namespace sparsereel::models
