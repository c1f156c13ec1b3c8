// JSON text from outside (headers, indexes, configs) into a value, with limits on what it may contain. No torch.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

namespace sparsereel::models {

/// Containers inside containers; real files use three.
inline constexpr int kMaxJsonDepth = 32;

/// Parses one JSON value. Throws Error naming `source` (a file, or a file and its part), with line and column, when the
/// text is not JSON, not UTF-8, nested deeper than kMaxJsonDepth, or an object names a key twice. `remedy` goes into
/// that Error.
nlohmann::json parse_json(std::string_view text, const std::string& source, const std::string& remedy);

/// The same for text that need not be JSON: returns a value of which is_discarded() is true in place of throwing.
nlohmann::json parse_json_if_valid(std::string_view text);

/// parse_json() of the same value in CBOR, whose texts may be any bytes.
nlohmann::json parse_cbor(std::span<const uint8_t> bytes, const std::string& source, const std::string& remedy);

/// A name from outside for an error message: quoted, control characters escaped, cut to a readable length.
std::string in_quotes(std::string_view name);

/// True for the text file of a Git LFS checkout that stands where the real file was not downloaded.
bool is_git_lfs_pointer(std::string_view start_of_file);

}  // namespace sparsereel::models
