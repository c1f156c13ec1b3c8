// Unicode's normal form C: canonical decomposition, then composition (Unicode Standard Annex 15; tables of Unicode 14).
#pragma once

#include <string>
#include <string_view>

namespace sparsereel::models {

/// Accents join the letter before them, in the form that most texts have: "e" and a combining acute become "é".
std::u32string normal_form_c(std::u32string_view text);

}  // namespace sparsereel::models
