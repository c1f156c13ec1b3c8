// What one call of attention computes and how sparsely: mode, block selection and thresholds of each head. No torch.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace sparsereel::attention {

/// full: every block as exactly as the inputs are, by torch's scaled_dot_product_attention or, to few keys on a GPU, by
/// a kernel of our own. quantized: every block, int8 QK (SageAttention). sparse: predicted blocks only (SpargeAttn).
/// check: sparse and full side by side; the result is sparse's, the error goes to the statistics.
enum class Mode { full, quantized, sparse, check };

/// Whether some blocks are left out, where the policy lets any.
constexpr bool drops_blocks(Mode mode) {
  return mode == Mode::sparse || mode == Mode::check;
}

std::string_view name(Mode mode);
Mode parse_mode(std::string_view text);

/// The kernel that the environment variable SPARSEREEL_ATTENTION_KERNEL names, where the machine can run it: with it
/// tests and comparisons reach the kernels of older machines, and short sequences are not run full. Empty: the fastest.
/// Throws Error for a name that no kernel has.
std::string_view forced_kernel();

/// What stands for the key blocks that are not computed. none: nothing (SpargeAttn). mean: each cell of a few tokens
/// counts as one key, the mean of its keys, which weighs as much as all of them and brings the mean of their values.
enum class Dropped { none, mean };

/// What key blocks are ranked by. mass: their share of the softmax of pooled queries and keys (SpargeAttn). error: how
/// far a mean in their place would be off; needs Dropped::mean.
enum class Ranking { mass, error };

std::string_view name(Dropped dropped);
std::string_view name(Ranking ranking);
Dropped parse_dropped(std::string_view text);
Ranking parse_ranking(std::string_view text);

/// topk: keep a fraction of the key blocks; see HeadPolicy::topk. cdf: keep the fewest blocks that hold a share of what
/// they are ranked by. error: keep the fewest with which the predicted errors of the others stay below a bound.
/// block_error: keep those whose own predicted error is above a bound. Both need Ranking::error.
enum class Selection { topk, cdf, error, block_error };

/// Whether it goes by what is predicted that means err by.
constexpr bool needs_errors(Selection selection) {
  return selection == Selection::error || selection == Selection::block_error;
}

constexpr double kMostError = 1000;  // that a bound allows: far beyond what is of use, and within a GPU's numbers

/// Choice of blocks for one head.
struct HeadPolicy {
  Selection selection = Selection::topk;
  // Fraction of the key blocks kept, at least one of each query tile's. By mass: of each tile's. By error: of those of
  // a batch entry, which go to the heads and tiles that need them most; a head has a budget of its own where policies
  // differ.
  double topk = 0.12;
  double cdf = 0.9;  // share kept of the mass or the predicted error, the crossing block included
  // Most predicted error of a query tile, over the mean length of the head's outputs. Predicted errors add up and real
  // ones partly cancel: the tiny model's measured error (256 x 256) is a quarter of it. This is about topk 0.5 there.
  double error = 0.075;
  // Most predicted error of a block that is not kept, over the mean length of the outputs of a batch entry's heads (of
  // a head's own where policies differ), at least one block kept of each query tile's. One bound for all layers and
  // steps lets the blocks go where means err most, so how many are kept depends on what is drawn. This is about topk
  // 0.4 of the tiny model at 256 x 256; among more blocks each errs by less.
  double block_error = 0.008;
  double similarity = -0.1;  // key or query blocks whose mean cosine similarity is below are always dense; < 0: never
  double pv_threshold = 50;  // skip P.V where no row's maximum rose within this many log2 units; >= 32: never skip
  bool dense = false;        // keep every block

  bool operator==(const HeadPolicy&) const = default;
};

/// A way to say how many blocks are computed.
struct SelectionField {
  Selection selection;
  const char* name;   // of the option
  const char* key;    // in reports and profiles, where `error` is what was measured
  const char* words;  // for people
  double HeadPolicy::*value;
  double most;  // values are above 0
};

/// In the order of Selection.
inline constexpr std::array<SelectionField, 4> kSelections{{
    {Selection::topk, "topk", "topk", "topk", &HeadPolicy::topk, 1},
    {Selection::cdf, "cdf", "cdf", "cdf", &HeadPolicy::cdf, 1},
    {Selection::error, "error", "error_bound", "error", &HeadPolicy::error, kMostError},
    {Selection::block_error, "block_error", "block_error", "block error", &HeadPolicy::block_error, kMostError},
}};

constexpr const SelectionField& field_of(Selection selection) {
  return kSelections[static_cast<size_t>(selection)];
}

/// How blocks are chosen, as far as the calls of a run have it in common.
struct BlockPolicy {
  HeadPolicy defaults;
  Dropped dropped = Dropped::mean;
  Ranking ranking = Ranking::error;
  int64_t cell = 16;             // tokens that share one mean: 16, 32 or 64 (GPU kernels: 16)
  int64_t selection_rows = 192;  // queries that share one selection: 64, 128 or 192; keys come in 64s
  int64_t arithmetic = 8;        // bits in which a GPU multiplies: 8, or 16, those of the tensors. CPUs have fp32
  // Sparse calls of fewer operations, 4 B H Nq Nk D, run full on a GPU: the pre-pass costs more than sparsity gains.
  double dense_operations = 6e10;
};

/// How one call chooses its blocks.
struct CallPolicy : BlockPolicy {
  std::span<const HeadPolicy> heads = {};  // of each head; empty: the defaults for all. Not copied
  bool dense = false;                      // keep every block

  const HeadPolicy& head(int64_t h) const { return heads.empty() ? defaults : heads[static_cast<size_t>(h)]; }
};

/// What blocks are ranked by where only what stands for dropped ones was chosen: BlockPolicy's own ranking beside its
/// own choice, else by the error of the means where there are means.
Ranking usual_ranking(Dropped dropped);

/// HeadPolicy::topk where only what stands for dropped blocks was chosen. Without means more blocks have to be kept.
double usual_topk(Dropped dropped);

/// Throws Error naming the field, `prefix` before it, when a value is outside its range (topk and cdf in (0, 1], errors
/// in (0, kMostError]).
void validate(const HeadPolicy& head, const std::string& prefix);

/// Likewise of all of a call's; `heads`: what the fields of its heads are called, "heads[2].topk". Also throws where
/// they contradict each other.
void validate(const CallPolicy& policy, const std::string& heads = "heads");

/// Counted over a call and summed over calls, in 64 x 64 blocks of [B, H].
struct Statistics {
  int64_t total_blocks = 0;
  int64_t kept_blocks = 0;        // QK blocks computed
  int64_t skipped_pv_blocks = 0;  // of those, blocks whose P.V was skipped
  int64_t mean_blocks = 0;        // what the means of dropped blocks cost besides, in blocks; not in kept_blocks
  int64_t calls = 0;
  double seconds = 0;          // time inside attend() on a CPU; a GPU's calls, which only enqueue, count as 0
  double sum_relative_l1 = 0;  // check mode: sum over calls of sum|o - o_full| / sum|o_full|
  double max_relative_l1 = 0;
  double sum_predicted_error = 0;  // Ranking::error: sum over query tiles of what HeadPolicy::error bounds
  int64_t predicted_tiles = 0;     // how many these are

  /// Share of the QK and PV work left out, in [0, 1).
  double sparsity() const;
  /// What the means cost: their share of the work of full attention.
  double mean_share() const;
  /// Mean over the query tiles for which errors were predicted; 0 without any.
  double predicted_error() const;
  /// What check mode found, over the calls; 0 without a call.
  double mean_relative_l1() const;
  Statistics& operator+=(const Statistics& other);
};

/// All of its fields, in an order that files and ranks rely on.
inline constexpr std::array kStatisticsCounts = {&Statistics::total_blocks,      &Statistics::kept_blocks,
                                                 &Statistics::skipped_pv_blocks, &Statistics::calls,
                                                 &Statistics::mean_blocks,       &Statistics::predicted_tiles};
inline constexpr std::array kStatisticsMeasures = {&Statistics::seconds, &Statistics::sum_relative_l1,
                                                   &Statistics::max_relative_l1, &Statistics::sum_predicted_error};
static_assert(sizeof(Statistics) ==
              kStatisticsCounts.size() * sizeof(int64_t) + kStatisticsMeasures.size() * sizeof(double));

}  // namespace sparsereel::attention
