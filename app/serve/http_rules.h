// Rules for heads of requests that do not depend on the server's routes. No torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "app/serve/http.h"

namespace sparsereel::app::serve {

/// Bytes `first` to `last` of a file.
struct FileRange {
  int64_t first = 0, last = 0;
  bool is_part = false;  // true if a range in bytes was asked for
};

/// Reads a Range header for a file of `size` bytes. Returns the whole file if the header is empty or in other units.
/// Returns nothing if the range is malformed, if no byte of it exists, or if there are several ranges.
std::optional<FileRange> asked_range(std::string_view header, int64_t size);

/// Refuses bodies whose end is not certain, because such a body can hide another request (request smuggling): bodies
/// with a transfer encoding, and bodies with several or invalid lengths. Also refuses invalid names of headers, bodies
/// that are compressed or too large, and requests without exactly one Host header.
std::optional<HttpResponse> refusal_of_framing(const HttpRequest& request);

/// Returns true if the request has a body that the server does not read. It reads the bodies of POST only.
bool has_unread_body(const HttpRequest& request);

/// Returns the body and headers for an error status that the HTTP library has set without the handler.
HttpResponse refusal_of_status(int status);

/// Returns the length that the request gives its body; 0 if it gives none.
uint64_t length_of_body(const HttpRequest& request);

/// Returns an estimate of the bytes that the request's body takes in memory while it is parsed.
uint64_t memory_of_body(const HttpRequest& request);

}  // namespace sparsereel::app::serve
