// Writes MP4, MOV, Matroska and WebM through the ffmpeg program, in BT.709, with the recipe in the comment tag.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <system_error>

#include "app/media/encoders.h"
#include "app/media/without_libraries/ffmpeg_program.h"
#include "hilbert/error.h"
#include "models/files/atomic_file.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;

using Words = std::vector<std::string>;

void append(Words& words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
}

Words frames_of(const Stream& stream) {
  return raw_frames(stream.width, stream.height, stream.options.fps);
}

/// Returns the arguments that encode the frames into a file of the container's format.
Words encoding(const std::string& encoder, const Stream& stream) {
  Words words = {"-map",
                 "0:v",
                 "-vf",
                 "scale=flags=bicubic+accurate_rnd+full_chroma_inp:out_color_matrix=bt709:out_range=tv,format=yuv420p,"
                 "setparams=range=tv:color_primaries=bt709:color_trc=bt709:colorspace=bt709",
                 "-c:v",
                 encoder,
                 "-pix_fmt",
                 "+yuv420p",
                 "-threads",
                 std::to_string(kEncoderThreads)};
  append(words, {"-color_range", "tv", "-color_primaries", "bt709", "-color_trc", "bt709", "-colorspace", "bt709"});
  const Quality quality = quality_of(encoder, stream);
  if (quality.crf) append(words, {"-crf", std::to_string(*quality.crf)});
  if (quality.quantizer) append(words, {"-q:v", std::to_string(*quality.quantizer)});
  if (quality.bit_rate) append(words, {"-b:v", std::to_string(*quality.bit_rate)});
  if (const EncoderOption option = repeatable_option(encoder); option.name != nullptr)
    append(words, {"-" + std::string(option.name), option.value});
  const std::string format = stream.container.format;
  const bool is_h265 = encoder.find("265") != std::string::npos || encoder.starts_with("hevc");
  // QuickTime, Safari and iOS play H.265 in MP4 and MOV only under this tag.
  if (is_h265 && (format == "mp4" || format == "mov")) append(words, {"-tag:v", "hvc1"});
  append(words, {"-fflags", "+bitexact", "-f", format});
  return words;
}

/// Returns the arguments that encode the sound. `input` is the number of ffmpeg's input that holds it.
Words sound_encoding(const std::string& encoder, const std::string& input, const SoundFormat& sound) {
  const SoundQuality quality = sound_quality_of(encoder, sound);
  Words words = {"-map",     input + ":a", "-c:a", encoder, "-ar", std::to_string(sound.sampling_rate),
                 "-flags:a", "+bitexact"};
  if (quality.bit_rate) append(words, {"-b:a", std::to_string(*quality.bit_rate)});
  if (quality.quality) append(words, {"-q:a", std::to_string(*quality.quality)});
  if (quality.is_experimental) append(words, {"-strict:a", "experimental"});
  return words;
}

/// A program's encoders by kind.
struct ProgramEncoders {
  std::set<std::string> video, sound;
};

/// Lists the encoders of ffmpeg_program(), once for each program: the environment may name another one at the next
/// call.
const ProgramEncoders& encoders_of_program() {
  static std::mutex mutex;
  static std::map<fs::path, ProgramEncoders> known;
  const std::lock_guard lock(mutex);
  const fs::path program = ffmpeg_program();
  if (const auto found = known.find(program); found != known.end()) return found->second;
  ProgramEncoders& names = known[program];
  if (program.empty()) return names;
  // " V....D libx264              libx264 H.264 / AVC ...", after a legend that ends with a line of dashes.
  std::istringstream lines(output_of_ffmpeg(program, {"-encoders"}));
  bool begun = false;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string flags, name;
    words >> flags >> name;
    if (begun && flags.starts_with('V')) names.video.insert(name);
    if (begun && flags.starts_with('A')) names.sound.insert(name);
    begun = begun || flags.starts_with("---");
  }
  return names;
}

/// Returns a file in memory with these bytes. A program that opens it as /dev/fd/N reads from the first byte.
Descriptor memory_file(const char* name, const void* data, size_t bytes, const fs::path& target) {
  Descriptor file(memfd_create(name, MFD_CLOEXEC));
  const int error = file.number() < 0 ? errno : models::write_all(file.number(), data, bytes);
  if (error != 0) models::throw_write_failure(target, error);
  return file;
}

/// Returns a file in memory with the recipe as FFmpeg's metadata. FFmpeg's syntax needs a backslash before five
/// characters.
Descriptor metadata_file(const std::string& recipe, const fs::path& target) {
  std::string text = ";FFMETADATA1\ncomment=";
  for (const char c : recipe) {
    if (c == '=' || c == ';' || c == '#' || c == '\\' || c == '\n') text += '\\';
    text += c;
  }
  text += '\n';
  return memory_file("recipe", text.data(), text.size(), target);
}

/// Returns a file in memory with the sound as a .wav, which tells ffmpeg the sound's format.
Descriptor sound_file(const SoundView& sound, const fs::path& target) {
  const std::vector<uint8_t> wav = wav_of(sound, target);
  return memory_file("sound", wav.data(), wav.size(), target);
}

/// Returns the value of the tag "comment" in FFmpeg's file of metadata.
std::string comment_in(const std::string& text) {
  std::string name, value;
  bool in_value = false;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || text[i] == '\n') {
      const auto is_letter = [](char a, char b) { return (a | 0x20) == b; };
      if (in_value && std::ranges::equal(name, std::string_view("comment"), is_letter)) return value;
      name.clear();
      value.clear();
      in_value = false;
    } else if (text[i] == '=' && !in_value) {
      in_value = true;
    } else {
      if (text[i] == '\\' && i + 1 < text.size()) ++i;
      (in_value ? value : name) += text[i];
    }
  }
  return {};
}

class EncodedWriter final : public VideoWriter {
 public:
  EncodedWriter(const fs::path& path, const Stream& stream) : chosen_(choose_encoder(path, stream)), file_(path) {
    Ffmpeg::Start start{.arguments = frames_of(stream), .file = path, .output = false};
    const std::string& recipe = stream.options.recipe;
    const SoundView& sound = stream.options.sound;
    Descriptor metadata, samples;
    Words sound_words;
    if (!recipe.empty()) {
      metadata = metadata_file(recipe, path);
      append(start.arguments, {"-f", "ffmetadata", "-i", Ffmpeg::kMetadata});
      start.metadata = metadata.number();
    }
    if (sound.any()) {
      samples = sound_file(sound, path);
      const std::string name = choose_sound_encoder(path, sound.format), input = recipe.empty() ? "1" : "2";
      append(start.arguments, {"-f", "wav", "-i", Ffmpeg::kSound});
      sound_words = sound_encoding(name, input, sound.format);
      written_sound_ = written_sound(sound, name);
      start.sound = samples.number();
    }
    if (!recipe.empty()) append(start.arguments, {"-map_metadata", "1"});
    append(start.arguments, encoding(chosen_.name, stream));
    append(start.arguments, sound_words);
    if (stream.container.options != nullptr) append(start.arguments, {"-movflags", stream.container.options});
    start.arguments.push_back("file:" + file_.temporary().string());
    ffmpeg_.emplace(start);
  }

  void add(std::span<const uint8_t> frame) override {
    if (!ffmpeg_->write(frame)) throw_ffmpeg_failure(file_.target(), ffmpeg_->finish());
  }

  WrittenVideo complete() override {
    if (const std::string failure = ffmpeg_->finish(); !failure.empty()) throw_ffmpeg_failure(file_.target(), failure);
    const uint64_t bytes = fs::file_size(file_.temporary());
    file_.complete();
    return {.encoder = chosen_.name, .note = chosen_.note, .bytes = bytes, .sound = written_sound_};
  }
  void place() override { file_.commit(); }

 private:
  ChosenEncoder chosen_;
  WrittenSound written_sound_;
  models::AtomicFile file_;
  std::optional<Ffmpeg> ffmpeg_;  // declared after file_, so that ffmpeg ends before its file is removed
};

}  // namespace

bool has_encoder(const std::string& name) {
  return encoders_of_program().video.contains(name);
}

bool has_sound_encoder(const std::string& name) {
  return encoders_of_program().sound.contains(name);
}

std::string sound_encoder_failure(const std::string& name, const SoundFormat& sound) {
  const std::vector<float> silence(static_cast<size_t>(sound.channels * sound.sampling_rate / 10));
  const SoundView tenth{
      .format = sound, .samples = silence.data(), .count = std::ssize(silence) / std::max<int64_t>(1, sound.channels)};
  const Descriptor samples = sound_file(tenth, name);
  Ffmpeg::Start start{.arguments = {"-f", "wav", "-i", Ffmpeg::kSound}, .file = name, .output = false};
  append(start.arguments, sound_encoding(name, "0", sound));
  append(start.arguments, {"-f", "null", "file:/dev/null"});
  start.sound = samples.number();
  return Ffmpeg(start).finish();
}

bool may_make_yuv420p(const std::string& name, const Container&) {
  const std::string text = output_of_ffmpeg(ffmpeg_program(), {"-h", "encoder=" + name});
  const std::string heading = "Supported pixel formats:";
  const size_t begin = text.find(heading);
  if (begin == std::string::npos) return true;
  std::istringstream formats(text.substr(begin + heading.size(), text.find('\n', begin) - begin - heading.size()));
  for (std::string format; formats >> format;)
    if (format == "yuv420p") return true;
  return false;
}

std::string encoder_failure(const std::string& name, const Stream& stream) {
  Words arguments = frames_of(stream);
  append(arguments, encoding(name, stream));
  arguments.emplace_back("file:/dev/null");
  Ffmpeg ffmpeg({.arguments = arguments, .file = stream.container.extension, .output = false});
  ffmpeg.write(std::vector<uint8_t>(static_cast<size_t>(stream.width) * stream.height * 3));
  return ffmpeg.finish();
}

std::unique_ptr<VideoWriter> open_encoded(const fs::path& path, const models::VideoShape& shape,
                                          const VideoOptions& options) {
  require_media(path);
  const Stream stream{container_of(path), static_cast<int>(shape.width), static_cast<int>(shape.height), options};
  return std::make_unique<EncodedWriter>(path, stream);
}

std::string read_comment(const fs::path& path) {
  require_media(path);
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.number() < 0)
    throw bad_file(path, "cannot be read: " + std::generic_category().message(errno), "check its permissions");
  Ffmpeg ffmpeg({.arguments = {"-protocol_whitelist", "file", "-i", Ffmpeg::kInput, "-f", "ffmetadata", "pipe:1"},
                 .file = path,
                 .input = file.number()});
  std::vector<uint8_t> text;
  while (ffmpeg.read(text)) {
  }
  if (const std::string failure = ffmpeg.finish(); !failure.empty())
    throw bad_file(path, "cannot be read: " + failure,
                   "name a video of this program, its latents, a recipe or a report");
  return comment_in({text.begin(), text.end()});
}

MediaReport media_report() {
  const fs::path program = ffmpeg_program();
  if (program.empty()) return {};
  // The first line is "ffmpeg version 5.1.9-0+deb12u1 Copyright (c) ...".
  std::istringstream words(output_of_ffmpeg(program, {"-version"}));
  std::string name, label, version;
  words >> name >> label >> version;
  return {.libraries = "FFmpeg " + version + ", the program " + program.string(), .formats = format_encoders()};
}

}  // namespace sparsereel::app
