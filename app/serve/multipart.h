// Reads forms. The HTTP library's own parser matches headers by recursion, so that a long one overflows the stack. No
// torch.
#pragma once

#include <string_view>
#include <vector>

#include "app/serve/http.h"

namespace sparsereel::app::serve {

/// Returns true if the type is that of a form: "multipart/form-data; boundary=...".
bool is_form_type(std::string_view content_type);

/// Returns the parts of a form, in their order. Throws Error if the body is not a whole form, if a part has no name, or
/// if headers or parts are too many or too long.
std::vector<HttpPart> parse_multipart(std::string_view body, std::string_view content_type);

}  // namespace sparsereel::app::serve
