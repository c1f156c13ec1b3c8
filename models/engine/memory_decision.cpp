// Divides GPU and host memory among the parts of a run.
#include "models/engine/memory_decision.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace sparsereel::models {
namespace {

// Bytes for what MemoryFacts does not count: kernels, libraries and the allocator's gaps.
constexpr double kGpuReserve = 0.4 * kBytesOfGibibyte;
constexpr double kHostReserve = 4 * kBytesOfGibibyte;   // bytes for this program, its frames and other programs
constexpr double kPinnedChunk = kBytesOfGibibyte / 64;  // blocks are page-locked in whole chunks
constexpr int64_t kBuffers = 2;                         // one block computes while the next one arrives
constexpr double kPageableRate = 0.4;  // how fast pageable memory is copied, relative to page-locked memory
constexpr double kLoose = 0.75;        // is_tight() is true above this share of the GPU's memory

uint64_t bytes(double value) {
  return static_cast<uint64_t>(std::clamp(value, 0.0, 1e18));
}

int64_t whole(double value) {
  return static_cast<int64_t>(std::clamp(std::floor(value), 0.0, 1e9));
}

bool is_tight(double needed, double gpu) {
  return needed > kLoose * gpu;
}

/// Returns the bytes of the GPU that are left for blocks of transformers, beside a step's tensors and the other
/// weights.
double room_for_blocks(const MemoryFacts& facts, bool frees_vae) {
  return facts.gpu - kGpuReserve - facts.rest - facts.step - (frees_vae ? 0 : facts.vae);
}

/// Divides the streamed blocks among page-locked memory, pageable memory and the file.
void place_in_host(const MemoryFacts& facts, MemoryPlan& plan) {
  const int64_t streamed = plan.streamed();
  const double locked = std::ceil(facts.block / kPinnedChunk) * kPinnedChunk;
  const double usable = std::max(facts.host_free - std::min(kHostReserve, facts.host_free / 4), 0.0);
  const double lockable = std::min(facts.host_total / 2, usable);
  const int64_t pinned = locked > 0 ? std::min(streamed, whole(lockable / locked)) : streamed;
  const double left = usable - static_cast<double>(pinned) * locked;
  plan.pageable = facts.block > 0 ? std::min(streamed - pinned, whole(left / facts.block)) : 0;
  plan.from_file = streamed - pinned - plan.pageable;
  plan.pinned_bytes = bytes(static_cast<double>(pinned) * locked);
  plan.host_bytes = plan.pinned_bytes + bytes(static_cast<double>(plan.pageable) * facts.block);
}

/// Returns the number of transformers that stay in memory. If some blocks are on the GPU and others are streamed, the
/// answer is 1: a transformer is freed before the next one loads. To load it once costs less than to stream more blocks
/// in every step.
int64_t kept_experts(const MemoryFacts& facts, const MemoryPlan& plan) {
  if (facts.experts < 2) return 1;
  const auto all = static_cast<double>(facts.experts);
  if (!plan.streams()) {
    const double weights = facts.rest + static_cast<double>(facts.blocks) * facts.block;
    return weights * (all - 1) <=
                   room_for_blocks(facts, plan.frees_vae) - static_cast<double>(facts.blocks) * facts.block
               ? facts.experts
               : 1;
  }
  if (plan.resident > 0 || plan.pageable + plan.from_file > 0) return 1;
  const double usable = facts.host_free - kHostReserve, locked = static_cast<double>(plan.pinned_bytes);
  const bool holds = locked * all <= std::min(facts.host_total / 2, usable);
  const bool fits = room_for_blocks(facts, true) >= (all - 1) * facts.rest + all * kBuffers * facts.block;
  return holds && fits ? facts.experts : 1;
}

/// Returns the expected seconds of a step; 0 if unknown, as with blocks from files. Copies overlap with computing, so a
/// step takes as long as the longer of the two. Copies from pageable memory are slower.
double seconds_of(const MemoryFacts& facts, const MemoryPlan& plan) {
  if (facts.compute <= 0 || !plan.streams()) return facts.compute;
  if (facts.pinned_rate <= 0 || plan.from_file > 0) return 0;
  const auto pageable = static_cast<double>(plan.pageable);
  const double pinned = static_cast<double>(plan.streamed()) - pageable;
  const double copied = facts.block * (pinned + pageable / kPageableRate) / facts.pinned_rate;
  return std::max(facts.compute, copied * static_cast<double>(facts.passes));
}

/// Returns the plan in which this many blocks stay on the GPU.
MemoryPlan with_resident(const MemoryFacts& facts, int64_t resident) {
  MemoryPlan plan = {.blocks = facts.blocks, .resident = resident, .gpu_bytes = bytes(facts.gpu)};
  const auto kept = static_cast<double>(plan.streams() ? std::min(resident + kBuffers, facts.blocks) : resident);
  plan.frees_vae = kept * facts.block > room_for_blocks(facts, false);
  plan.fits = kept * facts.block <= room_for_blocks(facts, true);
  plan.streams_text = is_tight(facts.text, facts.gpu);
  plan.tiles = facts.has_tiles && is_tight(facts.decode, facts.gpu - facts.vae);
  if (plan.streams()) place_in_host(facts, plan);
  // A block from a file needs GPU memory in addition to the two buffers.
  plan.weight_bytes = bytes(facts.rest + (kept + (plan.from_file > 0 ? 1 : 0)) * facts.block);
  plan.experts = kept_experts(facts, plan);
  plan.pinned_bytes *= static_cast<uint64_t>(plan.experts);
  plan.host_bytes *= static_cast<uint64_t>(plan.experts);
  plan.step_seconds = seconds_of(facts, plan);
  return plan;
}

}  // namespace

MemoryPlan decide(const MemoryFacts& facts) {
  if (facts.block <= 0) return with_resident(facts, facts.blocks);
  const int64_t holds = whole(room_for_blocks(facts, /*frees_vae=*/true) / facts.block);
  if (holds >= facts.blocks) return with_resident(facts, facts.blocks);
  const int64_t resident = std::max<int64_t>(std::min(holds, facts.blocks - 1) - kBuffers, 0);
  MemoryPlan plan = with_resident(facts, resident);
  // Give up one resident block, because a block from a file needs GPU memory besides the two buffers.
  return plan.from_file > 0 && resident > 0 ? with_resident(facts, resident - 1) : plan;
}

bool is_same_with_less(const MemoryFacts& facts, const MemoryPlan& plan, double bytes) {
  MemoryFacts less = facts;
  less.gpu -= bytes;
  const auto places = [](const MemoryPlan& each) {
    return std::tuple(each.resident, each.pageable, each.from_file, each.experts, each.streams_text, each.tiles,
                      each.frees_vae);
  };
  return places(decide(less)) == places(plan);
}

MemoryPlan decide_without_blocks(const MemoryFacts& facts) {
  MemoryPlan plan = with_resident(facts, 0);
  plan.streams_text = true;
  plan.tiles = facts.has_tiles;
  return plan;
}

MemoryPlan decide_with_all_blocks(const MemoryFacts& facts) {
  return with_resident(facts, facts.blocks);
}

std::optional<MemoryPlan> smaller(const MemoryFacts& facts, const MemoryPlan& now) {
  MemoryFacts of_one = facts;
  of_one.experts = 1;
  int64_t resident = now.resident - std::max<int64_t>(facts.blocks / 8, 1) - (now.streams() ? 0 : kBuffers);
  for (; now.resident > 0; --resident) {
    MemoryPlan plan = with_resident(of_one, std::max<int64_t>(resident, 0));
    plan.fits = true;  // cannot be known: memory ran out, so the facts were wrong
    plan.streams_text = plan.streams_text || now.streams_text;
    plan.frees_vae = true;
    // Streaming needs buffers. They may take as much memory as the blocks that leave the GPU; then try fewer blocks.
    if (plan.weight_bytes < now.weight_bytes) return plan;
    if (resident <= 0) break;
  }
  return {};
}

}  // namespace sparsereel::models
