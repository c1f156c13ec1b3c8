// Tests how a job makes the videos of a prompt set. If the encoded texts do not fit into memory at once, the job
// encodes them in parts, and makes the videos of a part before it encodes the texts of the next part. Also tests a full
// disk.
#include "app/jobs/job.h"

#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>

#include "models/image/resample.h"
#include "models/request/run.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::app {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

class RecordingUser : public JobUser, private models::RunObserver {
 public:
  models::RunObserver& observer() override { return *this; }
  void warn(const VideoTask& video, const std::string& warning) override { warnings.push_back(video.place + warning); }
  void written(const VideoTask& video, const Made&) override {
    if (full_disk == video.index) throw models::DiskError(ErrorKind::failed, "the disk is full", "make room");
    made.push_back(video.index);
  }
  void ended(const VideoTask& video, const std::exception_ptr& failure,
             std::vector<std::string>& /*warnings*/) override {
    ends.push_back(video.index + (failure ? 100 : 0));
  }
  void failed(const VideoTask& video) override { failures.push_back(video.index); }

  std::vector<std::string> warnings, told;
  std::vector<int64_t> made, ends, failures;
  int64_t full_disk = -1;  // index of the video for which the disk is full; -1 for none

 private:
  void stage(const std::string& name) override { told.push_back(name); }
  void encoded(const models::PieceProgress& pieces) override {
    told.push_back("encoded " + std::to_string(pieces.done) + " of " + std::to_string(pieces.total));
  }
};

bool never() {
  return false;
}

JobPolicy of_a_set(const TextLimit& limit) {
  return {.keep_loaded = true, .write_behind = true, .go_on_after_failure = true, .keep_last = true, .texts = limit};
}

class JobTest : public ::testing::Test {
 protected:
  void add(const std::vector<std::string>& prompts, const std::map<std::string, std::string>& more = {}) {
    videos_.resize(prompts.size());
    LoadedFiles files;
    for (size_t i = 0; i < prompts.size(); ++i) {
      VideoTask& video = videos_[i];
      video.index = static_cast<int64_t>(i);
      video.settings.add(Source::command_line, {{"model", model_},
                                                {"prompt", prompts[i]},
                                                {"steps", "1"},
                                                {"size", "32x32"},
                                                {"frames", "1"},
                                                {"fps", "8"},
                                                {"output", (folder_ / (std::to_string(i) + ".safetensors")).string()}});
      video.settings.add(Source::command_line, more);
      video.options = read_generate_options(video.settings);
      resolve_video(video, *pipeline_, files);
      rows_.push_back(&video);
    }
  }

  /// Makes all videos and returns the number of videos in each part.
  std::vector<size_t> parts(TextLimit limit) {
    Job job(recorded_, never, of_a_set(limit));
    std::vector<size_t> counts;
    for (std::span<VideoTask* const> left = rows_; !left.empty(); left = left.subspan(counts.back())) {
      counts.push_back(job.load(left, *pipeline_));
      uint64_t waiting = 0;
      for (const VideoTask* row : rows_) waiting += row->conditioning.nbytes();
      most_waiting_ = std::max(most_waiting_, waiting);
      job.run(left.first(counts.back()), *pipeline_);
    }
    job.collect();
    EXPECT_THAT(recorded_.failures, IsEmpty());
    return counts;
  }

  c10::InferenceMode guard_;  // inference mode, as in main()
  test::TemporaryFolder folder_;
  std::string model_ = std::string(SPARSEREEL_TEST_DATA) + "/pipeline";
  std::shared_ptr<models::Pipeline> pipeline_ = models::Pipeline::open(model_, "cpu", "fp32");
  std::vector<VideoTask> videos_;
  std::vector<VideoTask*> rows_;
  RecordingUser recorded_;
  uint64_t most_waiting_ = 0;
};

TEST_F(JobTest, EncodesAPictureOnceForSeveralPrompts) {
  model_ = std::string(SPARSEREEL_TEST_DATA) + "/wan/pipeline_5b";
  pipeline_ = models::Pipeline::open(model_, "cpu", "fp32");
  const std::string picture = folder_ / "p.ppm";
  test::write_text(picture, "P6 2 1 255\nabcdef");
  add({"a", "b", "a"}, {{"image", picture}});
  Job job(recorded_, never, of_a_set({}));
  // The job has already decoded the picture. It fails if it opens the file again.
  test::write_text(picture, "no picture any more");
  EXPECT_EQ(job.load(rows_, *pipeline_), 3U);
  EXPECT_THAT(recorded_.told, ElementsAre("image", "encoded 1 of 1", "text", "load"));
  const models::Conditioning& first = videos_[0].conditioning;
  for (const VideoTask& other : videos_) {
    EXPECT_TRUE(other.conditioning.latents.is_same(first.latents));
    EXPECT_TRUE(other.conditioning.mask.is_same(first.mask));
  }
  EXPECT_FALSE(videos_[1].conditioning.text.equal(first.text));
  EXPECT_TRUE(videos_[2].conditioning.text.is_same(first.text));
}

TEST_F(JobTest, EncodesAPictureOnceIfPromptsAreEncodedInParts) {
  model_ = std::string(SPARSEREEL_TEST_DATA) + "/wan/pipeline_5b";
  pipeline_ = models::Pipeline::open(model_, "cpu", "fp32");
  const std::string picture = folder_ / "p.ppm";
  test::write_text(picture, "P6 2 1 255\nabcdef");
  add({"a", "b"}, {{"image", picture}});
  Job job(recorded_, never, of_a_set({.bytes = 1, .seconds = 1000}));
  EXPECT_EQ(job.load(rows_, *pipeline_), 1U);
  EXPECT_EQ(job.load(std::span(rows_).subspan(1), *pipeline_), 1U);
  EXPECT_THAT(recorded_.told, ElementsAre("image", "encoded 1 of 1", "text", "load", "text", "load"));
  EXPECT_TRUE(videos_[1].conditioning.latents.is_same(videos_[0].conditioning.latents));
  EXPECT_TRUE(videos_[1].conditioning.text.defined());
}

TEST(PictureFilesTest, KeepsPicturesWhileTheyFitInTheLimit) {
  const test::TemporaryFolder folder;
  const std::string first = folder / "a.ppm", second = folder / "b.ppm";
  for (const std::string& file : {first, second}) test::write_text(file, "P6 2 1 255\nabcdef");
  PictureFiles files(/*most_bytes=*/6);
  EXPECT_EQ(files.picture(first), files.picture(first));
  EXPECT_NE(files.picture(second), files.picture(second)) << "decoded again";
  const std::string hash = files.sha256(first);
  test::write_text(first, "");
  EXPECT_EQ(files.picture(first)->pixels.front(), 'a');
  EXPECT_EQ(files.size(second), (models::PixelSize{.height = 1, .width = 2}));
  EXPECT_EQ(files.sha256(first), hash);
}

TEST_F(JobTest, LimitsTheBytesOfEncodedPromptsThatWait) {
  add({"a", "b", "c", "d", "e"});
  EXPECT_THAT(parts({.bytes = 1, .seconds = 1000}), ElementsAre(1, 1, 1, 1, 1));
  EXPECT_THAT(recorded_.made, ElementsAre(0, 1, 2, 3, 4));
  const uint64_t one = most_waiting_;
  EXPECT_GT(one, 0U);
  EXPECT_THAT(parts({.bytes = 2 * one, .seconds = 1000}), ElementsAre(2, 2, 1));
  EXPECT_EQ(most_waiting_, 2 * one);
  EXPECT_THAT(parts({.bytes = 100 * one, .seconds = 1000}), ElementsAre(5));
}

TEST_F(JobTest, StartsTheFirstVideoBeforeAllPromptsAreEncoded) {
  std::vector<std::string> prompts;
  constexpr int kRows = 2000;
  for (int i = 0; i < kRows; ++i) prompts.push_back("a " + std::to_string(i));
  add(prompts);
  EXPECT_LT(Job(recorded_, never, of_a_set({.seconds = 0})).load(rows_, *pipeline_), size_t{kRows});
}

TEST_F(JobTest, EncodesAndCountsEqualPromptsOnce) {
  add({"a", "a", "b", "b", "a"});
  EXPECT_THAT(parts({.bytes = 1, .seconds = 1000}), ElementsAre(2, 2, 1));
  EXPECT_EQ(videos_[1].text_cost.encode, 0);
  EXPECT_THAT(recorded_.made, ElementsAre(0, 1, 2, 3, 4));
}

TEST_F(JobTest, TellsEachEndFromTheThreadThatWrites) {
  add({"a", "b", "c"});
  JobPolicy policy = of_a_set({});
  policy.go_on_after_full_disk = true;
  policy.keep_latents = false;
  recorded_.full_disk = 1;
  Job job(recorded_, never, policy);
  job.load(rows_, *pipeline_);
  job.run(rows_, *pipeline_);
  while (!job.can_collect(std::chrono::milliseconds(1))) continue;
  EXPECT_THAT(recorded_.ends, ElementsAre(0, 101, 2));
  EXPECT_TRUE(job.writes());
  job.collect();
  EXPECT_THAT(recorded_.made, ElementsAre(0, 2));
  EXPECT_THAT(recorded_.failures, ElementsAre(1));
  EXPECT_FALSE(job.writes());
}

TEST_F(JobTest, EndsASetIfTheDiskIsFull) {
  add({"a", "b", "c"});
  recorded_.full_disk = 0;
  Job job(recorded_, never, of_a_set({}));
  job.load(rows_, *pipeline_);
  EXPECT_THROW(
      {
        job.run(rows_, *pipeline_);
        job.collect();
      },
      models::DiskError);
  EXPECT_THAT(recorded_.made, IsEmpty());
}

TEST_F(JobTest, LoadsAllVideosOfASingleCommandAtOnce) {
  add({"a", "b", "c"});
  EXPECT_EQ(Job(recorded_, never).load(rows_, *pipeline_), 3U);
}

TEST_F(JobTest, MakesTheSameVideosIfTheSetIsSplitIntoParts) {
  const std::vector<std::string> prompts = {"a", "b", "c"};
  add(prompts);
  parts({.bytes = 1});
  std::vector<std::string> in_parts;
  for (size_t i = 0; i < prompts.size(); ++i)
    in_parts.push_back(test::read_text(folder_ / (std::to_string(i) + ".safetensors")));
  EXPECT_THAT(in_parts, Each(Not(IsEmpty())));
  parts({});
  for (size_t i = 0; i < prompts.size(); ++i)
    EXPECT_EQ(test::read_text(folder_ / (std::to_string(i) + ".safetensors")), in_parts[i]);
}

}  // namespace
}  // namespace sparsereel::app
