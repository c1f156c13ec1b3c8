// Parses JSON that other programs wrote (headers, indexes, configs), with limits on what it may contain. No torch.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

namespace sparsereel::models {

/// Maximum nesting of containers; real files use three levels.
inline constexpr int kMaxJsonDepth = 32;

/// Parses one JSON value. Throws Error naming `source` (a file, or a file and a part of it), with line and column.
/// Refuses text that is not JSON or not UTF-8, nesting deeper than kMaxJsonDepth, and duplicate keys. `remedy` becomes
/// the Error's remedy.
nlohmann::json parse_json(std::string_view text, const std::string& source, const std::string& remedy);

/// Parses text that may not be JSON. Instead of throwing, returns a value for which is_discarded() is true.
nlohmann::json parse_json_if_valid(std::string_view text);

/// Works like parse_json() for CBOR, the binary form of JSON (RFC 8949). Strings in it need not be UTF-8.
nlohmann::json parse_cbor(std::span<const uint8_t> bytes, const std::string& source, const std::string& remedy);

/// Formats a name that comes from a file for an error message: adds quotes, escapes control characters, and cuts it to
/// 120 bytes.
std::string in_quotes(std::string_view name);

/// Returns true for the placeholder text of a Git LFS checkout whose real file was not downloaded.
bool is_git_lfs_pointer(std::string_view start_of_file);

}  // namespace sparsereel::models
