// The policy of a call: its mode, its block selection and the thresholds of each head. No torch.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace sparsereel::attention {

/// How attention is computed.
/// full: every block, at the precision of the inputs. torch's scaled_dot_product_attention computes it, or our own
/// kernel for calls with few keys on a GPU.
/// quantized: every block, with int8 QK (SageAttention).
/// sparse: only selected blocks (SpargeAttn).
/// check: sparse, then full. Returns the result of sparse, and adds its error against full to the statistics.
enum class Mode { full, quantized, sparse, check };

/// Returns true if the mode may drop blocks.
constexpr bool drops_blocks(Mode mode) {
  return mode == Mode::sparse || mode == Mode::check;
}

std::string_view name(Mode mode);
Mode parse_mode(std::string_view text);

/// Returns the kernel that the environment variable SPARSEREEL_ATTENTION_KERNEL names; empty if the variable is unset.
/// If it is set, attend() uses this kernel where the machine supports it, and does not switch to full attention for
/// short sequences. Tests use this to run the kernels of older machines. Throws Error for an unknown name.
std::string_view forced_kernel();

/// The replacement of key blocks that are not computed.
/// none: nothing (SpargeAttn).
/// mean: one key and one value for each cell, a group of 16 consecutive tokens (BlockPolicy::cell). They are the means
/// of the cell's keys and values, and they have the weight of all its tokens.
enum class Dropped { none, mean };

/// The measure by which key blocks are ranked.
/// mass: the block's share of the softmax of mean queries and mean keys (SpargeAttn).
/// error: the error that is predicted if means replace the block; requires Dropped::mean.
enum class Ranking { mass, error };

std::string_view name(Dropped dropped);
std::string_view name(Ranking ranking);
Dropped parse_dropped(std::string_view text);
Ranking parse_ranking(std::string_view text);

/// The rule that decides which blocks are kept, that is, computed.
/// topk: a fraction of the key blocks; see HeadPolicy::topk.
/// cdf: the fewest blocks that hold a given share of the total mass or predicted error.
/// error: the fewest blocks such that the predicted error of the dropped blocks stays below a bound.
/// block_error: the blocks whose own predicted error is above a bound.
/// error and block_error require Ranking::error.
enum class Selection { topk, cdf, error, block_error };

/// Returns true if the selection uses the predicted errors of means.
constexpr bool needs_errors(Selection selection) {
  return selection == Selection::error || selection == Selection::block_error;
}

constexpr double kMostError = 1000;  // largest bound on an error that a policy may set: far above useful values, and
                                     // small enough for the GPU kernels' number formats

/// The settings by which blocks are chosen for one head.
struct HeadPolicy {
  Selection selection = Selection::topk;
  // Fraction of the key blocks to keep. If blocks are ranked by mass, each query tile keeps this fraction. If they are
  // ranked by error, all heads and tiles of a batch entry share one budget, which keeps the blocks with the largest
  // errors; if heads have different policies, each head has a budget of its own. Each tile keeps at least one block.
  double topk = 0.12;
  double cdf = 0.9;  // share of the total mass or predicted error to keep; the block that reaches it is kept too
  // Bound on the predicted error of a query tile, relative to the mean length of the head's output vectors. The
  // predicted errors of blocks are added up, while real errors partly cancel. In the tiny model at 256 x 256, the
  // measured error is a quarter of the predicted error, and the default bound keeps about as many blocks as topk 0.5.
  double error = 0.075;
  // Bound on the predicted error of a dropped block, relative to the mean length of the output vectors of all heads of
  // a batch entry. If heads have different policies, it is relative to the output vectors of the head alone. At least
  // one block per query tile is kept. The number of kept blocks depends on the video: more are kept in the layers and
  // steps where means would err more. The default keeps about as many blocks as topk 0.4 in the tiny model at 256 x
  // 256.
  double block_error = 0.008;
  /// A key block or query tile whose tokens have a mean cosine similarity below this value is always computed. A
  /// negative value turns this off.
  double similarity = -0.1;
  // P.V is skipped for a block if all its scores lie at least this many log2 units below the largest scores of their
  // queries. With 32 or more, P.V is never skipped.
  double pv_threshold = 50;
  bool dense = false;  // keep every block

  bool operator==(const HeadPolicy&) const = default;
};

/// One of the values of Selection, with the field of HeadPolicy that is its fraction, share or bound.
struct SelectionField {
  Selection selection;
  const char* name;   // name of the option
  const char* key;    // key in reports and profiles; there `error` is a measured error, so the bound is `error_bound`
  const char* words;  // name in texts for people
  double HeadPolicy::*value;
  double most;  // largest allowed value; the value must also be above 0
};

/// One row for each value of Selection, in the order of the enumeration.
inline constexpr std::array<SelectionField, 4> kSelections{{
    {Selection::topk, "topk", "topk", "topk", &HeadPolicy::topk, 1},
    {Selection::cdf, "cdf", "cdf", "cdf", &HeadPolicy::cdf, 1},
    {Selection::error, "error", "error_bound", "error", &HeadPolicy::error, kMostError},
    {Selection::block_error, "block_error", "block_error", "block error", &HeadPolicy::block_error, kMostError},
}};

constexpr const SelectionField& field_of(Selection selection) {
  return kSelections[static_cast<size_t>(selection)];
}

/// The settings of block selection that all calls of a run share.
struct BlockPolicy {
  HeadPolicy defaults;
  Dropped dropped = Dropped::mean;
  Ranking ranking = Ranking::error;
  int64_t cell = 16;             // tokens that share one mean: 16, 32 or 64 (GPU kernels: 16)
  int64_t selection_rows = 192;  // queries that share one selection: 64, 128 or 192
  int64_t arithmetic = 8;        // bits in which a GPU multiplies: 8, or 16 in the tensors' type. No effect on CPUs
  // GPU calls of mode sparse with fewer operations (4 B H Nq Nk D) run in mode full, because choosing blocks would take
  // longer than dropping blocks saves.
  double dense_operations = 6e10;
};

/// The settings of block selection in one call.
struct CallPolicy : BlockPolicy {
  std::span<const HeadPolicy> heads = {};  // policy of each head, not owned; empty if all heads use the defaults
  bool dense = false;                      // keep every block

  const HeadPolicy& head(int64_t h) const { return heads.empty() ? defaults : heads[static_cast<size_t>(h)]; }
};

/// Returns the ranking to use if the user chose the replacement of dropped blocks but no ranking: error for means, mass
/// for none.
Ranking usual_ranking(Dropped dropped);

/// Returns the HeadPolicy::topk to use if the user chose the replacement but no topk. Without means, more blocks must
/// be kept for the same quality.
double usual_topk(Dropped dropped);

/// Throws Error if a value is outside its range: topk and cdf in (0, 1], error and block_error in (0, kMostError],
/// similarity in [-1, 1], pv_threshold at least 0. The message names the field with `prefix` before it.
void validate(const HeadPolicy& head, const std::string& prefix);

/// Checks the whole policy of a call, including each head's policy. Also throws Error if two values contradict each
/// other. `heads` is the name of the list of heads in messages, as in "heads[2].topk".
void validate(const CallPolicy& policy, const std::string& heads = "heads");

/// Counts and measurements of a call, or sums over calls. Blocks are 64 x 64, over all batch entries and heads.
struct Statistics {
  int64_t total_blocks = 0;
  int64_t kept_blocks = 0;        // QK blocks computed
  int64_t skipped_pv_blocks = 0;  // computed blocks whose P.V was skipped
  /// Cost of attention to the means that replace dropped blocks, as a number of blocks; not part of kept_blocks.
  int64_t mean_blocks = 0;
  int64_t calls = 0;
  double seconds = 0;              // time inside attend() on a CPU; 0 for GPU calls, which only enqueue
  double sum_relative_l1 = 0;      // mode check: sum over calls of sum|o - o_full| / sum|o_full|
  double max_relative_l1 = 0;      // mode check: largest of these errors
  double sum_predicted_error = 0;  // Ranking::error: sum of the predicted errors of query tiles; see HeadPolicy::error
  int64_t predicted_tiles = 0;     // number of these query tiles

  /// Returns the share of the QK and PV work that was left out, from 0 to 1.
  double sparsity() const;
  /// Returns the cost of the means as a share of the work of full attention.
  double mean_share() const;
  /// Returns the average predicted error of a query tile; 0 if none was predicted.
  double predicted_error() const;
  /// Returns the average relative error that mode check found; 0 without a call.
  double mean_relative_l1() const;
  Statistics& operator+=(const Statistics& other);
};

/// All fields of Statistics. Saved runs and exchanges between ranks store the fields in this order.
inline constexpr std::array kStatisticsCounts = {&Statistics::total_blocks,      &Statistics::kept_blocks,
                                                 &Statistics::skipped_pv_blocks, &Statistics::calls,
                                                 &Statistics::mean_blocks,       &Statistics::predicted_tiles};
inline constexpr std::array kStatisticsMeasures = {&Statistics::seconds, &Statistics::sum_relative_l1,
                                                   &Statistics::max_relative_l1, &Statistics::sum_predicted_error};
static_assert(sizeof(Statistics) ==
              kStatisticsCounts.size() * sizeof(int64_t) + kStatisticsMeasures.size() * sizeof(double));

}  // namespace sparsereel::attention
