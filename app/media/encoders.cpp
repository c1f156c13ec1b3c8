// Chooses among the encoders of a container: the first that works, or the one that --codec names.
#include "app/media/encoders.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <tuple>

#include "hilbert/error.h"
#include "hilbert/lower_case.h"

namespace sparsereel::app {
namespace {

constexpr std::array<Container, 4> kContainers = {
    {{".mp4", "mp4", {"libx264", "libopenh264", "mpeg4"}, "+faststart"},
     {".mov", "mov", {"libx264", "libopenh264", "mpeg4"}, "+faststart"},
     {".mkv", "matroska", {"libx264", "libopenh264", "mpeg4"}, nullptr},
     {".webm", "webm", {"libvpx-vp9", "libaom-av1", "libvpx"}, nullptr, {"libvorbis", "vorbis"}}}};

/// An encoder that hangs if it is closed before its first frame (seen with version 1.4). A check of the encoder, or a
/// full disk, closes it like that and would hang the program.
constexpr const char* kHangs = "libsvtav1";

std::vector<std::string> encoders_of(const Container& container) {
  std::vector<std::string> result;
  for (const char* name : container.encoders)
    if (has_encoder(name)) result.emplace_back(name);
  return result;
}

/// Returns the remedy for an unusable --codec: it names encoders that work.
std::string remedy_beside_codec(const Stream& stream) {
  std::vector<std::string> others = encoders_of(stream.container);
  const std::string same_format = "libaom-av1";
  if (stream.options.codec == kHangs && has_encoder(same_format) &&
      std::ranges::find(others, same_format) == others.end())
    others.insert(others.begin(), same_format);
  std::string names;
  for (const std::string& name : others)
    if (name != stream.options.codec && encoder_failure(name, stream).empty())
      names += (names.empty() ? "" : " or ") + name;
  return names.empty() ? "write .gif, .y4m or a folder of PNGs" : "use " + names + ", or leave --codec out";
}

Error bad_codec(const Stream& stream, const std::string& cause) {
  return bad_option("codec", stream.options.codec + cause, remedy_beside_codec(stream));
}

/// Throws Error if the encoder that --codec names cannot work for a reason that is known without opening it.
void check_codec_asked_for(const Stream& stream) {
  const std::string& name = stream.options.codec;
  if (name == kHangs) throw bad_codec(stream, " hangs when it is closed before its first frame");
  if (!has_encoder(name)) throw bad_codec(stream, ": this FFmpeg has no such video encoder");
  if (!may_make_yuv420p(name, stream.container))
    throw bad_codec(stream, " cannot make yuv420p video for " + std::string(stream.container.extension));
}

/// Returns the encoders to try in order if --codec is not given.
std::vector<std::string> usual_codecs(const Container& container) {
  std::vector<std::string> known = encoders_of(container);
  if (!known.empty()) return known;
  throw bad_input(
      "this FFmpeg has no encoder for " + std::string(container.extension),
      std::string("install one with ") + container.encoders.front() + ", or write .gif, .y4m or a folder of PNGs");
}

std::string size_text(const Stream& stream) {
  return std::to_string(stream.width) + "x" + std::to_string(stream.height);
}

/// Tries encoders until one works.
ChosenEncoder find_encoder(const std::filesystem::path& path, const Stream& stream) {
  if (stream.width % 2 != 0 || stream.height % 2 != 0)
    throw bad_file(path, "such a video needs an even width and height, but these frames are " + size_text(stream),
                   "write .gif, .y4m or a folder of PNGs");
  if (!stream.options.codec.empty()) {
    check_codec_asked_for(stream);
    const std::string why = encoder_failure(stream.options.codec, stream);
    if (why.empty()) return {stream.options.codec, {}};
    throw bad_codec(
        stream, " cannot encode " + size_text(stream) + " for " + std::string(stream.container.extension) + ": " + why);
  }
  std::string failures;
  for (const std::string& name : usual_codecs(stream.container)) {
    const std::string preferred = stream.container.encoders.front();
    const std::string why = encoder_failure(name, stream);
    if (why.empty())
      return {name, name == preferred ? "" : "encoded with " + name + ": this FFmpeg offers no working " + preferred};
    failures += (failures.empty() ? "" : "; ") + name + ": " + why;
  }
  throw bad_file(path, "no encoder takes " + size_text(stream) + ": " + failures,
                 "write .gif, .y4m or a folder of PNGs");
}

/// Tries the container's encoders of sound until one works.
std::string find_sound_encoder(const std::filesystem::path& path, const Container& container,
                               const SoundFormat& sound) {
  std::string failures;
  for (const char* name : container.sound_encoders) {
    if (name == nullptr) continue;
    const std::string why = has_sound_encoder(name) ? sound_encoder_failure(name, sound) : "this FFmpeg lacks it";
    if (why.empty()) return name;
    failures += (failures.empty() ? "" : "; ") + std::string(name) + ": " + why;
  }
  throw bad_file(path,
                 "no encoder takes the sound, which has " + std::to_string(sound.channels) + " channels at " +
                     std::to_string(sound.sampling_rate) + " Hz: " + failures,
                 "give --no-audio, or write .gif, .y4m or a folder of PNGs with the sound in a .wav beside it");
}

}  // namespace

const Container& container_of(const std::filesystem::path& path) {
  const std::string extension = lower_case(path.extension().string());
  return *std::find_if(kContainers.begin(), kContainers.end() - 1,
                       [&](const Container& container) { return container.extension == extension; });
}

Quality quality_of(std::string_view encoder, const Stream& stream) {
  const int crf = stream.options.crf;
  if (encoder == "libx264" || encoder == "libx265") return {.crf = crf};
  if (encoder.starts_with("libvpx") || encoder == "libaom-av1") {
    constexpr int kWorst = 63, kWorstOfX264 = 51;
    return {.crf = crf * kWorst / kWorstOfX264, .bit_rate = 0};  // with a bit rate of 0, only the crf decides
  }
  // At crf 17, MPEG-4 has about the same quality with a quantizer of 2. For each 6 more in crf, the quantizer doubles.
  if (encoder.starts_with("mpeg4") || encoder == "libxvid")
    return {.quantizer = std::clamp(2 * std::exp2((crf - 17) / 6.0), 1.0, 31.0)};
  // These encoders know only a bit rate: half a bit per pixel at crf 17, and twice as much for each 6 less in crf.
  const double bits_per_pixel = 0.5 * std::exp2((17 - crf) / 6.0);
  const FrameRate rate = frame_rate(stream.options.fps);
  return {.bit_rate = std::llround(bits_per_pixel * stream.width * stream.height * rate.numerator / rate.denominator)};
}

SoundQuality sound_quality_of(std::string_view encoder, const SoundFormat& sound) {
  constexpr int64_t kBitsAChannel = 96'000;  // at this rate, AAC sounds like its source
  if (encoder == "aac") return {.bit_rate = kBitsAChannel * sound.channels};
  if (encoder == "alac") return {};  // lossless
  constexpr int kLikeAac = 6;
  return {.quality = kLikeAac, .is_experimental = encoder == "vorbis"};
}

EncoderOption repeatable_option(std::string_view encoder) {
  // By default, x265 chooses frame-threads by the number of CPUs, which changes its output, and logs to stderr.
  if (encoder == "libx265") return {.name = "x265-params", .value = "log-level=none:frame-threads=4"};
#ifdef __x86_64__
  // x264's AVX-512 code reads memory that it never wrote if the width is no multiple of 128 (seen with core 164: two
  // runs, two files). Its AVX2 code does not.
  if (encoder == "libx264" && __builtin_cpu_supports("avx512bw") != 0)
    return {.name = "x264-params", .value = "asm=AVX2"};
#endif
  return {};
}

ChosenEncoder choose_encoder(const std::filesystem::path& path, const Stream& stream) {
  // Cache the result, because each row of a prompt set asks again, first in check_encoding() and then in its writer.
  // Trying an encoder takes milliseconds, and starts a process if FFmpeg is used as a program.
  static std::mutex mutex;
  static std::map<std::tuple<std::string_view, int, int, double, int, std::string>, ChosenEncoder> known;
  const VideoOptions& options = stream.options;
  const std::tuple key(stream.container.extension, stream.width, stream.height, options.fps, options.crf,
                       options.codec);
  const std::lock_guard lock(mutex);
  const auto found = known.find(key);
  return found != known.end() ? found->second : known.emplace(key, find_encoder(path, stream)).first->second;
}

std::string choose_sound_encoder(const std::filesystem::path& path, const SoundFormat& sound) {
  static std::mutex mutex;
  static std::map<std::tuple<std::string_view, int64_t, int64_t>, std::string> known;
  const Container& container = container_of(path);
  const std::tuple key(container.extension, sound.channels, sound.sampling_rate);
  const std::lock_guard lock(mutex);
  const auto found = known.find(key);
  return found != known.end() ? found->second
                              : known.emplace(key, find_sound_encoder(path, container, sound)).first->second;
}

void check_encoder(const std::filesystem::path& path, const VideoOptions& options) {
  constexpr int kSide = 256;  // pixels of the trial frame's sides; hardware encoders refuse much smaller frames
  const Stream stream{container_of(path), kSide, kSide, options};
  if (options.codec.empty())
    usual_codecs(stream.container);
  else
    check_codec_asked_for(stream);
}

void check_frame_size(const std::filesystem::path& path, int64_t width, int64_t height, const VideoOptions& options) {
  choose_encoder(path, {container_of(path), static_cast<int>(width), static_cast<int>(height), options});
}

std::vector<FormatEncoders> format_encoders() {
  std::vector<FormatEncoders> result;
  for (const Container& container : kContainers)
    result.push_back({.ending = std::string(container.extension),
                      .best = container.encoders.front(),
                      .found = encoders_of(container)});
  return result;
}

}  // namespace sparsereel::app
