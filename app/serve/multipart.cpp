// Splits a form at its boundary.
#include "app/serve/multipart.h"

#include <algorithm>
#include <string>
#include <utility>

#include "hilbert/error.h"
#include "hilbert/lower_case.h"

namespace sparsereel::app::serve {
namespace {

constexpr std::string_view kFormType = "multipart/form-data", kLineEnd = "\r\n", kDisposition = "content-disposition:";
constexpr size_t kMostLineBytes = 8 << 10, kMostLines = 16;   // limits of a part's header
constexpr size_t kMostParts = 1024, kMostBoundaryBytes = 70;  // RFC 2046 allows boundaries of 70 bytes

Error bad_form(const std::string& problem) {
  return bad_input("the form " + problem, "send multipart/form-data as curl -F does");
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

struct Parameter {
  std::string value;
  bool is_given = false;
};

/// Takes the text up to the closing quote off `rest`.
std::string take_quoted(std::string_view& rest) {
  std::string value;
  size_t place = 1;
  for (; place < rest.size() && rest[place] != '"'; ++place) {
    if (rest[place] == '\\' && place + 1 < rest.size()) ++place;
    value += rest[place];
  }
  rest.remove_prefix(std::min(place + 1, rest.size()));
  return value;
}

/// Returns the parameter `asked` of a header's value such as: form-data; name="a"; filename="b.png".
Parameter parameter_of(std::string_view header, std::string_view asked) {
  for (size_t start = header.find(';'); start != std::string_view::npos; start = header.find(';')) {
    header.remove_prefix(start + 1);
    const size_t end = header.find_first_of(";=");
    if (end == std::string_view::npos || header[end] == ';') continue;
    const std::string name = lower_case(std::string(trimmed(header.substr(0, end))));
    header = trimmed(header.substr(end + 1));
    const bool is_quoted = header.starts_with('"');
    const std::string value =
        is_quoted ? take_quoted(header) : std::string(trimmed(header.substr(0, header.find(';'))));
    if (name == asked) return {.value = value, .is_given = true};
  }
  return {};
}

/// Takes a line off `rest`, without its end.
std::string_view take_line(std::string_view& rest) {
  const size_t end = rest.substr(0, kMostLineBytes + kLineEnd.size()).find(kLineEnd);
  if (end == std::string_view::npos) throw bad_form("has a header that is too long or has no end");
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end + kLineEnd.size());
  return line;
}

/// Reads the headers of a part and takes them off `rest`.
HttpPart take_headers(std::string_view& rest) {
  HttpPart part;
  for (size_t lines = 0;; ++lines) {
    const std::string_view line = take_line(rest);
    if (line.empty()) break;
    if (lines == kMostLines) throw bad_form("has a part with too many headers");
    if (lower_case(std::string(line.substr(0, kDisposition.size()))) != kDisposition) continue;
    part.name = parameter_of(line, "name").value;
    part.is_file = !parameter_of(line, "filename").value.empty();
  }
  if (part.name.empty()) throw bad_form("has a part without a name");
  return part;
}

}  // namespace

bool is_form_type(std::string_view content_type) {
  const std::string_view type = trimmed(content_type.substr(0, content_type.find(';')));
  return type.size() == kFormType.size() && lower_case(std::string(type)) == kFormType;
}

std::vector<HttpPart> parse_multipart(std::string_view body, std::string_view content_type) {
  const std::string boundary = parameter_of(content_type, "boundary").value;
  if (boundary.empty() || boundary.size() > kMostBoundaryBytes) throw bad_form("names no boundary of its parts");
  const std::string first = "--" + boundary, next = "\r\n" + first;
  std::vector<HttpPart> parts;
  if (!body.starts_with(first)) throw bad_form("does not begin with its boundary");
  body.remove_prefix(first.size());
  while (!body.starts_with("--")) {  // "--" follows only the last boundary
    if (!trimmed(take_line(body)).empty()) throw bad_form("has text behind a boundary");
    if (parts.size() == kMostParts) throw bad_form("has more than " + std::to_string(kMostParts) + " parts");
    HttpPart part = take_headers(body);
    const size_t end = body.find(next);
    if (end == std::string_view::npos) throw bad_form("ends within a part");
    part.content = body.substr(0, end);
    body.remove_prefix(end + next.size());
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace sparsereel::app::serve
