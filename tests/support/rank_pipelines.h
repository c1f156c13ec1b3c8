// Opens pipelines of the tiny model for ranks that are threads of one process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/engine/rank_threads.h"

namespace sparsereel::test {

/// Opens one pipeline per rank. `device` is passed to devices_of_threads().
inline std::vector<std::shared_ptr<models::Pipeline>> pipelines_of(int64_t ranks, const std::string& device) {
  std::vector<std::shared_ptr<models::Pipeline>> all;
  for (const std::string& each : models::devices_of_threads(ranks, device))
    all.push_back(models::Pipeline::open(SPARSEREEL_TINY_MODEL, each, "fp32"));
  return all;
}

}  // namespace sparsereel::test
