// Tests the sound in video files by reading them as players do: streams, sample rates, lengths, and that each click in
// the sound comes at the same time as its flash in the picture.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "app/media/encoders.h"
#include "hilbert/error.h"
#include "tests/unit/app/media/clips.h"

namespace sparsereel::app {
namespace {

using test::throws_error;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kFps = 24;
constexpr int64_t kFrames = 40, kRate = 32000;
constexpr std::array<int64_t, 3> kFlashes = {6, 17, 30};  // white frames, during which the sound is loud

/// Returns a tone of 440 Hz that is much louder while a frame is white. The right channel is half as loud as the left.
std::vector<float> make_sound(int64_t count, int64_t channels) {
  std::vector<float> samples(static_cast<size_t>(count * channels));
  for (int64_t channel = 0; channel < channels; ++channel) {
    for (int64_t i = 0; i < count; ++i) {
      const double seconds = static_cast<double>(i) / kRate;
      const auto frame = static_cast<int64_t>(seconds * kFps);
      const double loudness = std::ranges::count(kFlashes, frame) > 0 ? 0.9 : 0.05;
      samples[static_cast<size_t>(channel * count + i)] = static_cast<float>(
          std::sin(2 * std::numbers::pi * 440 * seconds) * loudness / static_cast<double>(channel + 1));
    }
  }
  return samples;
}

/// Returns gray frames, except for white frames at kFlashes.
Clip make_flashes() {
  Clip clip;
  constexpr int64_t kSide = 64;
  for (int64_t i = 0; i < kFrames; ++i)
    clip.values.insert(clip.values.end(), static_cast<size_t>(kSide * kSide * 3),
                       std::ranges::count(kFlashes, i) > 0 ? 1.0F : 0.2F);
  clip.view = {.data = clip.values.data(), .frames = kFrames, .height = kSide, .width = kSide};
  return clip;
}

/// A stream's content as a player shows it: values[i] at times[i] seconds.
struct Played {
  std::vector<double> times;
  std::vector<float> values;  // of a video, the brightness of frames in 0..1; of a sound, the first channel
  AVCodecID codec = AV_CODEC_ID_NONE;
  int64_t rate = 0, channels = 0;
  double seconds = 0;  // duration that the container gives; 0 if it gives none

  /// Returns the times, in seconds, at which values rise above the threshold after at least `quiet` seconds below it.
  std::vector<double> rises(float threshold, double quiet) const {
    std::vector<double> all;
    double last = -1e9;
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::abs(values[i]) < threshold) continue;
      if (times[i] - last > quiet) all.push_back(times[i]);
      last = times[i];
    }
    return all;
  }
};

int64_t channels_of(const AVCodecParameters& parameters) {
#if LIBAVCODEC_VERSION_INT >= AV_VERSION_INT(59, 24, 100)
  return parameters.ch_layout.nb_channels;
#else
  return parameters.channels;
#endif
}

void play_frame(const AVFrame& frame, double time, Played& played) {
  if (frame.nb_samples == 0) {
    played.times.push_back(time);
    played.values.push_back(static_cast<float>(frame.data[0][0]) / 255);
    return;
  }
  const uint8_t* const samples = frame.extended_data[0];
  for (int i = 0; i < frame.nb_samples; ++i) {
    played.times.push_back(time + static_cast<double>(i) / frame.sample_rate);
    played.values.push_back(frame.format == AV_SAMPLE_FMT_S32P
                                ? static_cast<float>(reinterpret_cast<const int32_t*>(samples)[i]) / 0x1p31F
                                : reinterpret_cast<const float*>(samples)[i]);
  }
}

/// Decodes all streams of a file. Like players, FFmpeg follows edit lists and drops the encoder's priming samples.
std::vector<Played> play(const std::filesystem::path& file) {
  AVFormatContext* input = nullptr;
  if (avformat_open_input(&input, file.c_str(), nullptr, nullptr) < 0 || avformat_find_stream_info(input, nullptr) < 0)
    throw std::runtime_error("cannot open " + file.string());
  std::vector<Played> streams(input->nb_streams);
  std::vector<ffmpeg::CodecContext> decoders;
  for (size_t i = 0; i < streams.size(); ++i) {
    const AVCodecParameters& parameters = *input->streams[i]->codecpar;
    const AVCodec* codec = avcodec_find_decoder(parameters.codec_id);
    decoders.emplace_back(avcodec_alloc_context3(codec));
    avcodec_parameters_to_context(decoders[i].get(), &parameters);
    decoders[i]->pkt_timebase = input->streams[i]->time_base;
    if (avcodec_open2(decoders[i].get(), codec, nullptr) < 0) throw std::runtime_error("cannot decode");
    streams[i].codec = parameters.codec_id;
    streams[i].rate = parameters.sample_rate;
    if (const AVStream& stream = *input->streams[i]; stream.duration != AV_NOPTS_VALUE)
      streams[i].seconds = static_cast<double>(stream.duration) * av_q2d(stream.time_base);
    streams[i].channels = channels_of(parameters);
  }
  const ffmpeg::Frame frame(av_frame_alloc());
  const ffmpeg::Packet packet(av_packet_alloc());
  const auto decode = [&](size_t i, const AVPacket* next) {
    avcodec_send_packet(decoders[i].get(), next);
    while (avcodec_receive_frame(decoders[i].get(), frame.get()) == 0)
      play_frame(*frame, static_cast<double>(frame->best_effort_timestamp) * av_q2d(input->streams[i]->time_base),
                 streams[i]);
  };
  while (av_read_frame(input, packet.get()) == 0) {
    decode(static_cast<size_t>(packet->stream_index), packet.get());
    av_packet_unref(packet.get());
  }
  for (size_t i = 0; i < streams.size(); ++i) decode(i, nullptr);
  avformat_close_input(&input);
  return streams;
}

class SoundInVideo : public ::testing::TestWithParam<const char*> {
 protected:
  WrittenVideo write(const std::filesystem::path& to, int64_t count, int64_t channels = 2) {
    samples = make_sound(count, channels);
    VideoOptions options{.fps = kFps, .recipe = R"({"prompt":"a bell; it rings=1"})"};
    options.sound = {
        .format = {.channels = channels, .sampling_rate = kRate}, .samples = samples.data(), .count = count};
    return write_video(to, clip.view, options);
  }

  TemporaryFolder folder;
  Clip clip = make_flashes();
  std::vector<float> samples;
  std::filesystem::path path = folder / GetParam();
};

INSTANTIATE_TEST_SUITE_P(Formats, SoundInVideo, ::testing::Values("clip.mp4", "clip.mov", "clip.mkv", "clip.webm"),
                         [](const auto& each) { return std::string(each.param).substr(5); });

TEST_P(SoundInVideo, IsASecondStreamAtItsOwnRate) {
  const WrittenVideo written = write(path, 53'500);
  const std::vector<Played> streams = play(path);
  ASSERT_EQ(streams.size(), 2U);
  EXPECT_EQ(streams[0].values.size(), static_cast<size_t>(kFrames));
  EXPECT_EQ(streams[1].rate, kRate);
  EXPECT_EQ(streams[1].channels, 2);
  const bool is_webm = path.extension() == ".webm";
  EXPECT_EQ(streams[1].codec, is_webm ? AV_CODEC_ID_VORBIS : AV_CODEC_ID_AAC);
  EXPECT_THAT(written.sound.encoder, HasSubstr(is_webm ? "vorbis" : "aac"));
  EXPECT_EQ(written.sound.count, 53'500);
  EXPECT_EQ(written.sound.file, "");
  EXPECT_EQ(written.bytes, std::filesystem::file_size(path));
  EXPECT_THAT(names_in(folder.path()), ElementsAre(GetParam())) << "no .wav beside it";
  EXPECT_EQ(read_recipe(path), R"({"prompt":"a bell; it rings=1"})");
}

TEST_P(SoundInVideo, ClicksWhenThePictureFlashes) {
  write(path, kFrames * kRate / static_cast<int64_t>(kFps));
  const std::vector<Played> streams = play(path);
  ASSERT_EQ(streams.size(), 2U);
  const std::vector<double> flashes = streams[0].rises(0.6F, 1 / kFps * 1.5), clicks = streams[1].rises(0.45F, 0.1);
  ASSERT_EQ(flashes.size(), kFlashes.size());
  ASSERT_EQ(clicks.size(), kFlashes.size());
  const double start = streams[0].times.front();
  for (size_t i = 0; i < flashes.size(); ++i) {
    EXPECT_NEAR(flashes[i] - start, static_cast<double>(kFlashes[i]) / kFps, 2e-3) << i;
    EXPECT_NEAR(clicks[i], flashes[i], 0.01) << i;  // 10 ms, a quarter of a frame
  }
}

/// The sound of a model may be a few milliseconds longer or shorter than the video.
TEST_P(SoundInVideo, KeepsItsOwnLength) {
  const int64_t as_long = kFrames * kRate / static_cast<int64_t>(kFps);
  for (const int64_t count : {as_long - 260, as_long + 267, as_long / 2}) {
    write(path, count);
    const std::vector<Played> streams = play(path);
    ASSERT_EQ(streams.size(), 2U);
    EXPECT_EQ(streams[0].values.size(), static_cast<size_t>(kFrames)) << count;
    const double seconds = static_cast<double>(count) / kRate, packet = 1024.0 / kRate;
    const double end = streams[1].times.back() - streams[0].times.front();
    EXPECT_GT(end, seconds - 2e-3) << count;
    EXPECT_LT(end, seconds + packet) << count;  // decoders play the last packet as a whole
    if (path.extension() != ".mp4" && path.extension() != ".mov") continue;
    EXPECT_NEAR(streams[0].seconds, kFrames / kFps, 1e-3) << count;
    EXPECT_NEAR(streams[1].seconds, seconds, 1e-3) << count;
  }
}

TEST_P(SoundInVideo, SoundsLikeWhatWasWritten) {
  const int64_t count = kFrames * kRate / static_cast<int64_t>(kFps);
  write(path, count);
  const Played sound = play(path).at(1);
  const double start = play(path).at(0).times.front();
  double error = 0, power = 0;
  for (size_t i = 0; i < sound.values.size(); ++i) {
    const auto sample = std::llround((sound.times[i] - start) * kRate);
    if (sample < 2048 || sample >= count - 2048) continue;
    error += std::pow(sound.values[i] - samples[static_cast<size_t>(sample)], 2);
    power += std::pow(samples[static_cast<size_t>(sample)], 2);
  }
  EXPECT_GT(10 * std::log10(power / error), 20) << "signal to noise, dB";
}

TEST_P(SoundInVideo, IsTheSameFileForTheSameSound) {
  write(path, 40'000);
  write(folder / ("again" + path.extension().string()), 40'000);
  EXPECT_EQ(read_bytes(path), read_bytes(folder / ("again" + path.extension().string())));
}

TEST_P(SoundInVideo, MayBeMono) {
  write(path, 40'000, /*channels=*/1);
  EXPECT_EQ(play(path).at(1).channels, 1);
}

TEST_P(SoundInVideo, MayHoldNaN) {
  samples = make_sound(40'000, 2);
  samples[20'000] = std::nanf("");
  VideoOptions options{.fps = kFps};
  options.sound = {.format = {.channels = 2, .sampling_rate = kRate}, .samples = samples.data(), .count = 40'000};
  EXPECT_EQ(write_video(path, clip.view, options).sound.silenced, 1);
  const Played sound = play(path).at(1);
  for (const float value : sound.values) ASSERT_TRUE(std::isfinite(value));
}

/// The small models of tests have a sample rate that AAC does not support.
TEST_P(SoundInVideo, KeepsAnUnusualRate) {
  samples = make_sound(1600, 2);
  VideoOptions options{.fps = kFps};
  options.sound = {.format = {.channels = 2, .sampling_rate = 800}, .samples = samples.data(), .count = 1600};
  EXPECT_NO_THROW(check_encoding(path, 64, 64, options, options.sound.format));
  const WrittenVideo written = write_video(path, clip.view, options);
  const Played sound = play(path).at(1);
  EXPECT_EQ(sound.rate, 800);
  EXPECT_GT(sound.times.back(), 1.9);
  if (path.extension() == ".webm") return;
  EXPECT_EQ(written.sound.encoder, "alac");
  ASSERT_EQ(sound.values.size(), 1600U);
  for (size_t i = 0; i < 1600; ++i) ASSERT_NEAR(sound.values[i], samples[i], 1e-6) << i;
}

TEST_P(SoundInVideo, OfAnImpossibleRateIsRefusedBeforeTheWork) {
  EXPECT_NO_THROW(check_encoding(path, 64, 64, {}, {.channels = 2, .sampling_rate = kRate}));
  EXPECT_TRUE(throws_error([&] { check_encoding(path, 64, 64, {}, {.channels = 2, .sampling_rate = 0}); },
                           {path.string(), "no encoder takes the sound", "0 Hz"}));
}

/// Tests that an edit list skips the encoder's priming samples, and that frames and sound alternate in the file.
TEST(SoundInMp4, HasAnEditListAndAlternatesWithFrames) {
  const TemporaryFolder folder;
  const Clip clip = make_flashes();
  const std::vector<float> samples = make_sound(53'334, 2);
  VideoOptions options{.fps = kFps};
  options.sound = {.format = {.channels = 2, .sampling_rate = kRate}, .samples = samples.data(), .count = 53'334};
  write_video(folder / "clip.mp4", clip.view, options);
  const std::string bytes = read_bytes(folder / "clip.mp4");
  const size_t sound_track = bytes.find("soun");
  ASSERT_NE(sound_track, std::string::npos);
  const size_t edits = bytes.rfind("elst", sound_track);
  ASSERT_NE(edits, std::string::npos);
  const auto number = [&](size_t place) {
    uint32_t value = 0;
    for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes.at(place + i));
    return value;
  };
  EXPECT_EQ(number(edits + 8), 1U) << "number of edits";
  EXPECT_EQ(number(edits + 16), 1024U) << "samples of priming";
  EXPECT_LT(bytes.find("moov"), bytes.find("mdat"));
}

}  // namespace
}  // namespace sparsereel::app
