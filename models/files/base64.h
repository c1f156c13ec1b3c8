// Decodes base64. No torch.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sparsereel::models {

/// Returns the bytes of base64 (RFC 4648, section 4); nullopt if the text has a character outside of base64's alphabet.
/// The padding ("=") may be missing.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace sparsereel::models
