// Decides which requests are let in: by Host and Origin, by the API key, or by the page's session. No torch.
#pragma once

#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/serve/http.h"

namespace sparsereel::app::serve {

/// Returns true for localhost, 127.0.0.0/8 and ::1, with or without brackets.
bool is_loopback(const std::string& host);

/// Returns the host of "host:port", "[::1]:port" or a plain host, in lower case and without brackets.
std::string host_of(std::string_view authority);

/// Compares two texts. The time that this takes does not reveal where they differ.
bool are_equal_in_constant_time(const std::string& a, const std::string& b);

class Access {
 public:
  /// `host` is the address that the server listens on. Host headers may name `allowed_hosts`, too. If `api_key` is
  /// empty, everybody is let in.
  Access(std::string host, std::vector<std::string> allowed_hosts, std::string api_key);

  bool needs_key() const { return !api_key_.empty(); }
  /// Refuses a Host that may be another site's name for this machine (DNS rebinding), and a request that another site's
  /// page makes.
  std::optional<HttpResponse> refusal_of_origin(const HttpRequest& request) const;
  /// Refuses a request that has neither the key nor a session.
  std::optional<HttpResponse> refusal_of_key(const HttpRequest& request) const;
  bool is_signed_in(const HttpRequest& request) const;
  /// Returns the cookie of a new session; empty if the key is wrong.
  std::string sign_in(const std::string& api_key);

 private:
  bool is_allowed(const std::string& host) const;

  const std::string host_;
  const std::vector<std::string> allowed_hosts_;
  const std::string api_key_;
  mutable std::mutex mutex_;
  std::deque<std::string> sessions_;  // values of cookies, newest last
};

}  // namespace sparsereel::app::serve
