// Saves latents, and checks a file of latents before anything is computed from it.
#include "app/jobs/latents.h"

#include <ATen/ATen.h>

#include <utility>

#include "app/media/video.h"
#include "app/tensor_file.h"
#include "hilbert/error.h"

namespace sparsereel::app {
namespace {

constexpr const char* kKept = "kept";  // key in the file's metadata

}  // namespace

void save_latents(const std::filesystem::path& path, const at::Tensor& latents, const std::string& recipe,
                  LatentsPurpose purpose) {
  std::map<std::string, std::string> metadata = {{"recipe", recipe}};
  if (purpose == LatentsPurpose::until_the_video_is_written) metadata[kKept] = "until the video is written";
  models::write_safetensors(path, {view_of("latents", latents)}, metadata);
}

bool are_kept_in(const std::filesystem::path& path, const at::Tensor& latents) {
  try {
    const models::TensorFile file(path);
    const models::TensorEntry* entry = file.find("latents");
    if (entry == nullptr || !file.metadata().contains(kKept)) return false;
    const at::Tensor kept = copy_of(file, *entry);
    return kept.defined() && kept.scalar_type() == latents.scalar_type() && at::equal(kept, latents);
  } catch (const Error&) {  // the file holds no latents, though it has such a name
    return false;
  }
}

SavedLatents load_latents(const std::filesystem::path& path) {
  if (is_video(path))
    throw bad_input(path.string() + " is a video, not latents",
                    "name a file made by --save-latents; 'sparsereel generate --from' makes a video again");
  const models::TensorFile file(path);
  const models::TensorEntry* entry = file.find("latents");
  if (entry == nullptr) throw bad_file(path, "holds no tensor named latents", "name a file made by --save-latents");
  const std::string tensor = "the tensor latents";
  if (entry->shape.size() != 5 || entry->shape[0] != 1)
    throw bad_file(path, tensor + " does not have five dimensions, the first of size 1",
                   "save the latents of one video per file");
  using enum models::Dtype;
  if (entry->dtype != f32 && entry->dtype != f16 && entry->dtype != bf16)
    throw bad_file(path, tensor + " has dtype " + std::string(models::name(entry->dtype)),
                   "save it as fp32, fp16 or bf16");
  at::Tensor latents = copy_of(file, *entry);
  if (!at::isfinite(latents).all().item<bool>())
    throw bad_file(path, tensor + " holds NaN or Inf", "make the latents again");
  const auto& metadata = file.metadata();
  const auto recipe = metadata.find("recipe");
  return {.latents = std::move(latents), .recipe = recipe == metadata.end() ? "" : recipe->second};
}

}  // namespace sparsereel::app
