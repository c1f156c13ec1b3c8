// Saves latents, and checks a file of latents before anything is computed from it.
#include "app/jobs/latents.h"

#include <ATen/ATen.h>

#include <utility>
#include <vector>

#include "app/media/video.h"
#include "app/tensor_file.h"
#include "hilbert/error.h"

namespace sparsereel::app {
namespace {

constexpr const char* kKept = "kept";                         // key in the file's metadata
constexpr const char *kVideo = "latents", *kSound = "sound";  // names of the tensors

at::Tensor checked(const models::TensorFile& file, const models::TensorEntry& entry, size_t dimensions,
                   const char* in_words) {
  const std::string path = file.path().string(), tensor = "the tensor " + entry.name;
  if (entry.shape.size() != dimensions || entry.shape[0] != 1)
    throw bad_file(path, tensor + " does not have " + in_words + " dimensions, the first of size 1",
                   "save the latents of one video per file");
  using enum models::Dtype;
  if (entry.dtype != f32 && entry.dtype != f16 && entry.dtype != bf16)
    throw bad_file(path, tensor + " has dtype " + std::string(models::name(entry.dtype)),
                   "save it as fp32, fp16 or bf16");
  at::Tensor latents = copy_of(file, entry);
  if (!at::isfinite(latents).all().item<bool>())
    throw bad_file(path, tensor + " holds NaN or Inf", "make the latents again");
  return latents;
}

/// Returns true if the file holds exactly this tensor, or if the tensor is undefined and the file lacks it.
bool holds(const models::TensorFile& file, const char* name, const at::Tensor& tensor) {
  const models::TensorEntry* entry = file.find(name);
  if (entry == nullptr || !tensor.defined()) return entry == nullptr && !tensor.defined();
  const at::Tensor kept = copy_of(file, *entry);
  return kept.defined() && kept.scalar_type() == tensor.scalar_type() && at::equal(kept, tensor);
}

}  // namespace

void save_latents(const std::filesystem::path& path, const models::Latents& latents, const std::string& recipe,
                  LatentsPurpose purpose) {
  std::map<std::string, std::string> metadata = {{"recipe", recipe}};
  if (purpose == LatentsPurpose::until_the_video_is_written) metadata[kKept] = "until the video is written";
  std::vector<models::TensorView> tensors = {view_of(kVideo, latents.video)};
  if (latents.sound.defined()) tensors.push_back(view_of(kSound, latents.sound));
  models::write_safetensors(path, tensors, metadata);
}

bool are_kept_in(const std::filesystem::path& path, const models::Latents& latents) {
  try {
    const models::TensorFile file(path);
    return file.metadata().contains(kKept) && holds(file, kVideo, latents.video) && holds(file, kSound, latents.sound);
  } catch (const Error&) {  // the file holds no latents, in spite of its name
    return false;
  }
}

SavedLatents load_latents(const std::filesystem::path& path) {
  if (is_video(path))
    throw bad_input(path.string() + " is a video, not latents",
                    "name a file made by --save-latents; 'sparsereel generate --from' makes a video again");
  const models::TensorFile file(path);
  const models::TensorEntry *entry = file.find(kVideo), *sound = file.find(kSound);
  if (entry == nullptr) throw bad_file(path, "holds no tensor named latents", "name a file made by --save-latents");
  models::Latents latents = checked(file, *entry, 5, "five");
  if (sound != nullptr) latents.sound = checked(file, *sound, 3, "three");
  const auto& metadata = file.metadata();
  const auto recipe = metadata.find("recipe");
  return {.latents = std::move(latents), .recipe = recipe == metadata.end() ? "" : recipe->second};
}

}  // namespace sparsereel::app
