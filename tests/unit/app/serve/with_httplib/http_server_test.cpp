// Tests how long the server waits for slow clients. tests/cli/serve_safety_test.py tests the rest.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "app/serve/http.h"
#include "hilbert/error.h"

namespace sparsereel::app::serve {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// Counts the requests whose bodies have arrived completely.
class CountingHandler final : public HttpHandler {
 public:
  std::optional<HttpResponse> before_body(const HttpRequest& request) override {
    if (request.method == "POST") return std::nullopt;
    return HttpResponse{.body = "{}"};
  }
  HttpResponse handle(const HttpRequest& /*request*/) override {
    ++bodies;
    return {.body = "{}"};
  }
  void answered(int /*status*/) override {}

  std::atomic<int> bodies = 0;
};

class HttpServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      check_http_server();
    } catch (const Error&) {
      GTEST_SKIP() << "this build has no HTTP server";
    }
  }
  void TearDown() override {
    if (client_ >= 0) close(client_);
    if (server_) server_->stop();
    if (thread_.joinable()) thread_.join();
  }

  void start(const HttpTimes& times) {
    server_ = open_http_server({.port = 0, .times = times}, handler_);
    thread_ = std::thread([this] { server_->run(); });
    client_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(server_->port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(connect(client_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    start_ = Clock::now();
  }
  void send_text(const std::string& text) const {
    ASSERT_EQ(send(client_, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  /// Reads until the server closes the connection, and sends `piece` whenever nothing has arrived for 10 ms. Returns
  /// the milliseconds until the connection was closed.
  int64_t milliseconds_until_closed(const std::string& piece) {
    constexpr milliseconds kMost{20'000};
    while (Clock::now() - start_ < kMost) {
      pollfd ready{.fd = client_, .events = POLLIN, .revents = 0};
      if (poll(&ready, 1, 10) == 0) {
        if (!piece.empty()) send(client_, piece.data(), piece.size(), MSG_NOSIGNAL);
        continue;
      }
      char bytes[1024];
      const ssize_t count = recv(client_, bytes, sizeof bytes, 0);
      if (count <= 0) return std::chrono::duration_cast<milliseconds>(Clock::now() - start_).count();
      answer_.append(bytes, static_cast<size_t>(count));
    }
    return kMost.count();
  }

  static constexpr milliseconds kShort{200}, kLong{60'000};
  static constexpr int64_t kAtLeast = 190;  // milliseconds: a little less than kShort, because poll() rounds
  static constexpr int64_t kSoon = 15'000;  // milliseconds: far less than kLong, but enough for a busy machine
  const std::string head_ = "POST /v1/videos HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n";
  CountingHandler handler_;
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
  int client_ = -1;
  Clock::time_point start_;
  std::string answer_;
};

TEST_F(HttpServerTest, ClosesAConnectionWhoseBodyStopsComing) {
  start({.idle = kLong, .head = kLong, .transfer = kShort, .body = kLong});
  send_text(head_ + "{");
  const int64_t took = milliseconds_until_closed("");
  EXPECT_GE(took, kAtLeast);
  EXPECT_LT(took, kSoon);
  EXPECT_EQ(handler_.bodies, 0);
  EXPECT_EQ(answer_.find("HTTP/1.1 2"), std::string::npos);
}

TEST_F(HttpServerTest, ClosesAConnectionWhoseBodyComesTooSlowly) {
  start({.idle = kLong, .head = kLong, .transfer = kLong, .body = kShort});
  send_text(head_);
  const int64_t took = milliseconds_until_closed(" ");
  // The server allows a body the time that it takes at 64 KiB/s.
  EXPECT_GE(took, kAtLeast + 1000 * (100000 >> 10) / 64);
  EXPECT_LT(took, kSoon);
  EXPECT_EQ(handler_.bodies, 0);
}

TEST_F(HttpServerTest, ClosesAConnectionWhoseHeadComesTooSlowly) {
  start({.idle = kLong, .head = kShort, .transfer = kLong, .body = kLong});
  send_text("GET /health HTTP/1.1\r\n");
  const int64_t took = milliseconds_until_closed("a: b\r\n");
  EXPECT_GE(took, kAtLeast);
  EXPECT_LT(took, kSoon);
}

TEST_F(HttpServerTest, ClosesAnIdleConnection) {
  start({.idle = kShort, .head = kLong, .transfer = kLong, .body = kLong});
  const int64_t took = milliseconds_until_closed("");
  EXPECT_GE(took, kAtLeast);
  EXPECT_LT(took, kSoon);
}

TEST_F(HttpServerTest, WaitsForABodyThatComesInPieces) {
  start({.idle = kShort, .head = kShort, .transfer = kLong, .body = kLong});
  send_text("POST /v1/videos HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\n");
  milliseconds_until_closed("x");
  EXPECT_EQ(handler_.bodies, 1);
  EXPECT_EQ(answer_.find("HTTP/1.1 200"), 0U);
}

}  // namespace
}  // namespace sparsereel::app::serve
