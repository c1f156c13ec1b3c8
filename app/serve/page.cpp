// Sends the page. Its policy lets the browser load nothing from elsewhere.
#include "app/serve/page.h"

namespace sparsereel::app::serve {

HttpResponse page_response() {
  return {
      .body = std::string(kPage),
      .type = "text/html; charset=utf-8",
      .headers = {{"Content-Security-Policy",
                   "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src 'self' blob: "
                   "data:; media-src 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
                   "frame-ancestors 'none'"},
                  {"Referrer-Policy", "no-referrer"},
                  {"Cache-Control", "no-cache"}}};
}

}  // namespace sparsereel::app::serve
