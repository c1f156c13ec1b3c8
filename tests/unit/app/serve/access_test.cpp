#include "app/serve/access.h"

#include <gmock/gmock.h>

namespace sparsereel::app::serve {
namespace {

HttpRequest request(const std::string& method, std::multimap<std::string, std::string> headers) {
  return {.method = method, .path = "/", .headers = std::move(headers)};
}

TEST(Access, KnowsLoopbackAddresses) {
  for (const char* host : {"localhost", "LOCALHOST:80", "127.0.0.1", "127.1.2.3:9", "::1", "[::1]:8000"})
    EXPECT_TRUE(is_loopback(host)) << host;
  for (const char* host : {"", "127.evil.org", "localhost.evil.org", "0.0.0.0", "10.0.0.1", "[::2]:1"})
    EXPECT_FALSE(is_loopback(host)) << host;
}

TEST(Access, RefusesForeignHostsAndOrigins) {
  const Access access("127.0.0.1", {"video.example.org"}, "");
  const auto refuses = [&](const std::string& method, const std::string& host, const std::string& origin) {
    HttpRequest asked = request(method, {{"host", host}});
    if (!origin.empty()) asked.headers.emplace("origin", origin);
    return access.refusal_of_origin(asked).has_value();
  };
  EXPECT_FALSE(refuses("GET", "localhost:8000", ""));
  EXPECT_FALSE(refuses("GET", "Video.example.org", ""));
  EXPECT_TRUE(refuses("GET", "example.org", ""));
  EXPECT_TRUE(refuses("GET", "192.168.0.1:8000", ""));
  EXPECT_FALSE(refuses("POST", "localhost:8000", "http://localhost:8000"));
  EXPECT_TRUE(refuses("POST", "localhost:8000", "http://localhost:8001"));
  EXPECT_TRUE(refuses("DELETE", "localhost:8000", "null"));
  EXPECT_FALSE(refuses("GET", "localhost:8000", "http://example.org"));
}

TEST(Access, TakesAnyAddressOfThisMachineButNoNameIfItListensOnAll) {
  const Access access("0.0.0.0", {}, "");
  EXPECT_FALSE(access.refusal_of_origin(request("GET", {{"host", "192.168.0.1:8000"}})));
  EXPECT_TRUE(access.refusal_of_origin(request("GET", {{"host", "example.org"}})));
}

TEST(Access, LetsInTheKeyAndItsSessions) {
  Access access("127.0.0.1", {}, "secret");
  const auto lets_in = [&](const char* name, const std::string& value) {
    return !access.refusal_of_key(request("GET", {{name, value}}));
  };
  EXPECT_TRUE(lets_in("authorization", "Bearer secret"));
  EXPECT_TRUE(lets_in("authorization", "bearer secret"));
  for (const char* wrong : {"", "Bearer", "Bearer ", "Bearer secret ", "Bearer secre", "Basic secret", "secret"})
    EXPECT_FALSE(lets_in("authorization", wrong)) << wrong;
  EXPECT_EQ(access.sign_in("wrong"), "");
  const std::string cookie = access.sign_in("secret");
  EXPECT_THAT(cookie, ::testing::HasSubstr("; HttpOnly; SameSite=Strict"));
  const std::string session = cookie.substr(0, cookie.find(';'));
  EXPECT_TRUE(lets_in("cookie", "a=b; " + session + "; c=d"));
  EXPECT_FALSE(lets_in("cookie", session + "0"));
  EXPECT_FALSE(lets_in("cookie", "sparsereel_session="));
}

}  // namespace
}  // namespace sparsereel::app::serve
