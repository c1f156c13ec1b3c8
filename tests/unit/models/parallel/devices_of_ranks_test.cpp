// Tests which GPU or CPU each rank gets.
#include "models/parallel/devices_of_ranks.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

using Devices = std::vector<std::string>;

TEST(DevicesOfRanks, AreGpusInOrderOrTheCpu) {
  EXPECT_EQ(devices_of_ranks(2, "auto", 4), (Devices{"cuda:0", "cuda:1"}));
  EXPECT_EQ(devices_of_ranks(3, "cpu", 0), (Devices{"cpu", "cpu", "cpu"}));
  EXPECT_EQ(devices_of_ranks(3, "cuda", 2, /*may_share=*/true), (Devices{"cuda:0", "cuda:1", "cuda:0"}));
}

TEST(DevicesOfRanks, AreRefusedIfThereAreTooFew) {
  const auto refuses = [](int64_t ranks, const std::string& device, int64_t gpus, std::vector<std::string> words) {
    return test::throws_error([&] { devices_of_ranks(ranks, device, gpus); }, words);
  };
  EXPECT_TRUE(refuses(2, "cuda:1", 4, {"device cuda:1", "gpus is 2"}));
  EXPECT_TRUE(refuses(65, "cpu", 0, {"gpus 65"}));
  EXPECT_TRUE(refuses(0, "auto", 4, {"gpus 0"}));
  EXPECT_TRUE(refuses(3, "auto", 2, {"gpus 3 exceeds the number of GPUs of this machine, 2"}));
  EXPECT_TRUE(refuses(2, "auto", 0, {"gpus 2 exceeds the number of GPUs of this machine, 0"}));
}

}  // namespace
}  // namespace sparsereel::models
