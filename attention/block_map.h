// The public block map, which says for each 64 x 64 block of QK^T whether it is computed. No torch.
#pragma once

#include <cstdint>
#include <vector>

namespace sparsereel::attention {

constexpr int64_t kBlock = 64;  // rows and columns of a block

inline int64_t blocks_of(int64_t tokens) {
  return (tokens + kBlock - 1) / kBlock;
}

/// One byte for each block, 1 if it is computed and 0 if not: [batch, heads, query_blocks, key_blocks], with
/// query_blocks = ceil(Nq / 64) and key_blocks = ceil(Nk / 64).
struct BlockMap {
  int64_t batch = 0;
  int64_t heads = 0;
  int64_t query_blocks = 0;
  int64_t key_blocks = 0;
  std::vector<uint8_t> bits;

  BlockMap() = default;
  BlockMap(int64_t batch_, int64_t heads_, int64_t query_blocks_, int64_t key_blocks_, bool value)
      : batch(batch_),
        heads(heads_),
        query_blocks(query_blocks_),
        key_blocks(key_blocks_),
        bits(static_cast<size_t>(batch_ * heads_ * query_blocks_ * key_blocks_), value ? 1 : 0) {}

  uint8_t* row(int64_t b, int64_t h, int64_t query_block) {
    return bits.data() + ((b * heads + h) * query_blocks + query_block) * key_blocks;
  }
  const uint8_t* row(int64_t b, int64_t h, int64_t query_block) const {
    return const_cast<BlockMap*>(this)->row(b, h, query_block);
  }
};

}  // namespace sparsereel::attention
