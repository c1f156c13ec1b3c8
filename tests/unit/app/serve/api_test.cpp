#include "app/serve/api.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "tests/support/temporary_folder.h"
#include "tests/support/wait_until.h"
#include "tests/support/waiting_videos.h"

namespace sparsereel::app::serve {
namespace {

/// Tests a server with one worker. The worker finishes a video, or stops a cancelled one, only once `door` is open.
class ApiTest : public ::testing::Test {
 protected:
  ApiTest() {
    id_ = test::add_videos(store_, 1).front();
    workers_.start();
    test::wait_until([&] { return store_.find(id_)->state == VideoState::in_progress; });
  }
  ~ApiTest() override { door_.open(); }

  std::unique_ptr<Maker> start_maker() {
    return std::make_unique<test::FakeMaker>([this](const auto&, auto&, const auto& cancelled) -> MadeVideo {
      door_.wait();
      return outcome_of([&]() -> MadeVideo {
        if (cancelled()) throw models::Cancelled{};
        return {.recipe = {{"seed", 1}}};
      });
    });
  }

  HttpResponse cancel(const std::string& id) {
    HttpRequest request{.method = "POST", .path = "/v1/videos/" + id + "/cancel", .headers = {{"host", "localhost"}}};
    const auto response = api_.before_body(request);
    EXPECT_TRUE(response);
    return response.value_or(HttpResponse());
  }
  static nlohmann::json json_of(const HttpResponse& response) { return nlohmann::json::parse(response.body); }

  const test::TemporaryFolder folder_;
  test::Door door_;
  std::string id_;
  ServedModel model_ = {.settings = {}, .name = "toy", .folders = {}, .hidden = {}};
  VideoStore store_{folder_ / "store", {}};
  EventHub events_;
  Publisher publisher_{store_, events_};
  Metrics metrics_;
  Access access_{"127.0.0.1", {}, ""};
  RequestCheck check_;
  Workers workers_{{.model = model_,
                    .store = store_,
                    .publisher = publisher_,
                    .metrics = metrics_,
                    .is_quiet = true,
                    .most_cancel_wait = std::chrono::milliseconds(50)},
                   {[this] { return start_maker(); }}};
  Api api_{{.model = model_,
            .store = store_,
            .events = events_,
            .publisher = publisher_,
            .metrics = metrics_,
            .access = access_,
            .workers = workers_,
            .check = check_}};
};

TEST_F(ApiTest, AcceptsACancelThatTakesLong) {
  const HttpResponse later = cancel(id_);
  EXPECT_EQ(later.status, 202);
  EXPECT_EQ(json_of(later).at("status"), "in_progress");
  EXPECT_EQ(later.headers.at("openai-poll-after-ms"), "1000");
  door_.open();
  ASSERT_TRUE(test::wait_until([&] { return store_.find(id_)->is_finished(); }));
  EXPECT_EQ(store_.find(id_)->error_code, "cancelled");
  EXPECT_TRUE(test::wait_until([&] { return cancel(id_).status == 409; }));  // 409 once the worker has stopped
}

TEST_F(ApiTest, RefusesACancelWhileTheServerStops) {
  api_.stop();
  std::thread stopper([&] { workers_.stop(); });
  const HttpResponse refused = cancel(id_);
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(json_of(refused).at("error").at("code"), "stopping");
  door_.open();
  stopper.join();
  EXPECT_EQ(store_.find(id_)->error_code, "cancelled");  // the stop of the server does not change the result
}

TEST_F(ApiTest, CancelsAWaitingVideoAtOnce) {
  const std::string waiting = test::add_videos(store_, 1).front();
  const HttpResponse cancelled = cancel(waiting);
  EXPECT_EQ(cancelled.status, 200);
  EXPECT_EQ(json_of(cancelled).at("error").at("code"), "cancelled");
  EXPECT_EQ(cancel("video_x").status, 404);
}

}  // namespace
}  // namespace sparsereel::app::serve
