// Saves and loads latents; see latents.h.
#include "app/latents.h"

#include <ATen/ATen.h>

#include "hilbert/error.h"
#include "models/checkpoint/safetensors.h"

namespace sparsereel::app {

void save_latents(const std::filesystem::path& path, const at::Tensor& latents, const std::string& recipe) {
  const auto dtype = latents.scalar_type() == at::kHalf       ? models::Dtype::f16
                     : latents.scalar_type() == at::kBFloat16 ? models::Dtype::bf16
                                                              : models::Dtype::f32;
  const auto* bytes = static_cast<const std::byte*>(latents.const_data_ptr());
  const models::TensorView view{
      .name = "latents", .dtype = dtype, .shape = latents.sizes().vec(), .data = {bytes, latents.nbytes()}};
  models::write_safetensors(path, {view}, {{"recipe", recipe}});
}

SavedLatents load_latents(const std::filesystem::path& path) {
  const models::SafetensorsFile file(path);
  const models::TensorEntry* entry = file.find("latents");
  if (entry == nullptr)
    throw bad_input(path.string() + " holds no tensor named latents", "name a file made by --save-latents");
  const std::string tensor = path.string() + ": the tensor latents";
  if (entry->shape.size() != 5 || entry->shape[0] != 1)
    throw bad_input(tensor + " is not of shape [1, frames, channels, height, width]",
                    "save one video's latents a file");
  at::ScalarType dtype = at::kFloat;
  if (entry->dtype == models::Dtype::f16) dtype = at::kHalf;
  if (entry->dtype == models::Dtype::bf16) dtype = at::kBFloat16;
  if (dtype == at::kFloat && entry->dtype != models::Dtype::f32)
    throw bad_input(tensor + " has dtype " + std::string(models::name(entry->dtype)), "save it as fp32, fp16 or bf16");
  void* data = const_cast<std::byte*>(file.data(*entry).data());  // from_blob wants it so; only read, by clone()
  const auto& metadata = file.header().metadata;
  const auto recipe = metadata.find("recipe");
  return {.latents = at::from_blob(data, entry->shape, at::TensorOptions().dtype(dtype)).clone(),
          .recipe = recipe == metadata.end() ? "" : recipe->second};
}

}  // namespace sparsereel::app
