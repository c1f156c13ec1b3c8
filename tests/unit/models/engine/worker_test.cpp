// Tests which messages a worker refuses.
#include "models/engine/worker.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "models/parallel/messages.h"
#include "models/parallel/socket_group.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

class SocketRank final : public Rank {
 public:
  explicit SocketRank(std::shared_ptr<SocketGroup> control) : control_(std::move(control)) {}
  SocketGroup& control() override { return *control_; }
  Group& group() override { return *control_; }
  void check() const override { control_->check(); }
  void end(const Error& error) noexcept override { control_->end(error); }

 private:
  std::shared_ptr<SocketGroup> control_;
};

/// Runs a worker as rank 1 and lets rank 0 send messages with `tell_it`. Passes if the worker ends with an error that
/// contains `words`.
::testing::AssertionResult refuses(const std::function<void(Rank& leader)>& tell_it, const std::string& words) {
  const auto links = local_links(2);
  auto second = std::async(std::launch::async, [&] {
    SocketRank worker(SocketGroup::connect(1, links[1], "second"));
    return test::throws_error(
        [&] {
          work(worker, {.device = "cpu", .open = [](const nlohmann::json&) {
                          return Pipeline::open(SPARSEREEL_TINY_MODEL, "cpu", "fp32");
                        }});
        },
        {words});
  });
  SocketRank leader(SocketGroup::connect(0, links[0], "first"));
  tell_it(leader);
  return second.get();
}

TEST(Worker, RefusesUnknownMessages) {
  EXPECT_TRUE(refuses([](Rank& leader) { send_message(leader.control(), {{"what", "dance"}}); }, "dance"));
  EXPECT_TRUE(refuses(
      [](Rank& leader) {
        send_message(leader.control(), {{"what", "video"}});
      },
      "video"))
      << "of no model yet";
}

TEST(Worker, RefusesAVideoThatDiffersFromThatOfRank0) {
  const auto other_recipe = [](Rank& leader) {
    send_model(leader, nlohmann::json::object());
    Request request;
    request.prompt = "a red circle";
    send_message(leader.control(), {{"what", "video"},
                                    {"request", json_of(request)},
                                    {"policy_file", ""},
                                    {"image_size", nullptr},
                                    {"recipe", {{"steps", 12345}}},
                                    {"decode", true}});
  };
  EXPECT_TRUE(refuses(other_recipe, "rank 1 would make a different video from rank 0: steps is "));
}

TEST(Worker, RefusesNumbersOutsideTheirRange) {
  EXPECT_EQ(told_number({{"threads", 4}}, "threads", 1, 8), 4);
  EXPECT_TRUE(test::throws_error(
      [] {
        told_number({{"threads", 9}}, "threads", 1, 8);
      },
      {"impossible number of threads, 9"}));
}

}  // namespace
}  // namespace sparsereel::models
