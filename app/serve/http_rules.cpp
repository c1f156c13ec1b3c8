// Checks the headers that say where a request's body ends.
#include "app/serve/http_rules.h"

#include <algorithm>
#include <cctype>

#include "hilbert/lower_case.h"
#include "hilbert/read_text.h"

namespace sparsereel::app::serve {
namespace {

bool is_digits(std::string_view text) {
  constexpr size_t kMostDigits = 18;
  return !text.empty() && text.size() <= kMostDigits &&
         std::ranges::all_of(text, [](unsigned char each) { return std::isdigit(each) != 0; });
}

bool is_header_name(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](unsigned char each) { return std::isgraph(each) != 0; });
}

}  // namespace

std::optional<FileRange> asked_range(std::string_view header, int64_t size) {
  const FileRange whole{.first = 0, .last = size - 1};
  if (!header.starts_with("bytes=")) return whole;
  header.remove_prefix(6);
  const size_t dash = header.find('-');
  if (dash == std::string_view::npos || header.find(',') != std::string_view::npos) return std::nullopt;
  const std::string_view first = header.substr(0, dash), last = header.substr(dash + 1);
  if ((!first.empty() && !is_digits(first)) || (!last.empty() && !is_digits(last))) return std::nullopt;
  const auto number = [](std::string_view text) { return parse_number<int64_t>(std::string(text)).value_or(0); };
  FileRange range{.first = 0, .last = size - 1, .is_part = true};
  if (first.empty())
    range.first = std::max<int64_t>(0, size - number(last));  // "bytes=-N" asks for the last N bytes
  else
    range.first = number(first);
  if (!first.empty() && !last.empty()) range.last = std::min(number(last), size - 1);
  if (range.first > range.last || (first.empty() && number(last) == 0)) return std::nullopt;
  return range;
}

uint64_t length_of_body(const HttpRequest& request) {
  return parse_number<uint64_t>(request.header("content-length")).value_or(0);
}

uint64_t memory_of_body(const HttpRequest& request) {
  const uint64_t copies = request.is_multipart ? 2 : 8;  // the tree of a JSON text is larger than the text
  return copies * length_of_body(request);
}

bool has_unread_body(const HttpRequest& request) {
  return request.method != "POST" && length_of_body(request) > 0;
}

std::optional<HttpResponse> refusal_of_framing(const HttpRequest& request) {
  // Refuse names such as "Content-Length ", because a proxy may read "Content-Length : 5" as a length.
  if (std::ranges::any_of(request.headers, [](const auto& each) { return !is_header_name(each.first); }))
    return error_response(400, "invalid_header", "a header has an invalid name", "leave no space before the colon");
  if (request.count("transfer-encoding") > 0)
    return error_response(411, "length_required", "the body has a transfer encoding, so its length is not known",
                          "send it with Content-Length");
  if (request.count("content-length") > 1 ||
      (request.count("content-length") == 1 && !is_digits(request.header("content-length"))))
    return error_response(400, "invalid_length", "Content-Length is not one number", "send the length once");
  if (request.count("host") != 1)
    return error_response(400, "invalid_host", "the request does not have one Host header", "send one");
  const uint64_t most = request.is_multipart ? kMostBodyBytes : kMostJsonBytes;
  if (length_of_body(request) > most)
    return error_response(413, "body_too_large", "the body has more than " + std::to_string(most >> 20U) + " MiB",
                          request.is_multipart ? "scale the images down" : "send large images as files of a form");
  const std::string encoding = lower_case(request.header("content-encoding"));
  if (!encoding.empty() && encoding != "identity")
    return error_response(415, "compressed_body", "the body is compressed", "send it without Content-Encoding");
  return std::nullopt;
}

HttpResponse refusal_of_status(int status) {
  switch (status) {
    case 413:
      return error_response(413, "body_too_large", "the body is too large", "scale the images down");
    case 414:
      return error_response(414, "path_too_long", "the path is too long", "see /v1/options for the fields");
    case 416:
      return error_response(416, "invalid_range", "the file has no such range", "ask for one range of it");
    case 404:
      return error_response(404, "not_found", "there is no such page", "see /v1/videos");
    default:
      return error_response(status, "invalid_request", "this is not a valid HTTP request", "correct it");
  }
}

}  // namespace sparsereel::app::serve
