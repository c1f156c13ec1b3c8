// Stands in for the server in builds without cpp-httplib.
#include "app/serve/http.h"
#include "hilbert/error.h"

namespace sparsereel::app::serve {

void check_http_server() {
  throw bad_input("this build has no HTTP server: cpp-httplib was not there, or not wanted, when it was built",
                  "install libcpp-httplib-dev and build from source with -DSPARSEREEL_SERVE=ON");
}

std::unique_ptr<HttpServer> open_http_server(const HttpOptions& /*options*/, HttpHandler& /*handler*/) {
  check_http_server();
  return nullptr;
}

}  // namespace sparsereel::app::serve
