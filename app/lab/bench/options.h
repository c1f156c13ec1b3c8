// The options of `bench attention`, as given and as checked.
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

/// Data on which errors mean something: plain noise has no block that matters more than another.
constexpr const char* kUsualData = "structured";

/// As the command line gives them; unset means the default.
struct AttentionOptions {
  std::vector<std::string> shapes;     // --shape, each one or more of B,H,N,D
  std::vector<std::string> workloads;  // --workload, comma lists of names
  std::string modes = "full,quantized,sparse";
  std::string captured;                     // file of q, k and v; empty: none
  std::optional<std::string> token_orders;  // of it
  Lists lists;
  std::optional<std::string> selection_rows, similarity, pv_threshold;  // one for all rows
  std::optional<std::string> text_tokens;                               // a number, or "model"; unset: 0
  bool causal = false;
  std::string device = "auto";
  std::string dtype = "auto";
  std::optional<int64_t> threads;
  std::optional<std::string> data;  // unset: kUsualData
  std::string seed = "42";
  std::optional<int64_t> warmup;
  std::optional<int64_t> repetitions;
  int64_t turn_ms = 0;
  std::optional<int64_t> accuracy_rows;  // unset: 256, of captured data all
  TableOptions table;
  std::string report;  // empty: none
  bool json = false;
  bool quiet = false;
};

/// Adds them to the command; `options` must outlive the parsing.
void add_options(CLI::App& command, AttentionOptions& options);

/// What to measure, checked, in the order of the rows.
struct AttentionPlan {
  std::vector<hilbert::TokenOrder> orders;  // of captured data; empty: there is none
  std::vector<Workload> workloads;          // of made-up data; text_tokens and causal as they will run
  std::vector<attention::Mode> modes;
  Grid grid;                          // its rows of mode sparse
  std::vector<std::string> warnings;  // of options without effect
  DataKind data = DataKind::structured;
  uint64_t seed = 42;

  bool has(attention::Mode mode) const;
};

/// Throws Error naming the option that is out of range.
AttentionPlan make_plan(const AttentionOptions& options);

}  // namespace sparsereel::app::bench
