// Comma-separated values as RFC 4180 has them. No torch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sparsereel::app::sets {

struct CsvRecord {
  int64_t line = 0;  // of the record's start, from 1
  std::vector<std::string> fields;
};

/// Quoted fields may hold commas, line ends and doubled quotes; lines end with \n or \r\n; empty lines are skipped.
/// Throws Error naming `file` and line.
std::vector<CsvRecord> parse_csv(std::string_view text, const std::string& file);

}  // namespace sparsereel::app::sets
