// capture_output COMPONENT FOLDER INPUTS OUTPUT DEVICE DTYPE: runs a component of a checkpoint once and writes its
// result as the fp32 tensor `output`. COMPONENT is transformer (on `latents`, `text` and `timesteps` of INPUTS, with
// full attention) or vae (on `latents`, untiled). DTYPE fp8 is bf16 with the transformer's weights in 8 bits.
// tests/parity/compare_precision.py calls it.
#include <c10/core/InferenceMode.h>

#include "models/engine/components.h"
#include "models/request/attention_run.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/store/weights/device.h"
#include "tests/bench/program.h"

namespace {

using namespace sparsereel;

at::Tensor run_component(const std::string& name, const models::Component& component, const models::TensorFile& inputs,
                         at::Device device, models::WeightFormat format) {
  const at::ScalarType dtype = format.dtype;
  const at::Tensor latents = bench::read_tensor(inputs, "latents", at::kFloat).to(device, dtype);
  if (name == "vae") return models::load_vae(component, device, dtype)->decode(latents, false);
  const at::Tensor text = bench::read_tensor(inputs, "text", at::kFloat).to(device, dtype),
                   timesteps = bench::read_tensor(inputs, "timesteps", at::kLong).to(device);
  models::AttentionRun attention;
  return models::load_transformer(component, device, format)->forward(latents, {text}, timesteps, attention);
}

int run(const std::vector<std::string>& arguments) {
  const c10::InferenceMode inference;
  const at::Device device = models::resolve_device(arguments[4]);
  const bool fp8 = arguments[5] == "fp8";
  const models::WeightFormat format(models::resolve_dtype(fp8 ? "bf16" : arguments[5], device, at::kFloat), fp8);
  models::Component component = models::Checkpoint::open(arguments[1]).component(arguments[0]);
  component.config["scaling_factor"] = 1;  // for the VAE, whose input is already scaled for diffusers' decode()
  const at::Tensor output = run_component(arguments[0], component, models::TensorFile(arguments[2]), device, format);
  bench::write_tensor(arguments[3], "output", output.to(at::kCPU, at::kFloat));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() != 6) {
    std::fprintf(stderr, "usage: %s COMPONENT FOLDER INPUTS OUTPUT DEVICE DTYPE\n", argv[0]);
    return 2;
  }
  return bench::guarded([&] { return run(arguments); });
}
