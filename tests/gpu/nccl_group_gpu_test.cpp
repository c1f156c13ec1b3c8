// Tests that Group over NCCL does what group.h promises, with one process per GPU. Skipped without two GPUs.
#include <ATen/ATen.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/InferenceMode.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

#include "models/engine/components.h"
#include "models/parallel/nccl_group.h"
#include "models/store/weights/device.h"
#include "models/transformer/head_exchange.h"
#include "models/vae/row_split.h"
#include "tests/support/families.h"
#include "tests/support/golden.h"
#include "tests/support/group_contract.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/wait_until.h"

namespace sparsereel::models {
namespace {

using Check = void (*)(Group&, at::Device);

constexpr const char* kMet = "NCCL_TEST_MET";  // the environment variable with the name of a file that rank 1 writes

/// Tells the test that rank 1 works together with rank 0, so that the test may now kill it.
void tell_that_ranks_met(const Group& group) {
  if (group.rank() == 1) test::write_text(std::getenv(kMet), "");
}

/// Exchanges data until another rank is killed, and expects an error that names this rank.
void exchanges_until_the_end(Group& group, at::Device device) {
  const at::Tensor one = at::ones({1}, at::TensorOptions().device(device));
  group.all_reduce_sum(one);
  one.item<float>();  // waits for the GPU
  tell_that_ranks_met(group);
  const std::string said = test::end_of(group, device);
  test::require(said.find("rank 1 (cuda:1) ended") != std::string::npos, said);
}

/// Puts data into windows until another rank is killed. At that time the GPUs wait for data from that rank.
void puts_until_the_end(Group& group, at::Device device) {
  Windows* windows = group.windows(64 << 20, device);
  test::require(windows != nullptr, "windows");
  try {
    for (bool have_met = false;; have_met = true) {
      windows->exchange([&] { windows->of(1 - group.rank()).fill_(1); });
      synchronize(device);
      if (!have_met) tell_that_ranks_met(group);
    }
  } catch (const Error& error) {
    test::require(std::string(error.what()).find("rank 1 (cuda:1) ended") != std::string::npos, error.what());
  }
}

void puts_into_windows(Group& group, at::Device device) {
  test::require(test::puts_into_windows(group, device), "windows");
  test::require(test::puts_into_windows(*group.split(group.rank() % 2), device), "a part's windows");
}

/// Exchanges heads many times without waiting for the GPU in between. The number of text tokens alternates between two
/// values.
void exchanges_heads(Group& group, at::Device device) {
  constexpr int64_t kVideo = 1000, kHeads = 9, kHeadDim = 64;
  const auto options = at::TensorOptions().device(device).dtype(at::kBFloat16);
  const Slice own = slice_of(kVideo, &group), heads = slice_of(kHeads, &group);
  at::Tensor right = at::ones({}, options.dtype(at::kBool));
  for (int64_t round = 0; round < 50; ++round) {
    const int64_t text = round % 2 == 0 ? 20 : 33, tokens = kVideo + text;
    const at::Tensor all = (at::arange(2 * tokens * kHeads, options) * 0.25 + round)
                               .view({2, tokens, kHeads, 1})
                               .repeat({1, 1, 1, kHeadDim});
    const auto mine = [&](const at::Tensor& x) {
      return at::cat({x.narrow(1, own.first, own.count), x.narrow(1, kVideo, text)}, 1);
    };
    const HeadExchange exchange(group, {.batch = 2,
                                        .video_tokens = kVideo,
                                        .text_tokens = text,
                                        .heads = kHeads,
                                        .head_dim = kHeadDim,
                                        .has_moments = false,
                                        .options = options});
    const AttentionRows got = exchange.to_heads([&](int64_t part) { return mine(all + part); }, {});
    const auto seen = [&](const at::Tensor& x, int64_t part) {
      return x.eq((all + part).narrow(2, heads.first, heads.count)).all();
    };
    right = right.logical_and(seen(got.q, 0)).logical_and(seen(got.k, 1)).logical_and(seen(got.v, 2));
    right = right.logical_and(exchange.to_tokens(got.q.contiguous()).eq(mine(all)).all());
  }
  test::require(right.item<bool>(), "heads and tokens came");
  group.close_windows();
}

/// Decodes frames of each family with all ranks, each of which decodes a band of rows. Compares them with frames that
/// one rank decoded.
void decodes_as_one_rank(Group& group, at::Device device) {
  const c10::InferenceMode inference;
  for (const test::ParityCase& one : test::parity_cases("vae_cases.json")) {
    const auto vae = load_vae(test::vae_component(*one.family, one.content["vae"]), device, at::kFloat);
    const at::Tensor golden = test::Golden(one.family->folder + "vae_golden")[one.name + ".latents"];
    if (golden.size(3) < group.size()) continue;
    const RowSplit rows(group, golden.size(3), device);
    std::vector<at::Tensor> pieces;
    vae->decode(golden.to(device), {.rows = &rows}, [&](const at::Tensor& frames) { pieces.push_back(frames); }, {});
    test::require(pieces.empty() == (group.rank() > 0), "the first rank alone takes frames");
    if (group.rank() > 0) continue;
    const at::Tensor alone = vae->decode(golden.to(device), false);
    const auto close = test::close_to(at::cat(pieces, 2), alone, 1e-4);
    test::require(close, one.family->name + " " + one.name + ": " + close.message());
  }
}

/// A group that was prepared must behave like any other. Splitting it twice by the same colors must return the same
/// group.
void is_prepared(Group& group, at::Device device) {
  auto& ranks = dynamic_cast<NcclGroup&>(group);
  ranks.prepare({std::vector<int64_t>(static_cast<size_t>(group.size()), 7)});
  const auto all = group.split(7), again = group.split(7), others = group.split(group.rank() % 2);
  test::require(all == again && all != others, "a split is made once");
  test::exchanges_uneven_pieces(*all, device);
  test::reduces_to_the_same_bits(group, device);
}

const std::array<std::pair<const char*, Check>, 12> kChecks = {{
    {"prepared", is_prepared},
    {"uneven", test::exchanges_uneven_pieces},
    {"large", test::exchanges_large_pieces},
    {"gather", test::gathers_shapes_that_differ},
    {"reduce", test::reduces_to_the_same_bits},
    {"broadcast", test::broadcasts_from_every_root},
    {"split", test::splits_by_color},
    {"windows", puts_into_windows},
    {"heads", exchanges_heads},
    {"decode", decodes_as_one_rank},
    {"abort", test::aborts_for_all},
    {"left", test::names_who_left},
}};

// The environment variables of a rank's process. A forked process cannot use a GPU that its parent has begun to use, so
// a rank runs this program anew.
constexpr const char *kRank = "NCCL_TEST_RANK", *kLinks = "NCCL_TEST_LINKS", *kCheck = "NCCL_TEST_CHECK";

int64_t gpus() {
  return cuda_available() ? at::detail::getCUDAHooks().deviceCount() : 0;
}

std::string text_of_links(const std::vector<Link>& links) {
  std::string text;
  for (const Link& link : links) text += std::to_string(link.data) + " " + std::to_string(link.control) + " ";
  return text;
}

pid_t start_rank(int64_t rank, const std::vector<Link>& links, const char* check) {
  const std::string place = std::to_string(rank), sockets = text_of_links(links);
  const pid_t process = fork();
  if (process != 0) return process;
  for (const Link& link : links)
    for (const int socket : {link.data, link.control})
      if (socket >= 0) fcntl(socket, F_SETFD, 0);
  setenv(kRank, place.c_str(), 1);
  setenv(kLinks, sockets.c_str(), 1);
  setenv(kCheck, check, 1);
  execl("/proc/self/exe", "test_gpu", "--gtest_filter=NcclGroup.RunsOneRankOfAnotherTest", nullptr);
  _exit(9);
}

/// Returns the number of ranks that failed.
int64_t failures(int64_t size, const char* check) {
  const auto links = local_links(size);
  std::vector<pid_t> ranks;
  for (int64_t rank = 0; rank < size; ++rank)
    ranks.push_back(start_rank(rank, links[static_cast<size_t>(rank)], check));
  for (const auto& row : links) close_links(row);
  int64_t failed = 0;
  for (const pid_t process : ranks) {
    int status = 0;
    waitpid(process, &status, 0);
    failed += status == 0 ? 0 : 1;
  }
  return failed;
}

TEST(NcclGroup, RunsOneRankOfAnotherTest) {
  const char *place = std::getenv(kRank), *sockets = std::getenv(kLinks), *name = std::getenv(kCheck);
  if (place == nullptr) GTEST_SKIP() << "this runs one rank for the other tests";
  const int64_t rank = std::atoll(place);
  std::vector<Link> links;
  char* rest = const_cast<char*>(sockets);
  for (char* end = rest;; rest = end) {
    Link link{.data = static_cast<int>(std::strtol(rest, &end, 10)), .control = -1};
    if (end == rest) break;
    link.control = static_cast<int>(std::strtol(end, &end, 10));
    links.push_back(link);
  }
  const at::Device device(at::kCUDA, static_cast<at::DeviceIndex>(rank));
  start_device(device.str());
  const auto control = SocketGroup::connect(rank, links, device.str(), {.start = std::chrono::seconds(60)});
  {
    const auto group = NcclGroup::connect(control, device);
    if (std::string(name) == "forever") exchanges_until_the_end(*group, device);
    if (std::string(name) == "windows-forever") puts_until_the_end(*group, device);
    for (const auto& [each, check] : kChecks)
      if (std::string(each) == name) check(*group, device);
  }
  std::fflush(nullptr);
}

class NcclContract : public ::testing::TestWithParam<std::pair<const char*, Check>> {};

TEST_P(NcclContract, HoldsOnEveryNumberOfGpus) {
  if (gpus() < 2) GTEST_SKIP() << "there are no two GPUs here";
  for (const int64_t size : {int64_t{2}, gpus()}) EXPECT_EQ(failures(size, GetParam().first), 0) << size << " ranks";
}

INSTANTIATE_TEST_SUITE_P(Nccl, NcclContract, ::testing::ValuesIn(kChecks),
                         [](const auto& each) { return std::string(each.param.first); });

class KilledRank : public ::testing::TestWithParam<const char*> {};

TEST_P(KilledRank, EndsTheOtherRanksEvenIfTheirGpusWait) {
  if (gpus() < 2) GTEST_SKIP() << "there are no two GPUs here";
  const test::TemporaryFolder folder;
  const std::filesystem::path met = folder / "met";
  setenv(kMet, met.c_str(), 1);
  const auto links = local_links(2);
  std::vector<pid_t> ranks;
  for (int64_t rank = 0; rank < 2; ++rank)
    ranks.push_back(start_rank(rank, links[static_cast<size_t>(rank)], GetParam()));
  for (const auto& row : links) close_links(row);
  unsetenv(kMet);
  EXPECT_TRUE(test::wait_until([&] { return std::filesystem::exists(met); })) << "they have not met";
  kill(ranks[1], SIGKILL);
  const auto start = std::chrono::steady_clock::now();
  int status = 0;
  waitpid(ranks[0], &status, 0);
  waitpid(ranks[1], nullptr, 0);
  EXPECT_EQ(status, 0);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

INSTANTIATE_TEST_SUITE_P(Nccl, KilledRank, ::testing::Values("forever", "windows-forever"));

}  // namespace
}  // namespace sparsereel::models
