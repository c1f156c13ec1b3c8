// Unicode normalization form C (NFC), as byte-level BPE tokenizers need it.
#pragma once

#include <string>
#include <string_view>

namespace sparsereel::models {

/// Returns normal form C by the tables of Unicode 9. Models were trained on ids from Hugging Face's library
/// `tokenizers`, which has these tables: accents that Unicode added later are neither reordered nor joined to letters.
std::u32string normal_form_c_of_tokenizers(std::u32string_view text);

}  // namespace sparsereel::models
