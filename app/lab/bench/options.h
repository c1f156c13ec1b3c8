// The options of `bench attention`: AttentionOptions as the command line gives them, and AttentionPlan after they are
// checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/lab/bench/combinations.h"
#include "app/lab/measure/workloads.h"

namespace CLI {
class App;
}

namespace sparsereel::app::bench {

/// The default of --data. Errors on plain noise would say little, because in noise no block matters more than another.
constexpr const char* kUsualData = "structured";

/// The options as the command line gives them. An unset option stands for its default.
struct AttentionOptions {
  std::vector<std::string> shapes;     // --shape; each text holds one or more B,H,N,D
  std::vector<std::string> workloads;  // comma lists of names from --workload
  std::string modes = "full,quantized,sparse";
  std::string captured;                     // file of q, k and v; empty if none
  std::optional<std::string> token_orders;  // token orders for the captured data; "hilbert" if unset
  Lists lists;
  std::optional<std::string> selection_rows, similarity, pv_threshold;  // one value for all rows
  std::optional<std::string> text_tokens;                               // a number, or "model"; 0 if unset
  bool causal = false;
  std::string device = "auto";
  std::string dtype = "auto";
  std::optional<int64_t> threads;
  std::optional<std::string> data;  // kUsualData if unset
  std::string seed = "42";
  std::optional<int64_t> warmup;
  std::optional<int64_t> repetitions;
  int64_t turn_ms = 0;
  std::optional<int64_t> accuracy_rows;  // queries; if unset, 256, or all queries of captured data
  TableOptions table;
  std::string report;  // empty if none
  bool json = false;
  bool quiet = false;
};

/// Adds the options to the command; `options` must outlive the parsing.
void add_options(CLI::App& command, AttentionOptions& options);

/// The checked options. Lists are in the order of the table's rows.
struct AttentionPlan {
  std::vector<hilbert::TokenOrder> orders;  // token orders in which captured data are measured; empty without such data
  std::vector<Workload> workloads;          // workloads with synthetic data
  std::vector<attention::Mode> modes;
  Grid grid;                          // the rows of mode sparse
  std::vector<std::string> warnings;  // about options without effect
  DataKind data = DataKind::structured;
  uint64_t seed = 42;

  bool has(attention::Mode mode) const;
};

/// Checks the options and makes the plan. Throws Error naming an option that is out of range.
AttentionPlan make_plan(const AttentionOptions& options);

}  // namespace sparsereel::app::bench
