// The results of `bench attention` and how they are written: Markdown, CSV, JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/commands/bench/selections.h"
#include "app/measure/timing.h"
#include "app/measure/workloads.h"

namespace sparsereel::app::bench {

/// One contender on one workload. What does not apply or is not known is unset: an empty cell, null in JSON.
struct Row {
  Workload workload;
  std::string mode;    // full, quantized, sparse
  std::string kernel;  // what ran
  std::string dtype;
  std::string device;
  SelectionCells selection;
  std::optional<Spread> ms;               // milliseconds
  std::optional<double> prepass_ms;       // of it, before the first block: statistics, quantisation, selection
  std::optional<double> tops;             // 10^12 operations a second, of the blocks that were computed
  std::optional<double> limit_percent;    // tops in percent of what the tensor cores can do at this width
  std::optional<double> speedup;          // time of the fastest dense row of the workload over this one's
  std::optional<double> sparsity;         // share of the work left out, means not counted
  std::optional<double> mean_share;       // what means cost: their share of full attention's work
  std::optional<double> predicted_error;  // what the selection predicts, where it ranks by error
  std::optional<double> rel_l1;           // against exact full attention, pooled over calls
  std::optional<double> cosine;
  std::string note;  // why there is no time
};

/// Fills speedup: the fastest row of mode full over each row. All rows are of one workload.
void compare_with_dense(std::vector<Row>& rows);

/// Columns that are empty in every row are left out.
std::string markdown(const std::vector<Row>& rows);

/// RFC 4180, every column; the head names the units.
std::string csv(const std::vector<Row>& rows);

/// Array of objects; prepass_ms, prepass_percent and token_order only where known.
nlohmann::json to_json(const std::vector<Row>& rows);

}  // namespace sparsereel::app::bench
