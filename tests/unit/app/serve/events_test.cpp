#include "app/serve/events.h"

#include <gmock/gmock.h>

namespace sparsereel::app::serve {
namespace {

TEST(EventHub, SendsTheNewestEventOfEachKey) {
  EventHub hub;
  const HttpStream stream = hub.subscribe([] { return std::string("first\n"); });
  const auto text_of = [](const char* each) { return [each] { return std::string(each); }; };
  hub.publish("a", text_of("a1\n"));
  hub.publish("b", text_of("b1\n"));
  hub.publish("a", text_of("a2\n"));
  hub.publish("c", text_of(""));
  std::string text;
  EXPECT_TRUE(stream(text));
  EXPECT_EQ(text, "first\nb1\na2\n");
  EXPECT_EQ(hub.clients(), 1U);
  hub.close();
  text.clear();
  EXPECT_FALSE(stream(text));
  EXPECT_EQ(text, "");
}

TEST(EventHub, MakesTheTextWhenAClientReads) {
  EventHub hub;
  int made = 0;
  const auto count = [&] { return std::to_string(++made); };
  hub.publish("a", count);
  EXPECT_EQ(made, 0) << "nobody reads";
  const HttpStream stream = hub.subscribe([] { return std::string(); });
  for (int i = 0; i < 1000; ++i) hub.publish("a", count);
  EXPECT_EQ(made, 0);
  std::string text;
  EXPECT_TRUE(stream(text));
  EXPECT_EQ(text, "1");
}

TEST(EventHub, HasLimitedClients) {
  EventHub hub;
  std::vector<HttpStream> streams;
  for (int i = 0; i < 64; ++i) streams.push_back(hub.subscribe([] { return std::string(); }));
  EXPECT_TRUE(streams.back());
  EXPECT_FALSE(hub.subscribe([] { return std::string(); }));
  streams.pop_back();
  EXPECT_TRUE(hub.subscribe([] { return std::string(); }));
}

}  // namespace
}  // namespace sparsereel::app::serve
