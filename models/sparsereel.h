// libsparsereel: makes videos from text, from C++17. This is the only public header; it includes nothing of libtorch.
//
// On a CPU, libtorch's threads spin while they wait for each other. Beside other busy processes a video then takes
// several times as long. Set OMP_WAIT_POLICY=passive in the environment to prevent that. Set it before the program
// starts, because it is read while the library is loaded. The sparsereel program sets it for itself.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#define SPARSEREEL_API __attribute__((visibility("default")))

// The library's soname is major.minor: the binary interface stays the same within a minor version.
#define SPARSEREEL_VERSION_MAJOR 0
#define SPARSEREEL_VERSION_MINOR 1
#define SPARSEREEL_VERSION_PATCH 0

namespace sparsereel {

/// The only exception that the library throws. Exceptions of libtorch and of the standard library are converted to it.
/// what() holds the cause and the remedy. They name options as the members below are named.
class SPARSEREEL_API Failure : public std::runtime_error {
 public:
  Failure(int code, std::string cause, std::string remedy, std::string field = {});
  Failure(const Failure&) = default;
  Failure& operator=(const Failure&) = default;
  ~Failure() override;

  int code() const { return code_; }  // 1 failed while running, 2 bad arguments or input, 130 cancelled
  const std::string& cause() const { return cause_; }
  const std::string& remedy() const { return remedy_; }
  const std::string& field() const { return field_; }  // member below at fault, such as "steps"; empty if none

 private:
  int code_;
  std::string cause_, remedy_, field_;
};

/// Options of an opened model. They take the values of the command line's options of the same names.
struct ModelOptions {
  std::string device = "auto";                          // auto, cpu, cuda, cuda:N
  std::string dtype = "auto";                           // auto, fp32, bf16, fp16
  std::string weights = "auto", text_weights = "auto";  // auto, fp8: for the transformer and the text encoder
  bool offload = false;  // keeps weights in host memory and copies them to the GPU in turn
  /// Files of weights (safetensors, GGUF, .pth) that replace weights of the model, one file for each part. Tensors have
  /// the names of diffusers or of the model's authors. transformer_2 is the second transformer of models that have two.
  std::string transformer = {}, transformer_2 = {}, vae = {}, text_encoder = {}, image_encoder = {};
  /// A spiece.model, a tokenizer.json, or a folder with one of them. It replaces the tokenizer of the model, and a
  /// tokenizer in the text encoder's file or beside it.
  std::string tokenizer = {};
  std::string lora = {};  // "style.safetensors:0.8", several separated by commas; added to the weights
  /// Folder with the YAML files of known models; it must exist. If empty, the folder of the installation or of the
  /// source tree is used.
  std::string configs = {};
  /// CPU threads of the whole process. 0 keeps the current number, which is at first the number of cores.
  int threads = 0;
  /// GPUs that make each video together: cuda:0, cuda:1 and so on, among those that CUDA_VISIBLE_DEVICES shows. Each
  /// GPU holds the whole transformer and decoder. While a video is made, each has a thread of this process. If one
  /// fails, the video fails, and the next one starts afresh; a broken GPU stays broken until the process ends. With
  /// device cpu, this many threads share the cores (for tests). Only the command line uses GPUs of several hosts.
  int gpus = 1;
};

/// An RGB picture of 8 bits per value, gamma-encoded: [height, width, 3] without gaps, already rotated upright. The
/// caller owns the pixels; the library only reads them. `pixels` is null if there is no picture.
struct ImageView {
  const uint8_t* pixels = nullptr;
  int64_t height = 0, width = 0;
};

/// Options of one video, resolved as on the command line. An unset member takes its value from the first of these that
/// gives one: the profile or preset, the file in ModelOptions::configs that fits the model, and the checkpoint. Entries
/// of that file without a member here are ignored. If that folder holds no files of models, a warning says so, and only
/// the checkpoint's defaults remain. Values that are impossible, out of range or contradict each other are refused
/// before anything is computed. A member that can have no effect causes a warning.
struct VideoRequest {
  std::string prompt = {};                          // UTF-8; must contain more than white space
  std::optional<std::string> negative_prompt = {};  // UTF-8
  uint64_t seed = 42;
  std::optional<int64_t> steps = {};
  std::optional<int64_t> width = {}, height = {}, frames = {};  // pixels, frames; models restrict them
  /// 480p, 720p: area that replaces width and height; the shape is the shape of the image, or 16:9.
  std::string size = {};
  std::optional<double> seconds = {};  // replaces frames: the nearest possible number at the model's frame rate
  /// First and last frame of the video, of any size, for models that take them. If width and height are both unset, the
  /// video has the first image's shape, and the area of `size` or of the model's default.
  ImageView image = {}, last_image = {};
  std::string resize = {};                                 // cover (scale and crop), stretch; cover if empty
  std::optional<int64_t> max_sequence_length = {};         // most tokens of the prompt; longer prompts are cut
  std::optional<double> cfg_scale = {}, cfg_scale_2 = {};  // guidance scales; cfg_scale_2 is for a second transformer
  std::string guidance_passes = {};                        // batched, in-turn; batched if empty
  std::optional<bool> dynamic_cfg = {};                    // the guidance scale changes over the steps
  std::string scheduler = {};                              // name of a sampler; if empty, the checkpoint's sampler
  std::optional<double> flow_shift = {};                   // for flow-matching samplers
  /// Noise levels before the shift, such as {1, 0.75, 0.5}, for flow-matching samplers. They exclude `steps`.
  std::vector<double> sigmas = {};
  std::string attention = {};  // full, quantized, sparse, check; if empty, sparse where it runs
  std::optional<double> topk = {}, cdf = {}, error = {}, block_error = {}, similarity = {}, pv_threshold = {};
  std::string dropped = {};                // replacement of blocks that are not computed: mean, none; default if empty
  std::string select = {};                 // ranking of blocks: error, mass; if empty, the one that goes with `dropped`
  std::optional<int64_t> cell = {};        // tokens that share one mean: 16, 32, 64
  std::optional<int64_t> arithmetic = {};  // bits in which a GPU computes sparse attention: 8, 16; unset: 8
  std::optional<std::string> dense_steps = {};  // first steps that compute every block: "5", or "20%" of all
  std::optional<int64_t> dense_layers = {};     // first layers that compute every block
  std::string token_order = {};                 // hilbert, native, time-major, morton, random; hilbert if empty
  /// "0.1" or "forecast:0.1": reuse steps whose first block changes less. "steps:20": compute 20 steps. No cache if
  /// empty.
  std::string cache = {};
  std::string vae_tiling = {};  // auto, on, off; auto if empty
  /// exact, near, balanced, fast, if the model's file has them. If empty, exact with attention full, else balanced.
  std::string preset = {};
  /// Number of steps of a distilled model, 4 or 8: sets sampler, noise levels, shift and guidance as the model's file
  /// says. Members that are set win. The model needs a distilled transformer or LoRA.
  std::optional<int64_t> distilled = {};
  /// File of a profile that `sparsereel tune` made for this model. It replaces the preset and has no effect with
  /// attention full.
  std::string profile = {};
  /// More options of the video, under the command line's long names with _ or -: {{"cell", "32"}}. An option must not
  /// also be set as a member.
  std::map<std::string, std::string> options = {};
};

/// A finished video. The caller owns it; it may outlive the TextToVideo that made it.
struct Video {
  int64_t frames = 0, height = 0, width = 0;
  std::vector<float> pixels = {};  // [frames, height, width, 3], gamma-encoded RGB (not linear light), 0..1
  double sparsity = 0;             // share of the attention's work that was skipped, 0..1, without the means' cost
  double mean_share = 0;           // cost of the means of dropped blocks, as a share of full attention's work
  std::string defect = {};         // "is black"; empty if nothing is wrong
  /// Everything the command line would warn of: members without effect, the defect, a prompt that was cut, and another
  /// number of frames. Also steps that gave NaN and were redone with full attention, and a decode that was redone in
  /// tiles.
  std::vector<std::string> warnings = {};
};

/// Called on the caller's thread after each denoising step; `step` counts from 1 to `steps`. Returning false ends the
/// run with a Failure of code 130; the model stays usable. An exception from the callback also ends the run and reaches
/// the caller unchanged. Loading, which comes before, and decoding, which comes after, are not interrupted.
using StepCallback = std::function<bool(int64_t step, int64_t steps)>;

/// An opened checkpoint. From the first video on, its transformer and decoder stay in memory until the object is
/// destroyed. A call that overlaps another call on the same object throws a Failure of code 2. Different objects may
/// run in different threads; they share the CPU's cores or the GPU.
class SPARSEREEL_API TextToVideo {
 public:
  /// Opens a model and reads only the headers of its files; weights are loaded while a video is made. `model` is a
  /// checkpoint in diffusers' layout, a folder of single files, or one file with all parts. If it is empty, the files
  /// in `options` are used. If a folder holds several models, the Failure's remedy lists their files.
  explicit TextToVideo(const std::string& model, const ModelOptions& options = {});
  ~TextToVideo();
  TextToVideo(TextToVideo&&) noexcept;
  TextToVideo& operator=(TextToVideo&&) noexcept;
  TextToVideo(const TextToVideo&) = delete;
  TextToVideo& operator=(const TextToVideo&) = delete;

  /// Makes one video. The same request on the same machine gives the same video, bit for bit.
  Video generate(const VideoRequest& request, const StepCallback& step = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sparsereel
