#include "app/serve/workers.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "app/serve/planner.h"
#include "models/files/write_failure.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/wait_until.h"
#include "tests/support/waiting_videos.h"

namespace sparsereel::app::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

MakerLost lost() {
  return {ErrorKind::failed, "the process of cuda:1 was killed by signal 9", "see the server's output"};
}

class WorkersTest : public ::testing::Test {
 protected:
  /// Starts `count` workers. Their makers call `make` for each video.
  void start(size_t count, const test::FakeMaker::Make& make) {
    start(std::vector<Worker::StartMaker>(count, [make] { return std::make_unique<test::FakeMaker>(make); }));
  }
  void start(const std::vector<Worker::StartMaker>& start_makers) {
    workers_ = std::make_unique<Workers>(WorkerParts{.model = model_,
                                                     .store = store_,
                                                     .publisher = publisher_,
                                                     .metrics = metrics_,
                                                     .is_quiet = true,
                                                     .most_cancel_wait = most_cancel_wait_},
                                         start_makers);
    workers_->start();
  }
  VideoRecord ended(const std::string& id) {
    EXPECT_TRUE(test::wait_until([&] { return store_.find(id)->is_finished(); }));
    return *store_.find(id);
  }

  const test::TemporaryFolder folder_;
  ServedModel model_ = {.settings = {}, .name = "toy", .folders = {}, .hidden = {}};
  VideoStore store_{folder_ / "store", {}};
  EventHub events_;
  Publisher publisher_{store_, events_};
  Metrics metrics_;
  std::chrono::milliseconds most_cancel_wait_{20'000};
  std::unique_ptr<Workers> workers_;
};

TEST_F(WorkersTest, TakeVideosFirstInFirstOut) {
  const auto ids = test::add_videos(store_, 6);
  std::mutex mutex;
  std::vector<std::string> begun;
  test::Door door;
  start(2, [&](const VideoRecord& record, MakingObserver&, const auto&) -> MadeVideo {
    {
      const std::lock_guard lock(mutex);
      begun.push_back(record.id);
    }
    door.wait();
    return {.recipe = {{"seed", 1}}};
  });
  ASSERT_TRUE(test::wait_until([&] { return store_.counts()[VideoState::in_progress] == 2; }));
  EXPECT_EQ(store_.queue(10), std::vector<std::string>(ids.begin() + 2, ids.end()));
  door.open();
  for (const std::string& id : ids) EXPECT_EQ(ended(id).state, VideoState::completed);
  workers_->stop();
  const auto place = [&](size_t i) { return std::ranges::find(begun, ids[i]) - begun.begin(); };
  EXPECT_EQ(begun.size(), ids.size());
  for (size_t i = 2; i < ids.size(); ++i) EXPECT_LE(std::abs(place(i) - static_cast<ptrdiff_t>(i)), 1);
}

TEST_F(WorkersTest, LetTheVideoOfALostMakerGoOnElsewhere) {
  const std::string id = test::add_videos(store_, 1).front();
  std::atomic<int> calls = 0;
  start(2, [&](const VideoRecord&, MakingObserver& observer, const auto&) -> MadeVideo {
    observer.step(1, 4, 0.1);
    if (++calls == 1) throw lost();
    return {.recipe = {{"seed", 1}}};
  });
  const VideoRecord record = ended(id);
  EXPECT_EQ(record.state, VideoState::completed);
  EXPECT_EQ(record.attempts, 2);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(workers_->failure(), nullptr);
}

TEST_F(WorkersTest, GiveUpAVideoThatLosesItsMakers) {
  const auto ids = test::add_videos(store_, 2);
  std::atomic<int> losses = 0;
  start(1, [&](const VideoRecord& record, MakingObserver&, const auto&) -> MadeVideo {
    if (record.id != ids[0]) return {.recipe = {{"seed", 1}}};
    ++losses;
    throw lost();
  });
  const VideoRecord record = ended(ids[0]);
  EXPECT_EQ(record.error_code, "generation_failed");
  EXPECT_THAT(record.error, HasSubstr("ended 3 times"));
  EXPECT_EQ(losses, 3);
  EXPECT_EQ(ended(ids[1]).state, VideoState::completed);
}

TEST_F(WorkersTest, GoOnUntilTheLastWorkerHasFailed) {
  std::atomic<int> starts = 0;
  std::atomic<bool> loses = true;
  const Worker::StartMaker start_maker = [&]() -> std::unique_ptr<Maker> {
    if (++starts > 2) throw run_failure("the GPU is broken", "replace it");
    return std::make_unique<test::FakeMaker>([&](const VideoRecord&, MakingObserver&, const auto&) -> MadeVideo {
      if (loses.exchange(false)) throw lost();
      return {.recipe = {{"seed", 1}}};
    });
  };
  start({start_maker, start_maker});
  ASSERT_TRUE(test::wait_until([&] { return workers_->is_ready(); }));
  const std::string id = test::add_videos(store_, 1).front();
  workers_->wake();
  EXPECT_EQ(ended(id).state, VideoState::completed);
  ASSERT_TRUE(test::wait_until([&] { return starts == 3; }));
  EXPECT_EQ(workers_->failure(), nullptr);
  loses = true;
  test::add_videos(store_, 1);
  workers_->wake();
  ASSERT_TRUE(test::wait_until([&] { return workers_->failure() != nullptr; }));
  EXPECT_EQ(store_.waiting(), 1U);
}

TEST_F(WorkersTest, FailIfAModelCannotBeOpened) {
  start({[]() -> std::unique_ptr<Maker> {
           return std::make_unique<test::FakeMaker>([](const auto&, auto&, const auto&) { return MadeVideo(); });
         },
         []() -> std::unique_ptr<Maker> { throw bad_input("no such model", "name another"); }});
  EXPECT_TRUE(test::wait_until([&] { return workers_->failure() != nullptr; }));
}

TEST_F(WorkersTest, TellThatTheDiskIsFullAndGoOn) {
  const auto ids = test::add_videos(store_, 2);
  const auto files = store_.files(ids[0]);
  start(1, [&](const VideoRecord& record, MakingObserver&, const auto&) -> MadeVideo {
    if (record.id != ids[0]) return {.recipe = {{"seed", 1}}};
    test::write_text(files.video.string() + ".checkpoint.safetensors", "steps");
    return outcome_of([&]() -> MadeVideo { models::throw_write_failure(files.video, ENOSPC); });
  });
  const VideoRecord record = ended(ids[0]);
  EXPECT_EQ(record.error_code, "disk_full");
  EXPECT_THAT(record.error, HasSubstr("No space left"));
  EXPECT_EQ(ended(ids[1]).state, VideoState::completed);
  workers_->stop();
  EXPECT_THAT(test::read_text(files.record), HasSubstr("disk_full"));
  EXPECT_FALSE(std::filesystem::exists(files.video.string() + ".checkpoint.safetensors"));
}

TEST_F(WorkersTest, LeaveRunningVideosToTheNextServer) {
  const auto ids = test::add_videos(store_, 2);
  start(1, [&](const VideoRecord&, MakingObserver&, const std::function<bool()>& cancelled) -> MadeVideo {
    test::wait_until(cancelled);
    return outcome_of([]() -> MadeVideo { throw models::Cancelled{}; });
  });
  ASSERT_TRUE(test::wait_until([&] { return store_.find(ids[0])->state == VideoState::in_progress; }));
  workers_->stop();
  EXPECT_EQ(store_.find(ids[0])->state, VideoState::in_progress);
  EXPECT_EQ(store_.find(ids[0])->attempts, 0);
  EXPECT_EQ(store_.queue(10), std::vector<std::string>{ids[1]});
}

TEST_F(WorkersTest, CancelTheVideoThatRuns) {
  const auto ids = test::add_videos(store_, 2);
  start(2, [&](const VideoRecord&, MakingObserver&, const std::function<bool()>& cancelled) -> MadeVideo {
    test::wait_until(cancelled);
    return outcome_of([]() -> MadeVideo { throw models::Cancelled{}; });
  });
  ASSERT_TRUE(test::wait_until([&] { return store_.counts()[VideoState::in_progress] == 2; }));
  EXPECT_FALSE(workers_->cancel("video_x"));
  EXPECT_TRUE(workers_->cancel(ids[1]));
  EXPECT_EQ(store_.find(ids[1])->error_code, "cancelled");
  EXPECT_EQ(store_.find(ids[0])->state, VideoState::in_progress);
}

std::string preview_of(const std::string& id) {
  return "preview of " + id;
}

/// Makes videos at once, each with a preview, and writes each in a thread of its own, once `written` is open. If
/// `loses`, the second call of make() throws MakerLost, and the first video is never written.
class WritingMaker final : public Maker {
 public:
  /// Counts the calls of collect() in `collects`.
  WritingMaker(test::Door& written, std::atomic<int>& collects, bool loses)
      : written_(written), collects_(collects), loses_(loses) {}
  ~WritingMaker() override { join(); }

  void open(MakingObserver& observer) override { observer_ = &observer; }
  void make(const VideoRecord& record, const std::function<bool()>& /*cancelled*/) override {
    observer_->preview(1, preview_of(record.id));
    if (loses_ && ++made_ == 2) {
      is_alive_ = false;
      throw lost();
    }
    if (loses_) return;  // the video is never written
    join();
    ended_ = false;
    thread_ = std::thread([this, id = record.id] {
      written_.wait();
      observer_->ended(id, {.recipe = {{"seed", 1}}, .decode_seconds = 1, .write_seconds = 2});
      ended_ = true;
    });
  }
  bool collect(const std::function<bool()>& enough) override {
    ++collects_;
    return test::wait_until([&] { return ended_ || enough(); }) && ended_;
  }
  bool is_alive() override { return is_alive_; }

 private:
  void join() {
    if (thread_.joinable()) thread_.join();
  }

  test::Door& written_;
  std::atomic<int>& collects_;
  bool loses_, is_alive_ = true;
  int made_ = 0;
  MakingObserver* observer_ = nullptr;
  std::atomic<bool> ended_ = true;
  std::thread thread_;
};

class WritingWorkersTest : public WorkersTest {
 protected:
  void start(bool loses = false) {
    auto loses_next = std::make_shared<bool>(loses);
    WorkersTest::start({[this, loses_next] {
      return std::make_unique<WritingMaker>(written_, collects_, std::exchange(*loses_next, false));
    }});
  }
  void TearDown() override {
    written_.open();
    workers_.reset();  // ends the threads that wait at the door before it is destroyed
  }
  /// Waits until the second video has begun, while the first one is written.
  void wait_for_both() {
    ASSERT_TRUE(test::wait_until([&] { return store_.counts()[VideoState::in_progress] == 2; }));
  }

  test::Door written_;
  std::atomic<int> collects_ = 0;
};

TEST_F(WritingWorkersTest, BeginAVideoWhileTheOneBeforeIsWritten) {
  const auto ids = test::add_videos(store_, 3);
  start();
  wait_for_both();
  EXPECT_EQ(store_.queue(10), std::vector<std::string>{ids[2]});
  EXPECT_FALSE(store_.find(ids[0])->is_finished());
  written_.open();
  for (const std::string& id : ids) EXPECT_EQ(ended(id).state, VideoState::completed);
}

TEST_F(WritingWorkersTest, HaveAPreviewOfEachVideoUntilItEnds) {
  const auto ids = test::add_videos(store_, 2);
  const auto has_preview = [&](const std::string& id) { return store_.object(id).at("has_preview").get<bool>(); };
  start();
  ASSERT_TRUE(test::wait_until([&] { return has_preview(ids[1]); }));
  for (const std::string& id : ids) {
    EXPECT_TRUE(has_preview(id));
    EXPECT_EQ(workers_->preview(id), preview_of(id));
  }
  written_.open();
  for (const std::string& id : ids) {
    ended(id);
    EXPECT_FALSE(has_preview(id));
    EXPECT_TRUE(test::wait_until([&] { return workers_->preview(id).empty(); }));
  }
}

TEST_F(WritingWorkersTest, CancelAVideoThatIsWritten) {
  most_cancel_wait_ = std::chrono::milliseconds(1);
  const auto ids = test::add_videos(store_, 2);
  start();
  wait_for_both();
  const auto files = store_.files(ids[0]);
  for (const auto& file : {files.video, files.thumbnail, files.sheet}) test::write_text(file, "written");
  EXPECT_TRUE(workers_->cancel(ids[0]));
  EXPECT_FALSE(store_.find(ids[0])->is_finished());
  written_.open();
  EXPECT_EQ(ended(ids[0]).error_code, "cancelled");
  for (const auto& file : {files.video, files.thumbnail, files.sheet}) EXPECT_FALSE(std::filesystem::exists(file));
  EXPECT_EQ(ended(ids[1]).state, VideoState::completed);
}

TEST_F(WritingWorkersTest, WriteTheLastVideoBeforeTheyStop) {
  const auto ids = test::add_videos(store_, 1);
  start();
  ASSERT_TRUE(test::wait_until([&] { return collects_ == 1; }));
  std::thread stopping([&] { workers_->stop(); });
  ASSERT_TRUE(test::wait_until([&] { return collects_ == 2; }));
  EXPECT_EQ(store_.find(ids[0])->state, VideoState::in_progress);
  written_.open();
  stopping.join();
  EXPECT_EQ(store_.find(ids[0])->state, VideoState::completed);
}

TEST_F(WritingWorkersTest, PutBothVideosOfALostMakerBackInTheirOrder) {
  const auto ids = test::add_videos(store_, 3);
  start(/*loses=*/true);
  // The worker calls collect() first for the ends of the lost maker's videos, then to wait for the video that is made
  // again.
  ASSERT_TRUE(test::wait_until([&] { return collects_ == 2; }));
  EXPECT_EQ(store_.find(ids[0])->attempts, 2);
  EXPECT_EQ(store_.queue(10), std::vector<std::string>({ids[1], ids[2]})) << "the first is written alone";
  written_.open();
  for (const std::string& id : ids) EXPECT_EQ(ended(id).state, VideoState::completed);
}

TEST_F(WorkersTest, KeepWarningsWithTheVideo) {
  const std::string id = test::add_videos(store_, 1).front();
  start(1, [&](const VideoRecord& record, MakingObserver& observer, const auto&) -> MadeVideo {
    observer.warn(record.id, "the size is unusual");
    return {.recipe = {{"seed", 1}}};
  });
  EXPECT_THAT(ended(id).warnings, ElementsAre("the size is unusual"));
  EXPECT_EQ(store_.object(id).at("warnings"), nlohmann::json({"the size is unusual"}));
  const std::string text = test::read_text(store_.files(id).record);
  EXPECT_THAT(read_record(text, "record").warnings, ElementsAre("the size is unusual"));
}

}  // namespace
}  // namespace sparsereel::app::serve
