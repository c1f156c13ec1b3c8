// Compares keys, hosts and origins.
#include "app/serve/access.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <utility>

#include "app/serve/random_name.h"
#include "hilbert/lower_case.h"
#include "hilbert/read_text.h"
#include "models/files/sha256.h"

namespace sparsereel::app::serve {
namespace {

constexpr size_t kMostSessions = 1000;
constexpr const char* kCookie = "sparsereel_session";

bool is_address(const std::string& host) {
  std::array<unsigned char, 16> ignored{};
  return inet_pton(AF_INET, host.c_str(), ignored.data()) == 1 ||
         inet_pton(AF_INET6, host.c_str(), ignored.data()) == 1;
}

bool is_any_address(const std::string& host) {
  return host == "0.0.0.0" || host == "::";
}

/// Returns the value of our cookie; empty if there is none.
std::string session_of(const HttpRequest& request) {
  for (std::string part : split(request.header("cookie"), ';')) {
    part.erase(0, part.find_first_not_of(' '));
    if (part.starts_with(std::string(kCookie) + "=")) return part.substr(std::string_view(kCookie).size() + 1);
  }
  return {};
}

}  // namespace

std::string host_of(std::string_view authority) {
  if (authority.starts_with('['))
    authority = authority.substr(1, authority.find(']') - 1);
  else if (std::ranges::count(authority, ':') == 1)
    authority = authority.substr(0, authority.find(':'));
  return lower_case(std::string(authority));
}

bool is_loopback(const std::string& host) {
  const std::string name = host_of(host);
  return name == "localhost" || name == "::1" || (name.starts_with("127.") && is_address(name));
}

bool are_equal_in_constant_time(const std::string& a, const std::string& b) {
  // Compare digests of the texts instead of the texts. All digests have the same length, and their key is random, so
  // the time that the comparison takes reveals nothing about the texts.
  static const std::string key = random_name();
  const models::Sha256Digest left = models::hmac_sha256(key, a), right = models::hmac_sha256(key, b);
  unsigned difference = 0;
  for (size_t i = 0; i < left.size(); ++i) difference |= static_cast<unsigned>(left.at(i) ^ right.at(i));
  return difference == 0;
}

Access::Access(std::string host, std::vector<std::string> allowed_hosts, std::string api_key)
    : host_(host_of(host)), allowed_hosts_(std::move(allowed_hosts)), api_key_(std::move(api_key)) {}

/// Returns true if a Host header may name this host. A server that listens on all addresses accepts every IP address as
/// its host. It does not accept every name, because another site may let its own name point at this machine.
bool Access::is_allowed(const std::string& host) const {
  return is_loopback(host) || host == host_ || (is_any_address(host_) && is_address(host)) ||
         std::ranges::any_of(allowed_hosts_, [&](const std::string& each) { return host_of(each) == host; });
}

std::optional<HttpResponse> Access::refusal_of_origin(const HttpRequest& request) const {
  const std::string host = host_of(request.header("host"));
  if (!is_allowed(host))
    return error_response(403, "host_not_allowed",
                          "the Host header names " + host + ", which this server does not know",
                          "use the address that the server printed, or start it with --allow-host " + host);
  if (request.count("origin") == 0 || request.method == "GET" || request.method == "HEAD") return std::nullopt;
  const std::string origin = lower_case(request.header("origin"));
  const size_t scheme = origin.find("://");
  if (scheme != std::string::npos && origin.substr(scheme + 3) == lower_case(request.header("host")))
    return std::nullopt;
  return error_response(403, "origin_not_allowed", "the request comes from a page of another site: " + origin,
                        "use the server's own page");
}

std::optional<HttpResponse> Access::refusal_of_key(const HttpRequest& request) const {
  if (!needs_key() || is_signed_in(request)) return std::nullopt;
  HttpResponse refused = error_response(401, "invalid_api_key", "the API key is missing or wrong",
                                        "send the header 'Authorization: Bearer KEY', or sign in on the page");
  refused.headers["WWW-Authenticate"] = "Bearer";
  return refused;
}

bool Access::is_signed_in(const HttpRequest& request) const {
  if (!needs_key()) return true;
  const std::string given = request.header("authorization");
  constexpr std::string_view kScheme = "bearer ";
  if (lower_case(given.substr(0, kScheme.size())) == kScheme &&
      are_equal_in_constant_time(given.substr(kScheme.size()), api_key_))
    return true;
  const std::string session = session_of(request);
  if (session.empty()) return false;
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(sessions_,
                             [&](const std::string& each) { return are_equal_in_constant_time(each, session); });
}

std::string Access::sign_in(const std::string& api_key) {
  if (needs_key() && !are_equal_in_constant_time(api_key, api_key_)) return {};
  const std::string session = random_name() + random_name();
  const std::lock_guard lock(mutex_);
  sessions_.push_back(session);
  if (sessions_.size() > kMostSessions) sessions_.pop_front();
  return std::string(kCookie) + "=" + session + "; HttpOnly; SameSite=Strict; Path=/";
}

}  // namespace sparsereel::app::serve
