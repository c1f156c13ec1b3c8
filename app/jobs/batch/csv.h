// Reads comma-separated values as in RFC 4180. No torch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sparsereel::app::sets {

struct CsvRecord {
  int64_t line = 0;  // line where the record starts, from 1
  std::vector<std::string> fields;
};

/// Parses records. Quoted fields may hold commas, line ends and doubled quotes. Lines end with \n or \r\n; empty lines
/// are skipped. Throws Error naming `file` and the line.
std::vector<CsvRecord> parse_csv(std::string_view text, const std::string& file);

}  // namespace sparsereel::app::sets
