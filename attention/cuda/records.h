// Formats in which the kernels exchange data: records (64 tokens of a head in 8 bits, in the layout that tensor cores
// read), their scales, and lists of key blocks.
#pragma once

#include <cstdint>

#include "attention/cuda/kernel_params.h"
#include "attention/host_device.h"

namespace sparsereel::attention::cuda {

constexpr int kRecord = 64;    // tokens in a record
constexpr int kKeyGroups = 4;  // number of int8 scales per K record; keys with equal (key % 8) / 2 share a scale
constexpr int kCell = kMeanCell;
constexpr float kCellLog2 = 4;  // log2(kCell): a mean weighs as much as kCell keys
constexpr int kBlockCells = kRecord / kCell;
constexpr int kMeanBlocks = kRecord / kBlockCells;  // number of blocks whose means form a record of means
/// A V record of the Hopper kernel ends with sets of this many rows, which contain ones. Their product with P gives the
/// sums of P.
constexpr int kOnesRows = 8;
constexpr float kE4m3Max = 448;
constexpr float kE4m3MaxLog2 = 8.807354922F;
constexpr float kLog2e = 1.44269504F;
constexpr float kLn2 = 0.69314718F;
constexpr float kInt8Max = 127;
constexpr float kInt8MinScale = 1e-7F;  // added to max|x| / 127, so that a row of zeros has a valid scale

SPARSEREEL_HOST_DEVICE constexpr int ceil_div(int a, int b) {
  return (a + b - 1) / b;
}

/// Returns the number of tokens before the first block that contains text.
SPARSEREEL_HOST_DEVICE constexpr int video_part(int tokens, int text_tokens) {
  return text_tokens == 0 ? tokens : (tokens - text_tokens) / kRecord * kRecord;
}

SPARSEREEL_HOST_DEVICE constexpr int padded_head_dim(int head_dim) {
  return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256;
}

/// Returns how many of a head's first blocks have means: those with 64 video keys that are not padding. keys: number of
/// keys that are not padding. video: video_part() of all keys.
SPARSEREEL_HOST_DEVICE constexpr int blocks_with_means(int keys, int video) {
  return (keys < video ? keys : video) / kRecord;
}

/// Returns the position, among the 64 keys of a record of means, of the mean of a cell (0..3) of a block (0..15).
SPARSEREEL_HOST_DEVICE constexpr int mean_key(int block, int cell) {
  return block / 4 * 16 + cell / 2 * 8 + block % 4 * 2 + cell % 2;
}

/// Returns how many sets of kOnesRows rows a V record of the Hopper kernel ends with. Their products with P are the
/// sums of P's rows. With D = 64, P is multiplied by two V records at once. A record may be the first or the second of
/// them, so it has a set of rows for each; the sums of the two come out in different columns (ones() in
/// value_records.cuh).
SPARSEREEL_HOST_DEVICE constexpr int ones_sets(int D) {
  return D == 64 ? 2 : 1;
}

/// Returns the byte offset of (row, byte column) in a Q or K record of padded head_dim D.
template <int D>
SPARSEREEL_HOST_DEVICE constexpr int record_offset(int row, int column) {
  const int chunk = (column >> 4) ^ (D == 64 ? (row >> 1) & 3 : row & 7);
  return row * D + chunk * 16 + (column & 15);
}

/// Number of key blocks whose mean rows are stored together.
constexpr int kPooledKeys = 8;

/// Returns the offset of column `column` of the mean row of a key block, among the mean rows of its head. A head has a
/// multiple of kPooledKeys such rows. In this order the lanes of a warp read their next operands from one contiguous
/// piece of memory (select/pooled_rows.cuh).
template <int D>
SPARSEREEL_HOST_DEVICE constexpr int64_t pooled_offset(int block, int column) {
  const int row = block % kPooledKeys * 4 + column % 32 / 8;
  return static_cast<int64_t>(block / kPooledKeys) * kPooledKeys * D + column / 32 * 256 + row * 8 + column % 8;
}

/// Returns the byte offset of (channel row, key position) in a V record that has a row for each channel.
SPARSEREEL_HOST_DEVICE constexpr int value_offset(int row, int position) {
  return row * kRecord + (((position >> 4) ^ ((row >> 1) & 3)) << 4) + (position & 15);
}

/// Returns the position of key 0..63 in a row of a V record that has a row for each channel. Every 16 keys are stored
/// in the order 0 1 8 9 2 3 10 11 4 5 12 13 6 7 14 15.
SPARSEREEL_HOST_DEVICE constexpr int value_position(int key) {
  return (key & ~15) + 4 * ((key & 7) >> 1) + 2 * ((key >> 3) & 1) + (key & 1);
}

/// Returns the byte offset of (key, byte column) in an fp16 V record of padded head_dim D.
template <int D>
SPARSEREEL_HOST_DEVICE constexpr int half_value_offset(int key, int column) {
  return key * 2 * D + ((((column >> 4) ^ (key & 7)) << 4) | (column & 15));
}

/// A list entry has the index of the key block in its low 20 bits. Above them it has a Cover of 2 bits for each group
/// of 64 query rows of the tile.
/// none: the group does not use the block. whole: it uses all keys. causal: each row sees only its own part of the
/// block.
enum class Cover : uint32_t { none = 0, whole = 1, causal = 2 };
constexpr int kBlockBits = 20;
/// Returns the bits of Cover::whole for the first `groups` groups.
SPARSEREEL_HOST_DEVICE constexpr uint32_t whole_for(int groups) {
  return (0b010101U << kBlockBits) & ((1U << (kBlockBits + 2 * groups)) - 1);
}
SPARSEREEL_HOST_DEVICE constexpr int entry_block(uint32_t entry) {
  return entry & ((1 << kBlockBits) - 1);
}
SPARSEREEL_HOST_DEVICE constexpr Cover entry_cover(uint32_t entry, int group) {
  return static_cast<Cover>((entry >> (kBlockBits + 2 * group)) & 3);
}

/// An entry of means refers to a record of means. It has the highest bit set, and the Cover bits in the usual place.
/// The low 16 bits mark the blocks of the record that are dropped; only the means of these blocks are used. The next 4
/// bits hold the low bits of the record's index, and the 5 bits below the highest bit hold the high bits.
constexpr uint32_t kMeanFlag = 1U << 31;
static_assert(kMostMeanKeys == 512 * kRecord * kCell, "the number of a record has 9 bits");
SPARSEREEL_HOST_DEVICE constexpr uint32_t mean_entry(int index, uint32_t dropped, uint32_t covers) {
  const auto i = static_cast<uint32_t>(index);
  return kMeanFlag | covers | dropped | (i & 15) << kMeanBlocks | (i >> 4) << (kBlockBits + 6);
}
SPARSEREEL_HOST_DEVICE constexpr bool is_mean(uint32_t entry) {
  return (entry & kMeanFlag) != 0;
}
SPARSEREEL_HOST_DEVICE constexpr int mean_index(uint32_t entry) {
  return static_cast<int>((entry >> kMeanBlocks & 15) | (entry >> (kBlockBits + 6) & 31) << 4);
}
/// Returns the index, among the records of K and V of the head, of the record that an entry refers to.
SPARSEREEL_HOST_DEVICE constexpr int entry_record(uint32_t entry, int key_blocks) {
  return is_mean(entry) ? key_blocks + mean_index(entry) : entry_block(entry);
}

}  // namespace sparsereel::attention::cuda
