// The normal form of byte-level BPE tokenizers.
#pragma once

#include <string>
#include <string_view>

namespace sparsereel::models {

/// Returns normal form C by the tables of Unicode 9. The library tokenizers, which made the ids that models were
/// trained on, has these tables: accents that Unicode added later neither move nor join.
std::u32string normal_form_c_of_tokenizers(std::u32string_view text);

}  // namespace sparsereel::models
