#include "app/serve/publisher.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"
#include "tests/support/waiting_videos.h"

namespace sparsereel::app::serve {
namespace {

class PublisherTest : public ::testing::Test {
 protected:
  /// Returns the text that the client of the event stream reads next.
  std::string next() {
    std::string text;
    EXPECT_TRUE(stream_(text));
    return text;
  }

  const test::TemporaryFolder folder_;
  VideoStore store_{folder_ / "store", {}};
  EventHub events_;
  Publisher publisher_{store_, events_};
  const HttpStream stream_ = events_.subscribe([] { return std::string("begin\n"); });
};

TEST_F(PublisherTest, TellsTheQueueInItsOrder) {
  const auto ids = test::add_videos(store_, 3);
  publisher_.queue();
  EXPECT_EQ(next(),
            "begin\nevent: queue\ndata: {\"ids\":[\"" + ids[0] + "\",\"" + ids[1] + "\",\"" + ids[2] + "\"]}\n\n");
  store_.begin_next();
  publisher_.queue();
  EXPECT_EQ(next(), "event: queue\ndata: {\"ids\":[\"" + ids[1] + "\",\"" + ids[2] + "\"]}\n\n");
}

TEST_F(PublisherTest, TellsASlowClientTheNewestQueueOnly) {
  for (int i = 0; i < 5; ++i) {
    test::add_videos(store_, 1);
    publisher_.queue();
  }
  const std::string text = next();
  EXPECT_EQ(text.find("event: queue"), text.rfind("event: queue"));
  EXPECT_EQ(std::ranges::count(text, ','), 4);
}

TEST_F(PublisherTest, TellsTheFirstHundredOfALongQueue) {
  test::add_videos(store_, 120);
  publisher_.queue();
  EXPECT_EQ(std::ranges::count(next(), ','), 99);
}

TEST_F(PublisherTest, TellsADeletedVideoInPlaceOfItsState) {
  const std::string id = test::add_videos(store_, 1).front();
  publisher_.video(id);
  store_.remove(id);
  publisher_.deleted(id);
  publisher_.video(id);  // no event follows, because the video is gone
  EXPECT_EQ(next(), "begin\nevent: deleted\ndata: {\"id\":\"" + id + "\"}\n\n");
}

TEST_F(PublisherTest, TellsPreviewsBesideTheState) {
  const std::string id = test::add_videos(store_, 1).front();
  publisher_.video(id);
  publisher_.preview(id, 3);
  const std::string text = next();
  EXPECT_NE(text.find("\"status\":\"queued\""), std::string::npos);
  EXPECT_NE(text.find("event: preview\ndata: {\"id\":\"" + id + "\",\"step\":3}"), std::string::npos);
}

}  // namespace
}  // namespace sparsereel::app::serve
