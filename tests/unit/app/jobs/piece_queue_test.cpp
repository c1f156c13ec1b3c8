// Tests the queue of decoded pieces between two threads: it keeps the order, its length is limited, and no thread waits
// for a thread that has stopped.
#include "app/jobs/piece_queue.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <future>
#include <thread>
#include <vector>

namespace sparsereel::app {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;

constexpr int64_t kBytes = 100;

at::Tensor piece(int64_t number) {
  return at::full({kBytes}, number, at::kByte);
}

std::vector<int64_t> take_all(PieceQueue& queue) {
  std::vector<int64_t> numbers;
  while (const auto next = queue.take()) numbers.push_back((*next)[0].item<int64_t>());
  return numbers;
}

TEST(PieceQueue, DeliversAllPiecesInOrder) {
  PieceQueue queue(2 * kBytes);
  auto taken = std::async(std::launch::async, [&] { return take_all(queue); });
  for (int64_t i = 0; i < 7; ++i) EXPECT_TRUE(queue.put(piece(i)));
  queue.close();
  EXPECT_THAT(taken.get(), ElementsAre(0, 1, 2, 3, 4, 5, 6));
}

TEST(PieceQueue, BlocksWhenItHoldsItsLimitOfBytes) {
  PieceQueue queue(2 * kBytes);
  EXPECT_TRUE(queue.put(piece(0)));
  EXPECT_TRUE(queue.put(piece(1)));
  auto third = std::async(std::launch::async, [&] { return queue.put(piece(2)); });
  EXPECT_EQ(third.wait_for(50ms), std::future_status::timeout);
  EXPECT_TRUE(queue.take().has_value());
  EXPECT_TRUE(third.get());
}

TEST(PieceQueue, AcceptsAPieceThatIsLargerThanTheLimit) {
  PieceQueue queue(1);
  EXPECT_TRUE(queue.put(piece(0)));
}

TEST(PieceQueue, WakesAWaitingProducerWhenTheConsumerStops) {
  PieceQueue queue(kBytes);
  EXPECT_TRUE(queue.put(piece(0)));
  auto second = std::async(std::launch::async, [&] { return queue.put(piece(1)); });
  queue.stop();
  EXPECT_FALSE(second.get());
  EXPECT_FALSE(queue.put(piece(2)));
}

TEST(PieceQueue, WakesAWaitingConsumerWhenTheProducerStops) {
  PieceQueue queue(kBytes);
  auto taken = std::async(std::launch::async, [&] { return take_all(queue); });
  queue.stop();
  EXPECT_THAT(taken.get(), ElementsAre());
  EXPECT_TRUE(queue.stopped());
}

}  // namespace
}  // namespace sparsereel::app
