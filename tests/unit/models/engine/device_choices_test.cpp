// Tests which dtype a run chooses for a checkpoint's stored weights.
#include "models/engine/device_choices.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "models/store/checkpoint/describe.h"
#include "models/store/checkpoint/safetensors.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

/// Files with 8-bit weights also hold fp16 tensors. Yet the run must not compute in fp16, because UMT5's activations
/// exceed its range.
TEST(StoredDtype, IsBf16IfTheTextEncoderIsReplacedByAPackedOne) {
  const test::TemporaryFolder folder;
  Checkpoint model = Checkpoint::open(SPARSEREEL_TEST_DATA "/wan/pipeline");
  const ModelSpec spec = describe(model);
  std::map<std::string, std::string> files = {{"transformer", ""}, {"tokenizer", "spiece.model"}};
  EXPECT_EQ(stored_dtype(model, spec, files), at::kHalf);
  const Component usual = model.component("text_encoder");
  for (const bool packed : {false, true}) {
    std::vector<TensorView> tensors;
    for (const auto& [name, place] : usual.tensors) {
      const TensorEntry& entry = *place.second;
      const std::span<const std::byte> data = usual.files[0]->data(entry);
      if (packed && name.ends_with(".wo.weight"))
        tensors.push_back({name, Dtype::f8_e4m3, entry.shape, data.first(data.size() / 2)});
      else
        tensors.push_back({name, entry.dtype, entry.shape, data});
    }
    files["text_encoder"] = folder / (packed ? "packed.safetensors" : "halves.safetensors");
    write_safetensors(files["text_encoder"], tensors);
    model.replace("text_encoder", files["text_encoder"]);
    EXPECT_EQ(stored_dtype(model, spec, files), packed ? at::kBFloat16 : at::kHalf);
  }
}

}  // namespace
}  // namespace sparsereel::models
