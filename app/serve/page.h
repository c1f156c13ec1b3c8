// The page at "/", which is part of the program. No torch.
#pragma once

#include <string_view>

#include "app/serve/http.h"

namespace sparsereel::app::serve {

/// The text of app/serve/page.html. CMake writes it into a source.
extern const std::string_view kPage;

HttpResponse page_response();

}  // namespace sparsereel::app::serve
