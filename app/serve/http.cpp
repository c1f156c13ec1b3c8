// Makes answers in OpenAI's shape.
#include "app/serve/http.h"

#include <cctype>
#include <nlohmann/json.hpp>

namespace sparsereel::app::serve {
namespace {

const char* type_of_error(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 429:
      return "rate_limit_error";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

}  // namespace

std::string HttpRequest::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

HttpResponse error_response(int status, const std::string& code, const std::string& cause, const std::string& remedy,
                            const std::string& param) {
  std::string message = cause;
  if (!remedy.empty()) {
    message += ". " + remedy;
    char& first = message[cause.size() + 2];
    first = static_cast<char>(std::toupper(static_cast<unsigned char>(first)));
  }
  const nlohmann::json error = {{"message", message},
                                {"type", type_of_error(status)},
                                {"param", param.empty() ? nlohmann::json() : nlohmann::json(param)},
                                {"code", code}};
  HttpResponse response;
  response.status = status;
  response.body = nlohmann::json{{"error", error}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  // OpenAI's clients repeat requests that got 408, 409, 429 or 5xx. This header lets them repeat only after 429 and
  // 503, because waiting helps only against these.
  response.headers["x-should-retry"] = status == 429 || status == 503 ? "true" : "false";
  return response;
}

}  // namespace sparsereel::app::serve
