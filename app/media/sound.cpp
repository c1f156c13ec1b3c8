// Writes .wav files. A chunk in their head says that this program wrote them.
#include "app/media/sound.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <string_view>
#include <system_error>

#include "hilbert/error.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;
using WavBytes = std::vector<uint8_t>;

constexpr int64_t kSampleBytes = 3;

/// The whole chunk LIST INFO, which names the software. The name is padded with zeros to an even length.
constexpr std::string_view kSoftware("LIST\x18\0\0\0INFOISFT\x0C\0\0\0sparsereel\0\0", 32);
constexpr size_t kHeadBytes = 12 + 8 + 16 + kSoftware.size() + 8;  // RIFF, format, kSoftware, header of the samples

void put(WavBytes& bytes, std::string_view text) {
  bytes.insert(bytes.end(), text.begin(), text.end());
}

/// Appends the lowest `count` bytes of a number, lowest first.
void put(WavBytes& bytes, uint64_t number, int count) {
  for (int i = 0; i < count; ++i) bytes.push_back(static_cast<uint8_t>(number >> (8 * i)));
}

bool holds_sound(const fs::path& place) {
  std::error_code ignored;
  if (!fs::is_regular_file(place, ignored)) return false;
  std::string head(kHeadBytes, '\0');
  std::ifstream file(place, std::ios::binary);
  if (!file.read(head.data(), static_cast<std::streamsize>(head.size()))) return false;
  return head.starts_with("RIFF") && head.find(kSoftware) != std::string::npos;
}

}  // namespace

float SoundView::written(int64_t channel, int64_t index) const {
  const float value = samples[channel * count + index];
  return std::isfinite(value) ? std::clamp(value, -1.0F, 1.0F) : 0.0F;
}

int64_t SoundView::silenced() const {
  return std::count_if(samples, samples + format.channels * count, [](float value) { return !std::isfinite(value); });
}

double WrittenSound::seconds() const {
  return any() ? static_cast<double>(count) / static_cast<double>(format.sampling_rate) : 0;
}

WrittenSound written_sound(const SoundView& sound, const std::string& encoder) {
  if (!sound.any()) return {};
  return {.format = sound.format, .count = sound.count, .silenced = sound.silenced(), .encoder = encoder};
}

WavBytes wav_of(const SoundView& sound, const fs::path& target) {
  const auto [channels, rate] = sound.format;
  const int64_t frame_bytes = channels * kSampleBytes, data_bytes = sound.count * frame_bytes;
  if (data_bytes > std::numeric_limits<uint32_t>::max() - static_cast<int64_t>(kHeadBytes) - 1)
    throw bad_file(target, "the sound is too long for a .wav file, which holds 4 GiB", "make a shorter video");
  const uint64_t padding = static_cast<uint64_t>(data_bytes % 2);  // chunks have an even length
  WavBytes wav;
  wav.reserve(kHeadBytes + static_cast<size_t>(data_bytes) + padding);
  put(wav, "RIFF");
  put(wav, kHeadBytes - 8 + static_cast<uint64_t>(data_bytes) + padding, 4);
  put(wav, "WAVEfmt ");
  put(wav, 16, 4);
  put(wav, 1, 2);  // PCM
  put(wav, static_cast<uint64_t>(channels), 2);
  put(wav, static_cast<uint64_t>(rate), 4);
  put(wav, static_cast<uint64_t>(rate * frame_bytes), 4);
  put(wav, static_cast<uint64_t>(frame_bytes), 2);
  put(wav, 8 * kSampleBytes, 2);
  put(wav, kSoftware);
  put(wav, "data");
  put(wav, static_cast<uint64_t>(data_bytes), 4);
  constexpr double kMost = (1 << 23) - 1;
  for (int64_t i = 0; i < sound.count; ++i)
    for (int64_t channel = 0; channel < channels; ++channel)
      put(wav, static_cast<uint64_t>(std::lround(sound.written(channel, i) * kMost)), kSampleBytes);
  put(wav, 0, static_cast<int>(padding));
  return wav;
}

const KindBeside kSoundBeside = {.content = "sound", .without = "--no-audio", .is_own = holds_sound};

}  // namespace sparsereel::app
