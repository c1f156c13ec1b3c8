// The options of `bench attention`, as given and as checked. No torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/commands/bench/lists.h"
#include "app/commands/bench/selection_lists.h"
#include "app/measure/workloads.h"
#include "attention/policies/policy.h"

namespace sparsereel::app::bench {

/// Fractions of the key blocks that mode sparse computes where no list says how many.
constexpr const char* kDefaultTopk = "0.5,0.3,0.1";

/// As the command line gives them; unset means the default.
struct AttentionOptions {
  std::vector<std::string> shapes;     // --shape, each one or more of B,H,N,D
  std::vector<std::string> workloads;  // --workload, comma lists of names
  std::string modes = "full,quantized,sparse";
  std::string captured;                     // file of q, k and v; empty: none
  std::optional<std::string> token_orders;  // of it
  SelectionLists sparse;
  std::optional<int64_t> selection_rows;
  std::optional<double> similarity;
  std::optional<double> pv_threshold;
  std::optional<std::string> text_tokens;  // a number, or "model"; unset: 0
  bool causal = false;
  std::string device = "auto";
  std::string dtype = "auto";
  std::optional<int64_t> threads;
  std::optional<std::string> data;  // unset: gaussian
  std::string seed = "42";
  std::optional<int64_t> warmup;
  std::optional<int64_t> repetitions;
  int64_t turn_ms = 0;
  std::optional<int64_t> accuracy_rows;  // unset: 256, of captured data all
  std::optional<std::string> format;
  std::string output;  // empty: stdout
  std::string report;  // empty: none
  bool json = false;
  bool quiet = false;
};

enum class Format { markdown, csv, json };

/// What to measure, checked, in the order of the rows.
struct AttentionPlan {
  std::vector<hilbert::TokenOrder> orders;  // of captured data; empty: there is none
  std::vector<Workload> workloads;          // of made-up data; text_tokens and causal as they will run
  std::vector<attention::Mode> modes;
  std::vector<attention::Policy> policies;  // of the sparse mode, one a row
  std::vector<std::string> left_out;        // of their lists, a sentence each
  std::vector<std::string> warnings;        // of options without effect
  DataKind data = DataKind::gaussian;
  uint64_t seed = 42;
  Format format = Format::markdown;

  bool has(attention::Mode mode) const;
};

/// "full,sparse"; a mode given twice counts once. Throws Error naming the item that is no mode to measure.
std::vector<attention::Mode> parse_modes(const std::string& text);

/// Throws Error for a format other than md, csv and json. Without one the ending of the output decides, .md and .txt
/// being Markdown like none; Error for others.
Format parse_format(const std::optional<std::string>& format, const std::string& output);

/// Throws Error naming the option that is out of range.
AttentionPlan make_plan(const AttentionOptions& options);

}  // namespace sparsereel::app::bench
