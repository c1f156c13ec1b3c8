#include "app/serve/http_rules.h"

#include <gmock/gmock.h>

namespace sparsereel::app::serve {
namespace {

TEST(AskedRange, IsOneRangeOfTheFile) {
  const auto range = [](const char* header) {
    const auto found = asked_range(header, 100);
    return found ? std::to_string(found->first) + "-" + std::to_string(found->last) + (found->is_part ? "" : " whole")
                 : "none";
  };
  EXPECT_EQ(range(""), "0-99 whole");
  EXPECT_EQ(range("lines=1-2"), "0-99 whole");
  EXPECT_EQ(range("bytes=0-9"), "0-9");
  EXPECT_EQ(range("bytes=90-"), "90-99");
  EXPECT_EQ(range("bytes=90-1000"), "90-99");
  EXPECT_EQ(range("bytes=-5"), "95-99");
  EXPECT_EQ(range("bytes=-500"), "0-99");
  for (const char* bad : {"bytes=100-", "bytes=9-8", "bytes=-0", "bytes=", "bytes=-", "bytes=a-b", "bytes=0-1,5-6",
                          "bytes=+1-2", "bytes=99999999999999999999-"})
    EXPECT_EQ(range(bad), "none") << bad;
}

HttpRequest post(std::multimap<std::string, std::string> headers) {
  headers.emplace("host", "localhost");
  return {.method = "POST", .path = "/", .headers = std::move(headers)};
}

TEST(Framing, RefusesBodiesWithoutACertainEnd) {
  const auto status = [](const HttpRequest& request) {
    const auto refused = refusal_of_framing(request);
    return refused ? refused->status : 200;
  };
  EXPECT_EQ(status(post({{"content-length", "5"}})), 200);
  EXPECT_EQ(status(post({{"transfer-encoding", "chunked"}})), 411);
  EXPECT_EQ(status(post({{"content-length", "5"}, {"transfer-encoding", "identity"}})), 411);
  for (const char* length : {"", "+5", "-5", "5x", " 5", "0x5", "9999999999999999999"})
    EXPECT_EQ(status(post({{"content-length", length}})), 400) << length;
  EXPECT_EQ(status(post({{"content-length", "5"}, {"content-length", "5"}})), 400);
  EXPECT_EQ(status(post({{"content-length", "999999999999"}})), 413);
  EXPECT_EQ(status(post({{"content-length", "5"}, {"content-encoding", "gzip"}})), 415);
  EXPECT_EQ(status(post({{"host", "other"}})), 400);
  EXPECT_EQ(status(post({{"content-length ", "5"}})), 400);
  EXPECT_EQ(status(post({{"content-length", "16777217"}})), 413);  // only forms may be so large
  EXPECT_TRUE(has_unread_body({.method = "GET", .path = "/", .headers = {{"content-length", "1"}}}));
  EXPECT_FALSE(has_unread_body({.method = "GET", .path = "/", .headers = {}}));
}

}  // namespace
}  // namespace sparsereel::app::serve
