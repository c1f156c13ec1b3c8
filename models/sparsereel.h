// libsparsereel: text to video from C++17. The one public header; it needs none of libtorch's.
//
// On a CPU, libtorch's threads spin while they wait for each other: beside other busy processes a video takes several
// times as long. OMP_WAIT_POLICY=passive in the environment ends that. It is read while the library is loaded, so set
// it before the program starts, as the command line does for itself; later is too late.
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

// The library's soname is major.minor: its binary interface is the same within a minor version.
#define SPARSEREEL_VERSION_MAJOR 0
#define SPARSEREEL_VERSION_MINOR 1
#define SPARSEREEL_VERSION_PATCH 0

namespace sparsereel {

/// The one exception that the library throws; libtorch's and the standard library's come as one too. what() is cause
/// and remedy, in which options stand by their members' names.
class SPARSEREEL_API Failure : public std::runtime_error {
 public:
  Failure(int code, std::string cause, std::string remedy, std::string field = {});
  Failure(const Failure&) = default;
  Failure& operator=(const Failure&) = default;
  ~Failure() override;

  int code() const { return code_; }  // 1: failed while running, 2: bad arguments or input, 130: cancelled
  const std::string& cause() const { return cause_; }
  const std::string& remedy() const { return remedy_; }
  const std::string& field() const { return field_; }  // the member below that is at fault, "steps"; empty: none

 private:
  int code_;
  std::string cause_, remedy_, field_;
};

/// The values of the command line's options of the same names.
struct ModelOptions {
  std::string device = "auto";                          // auto, cpu, cuda, cuda:N
  std::string dtype = "auto";                           // auto, fp32, bf16, fp16
  std::string weights = "auto", text_weights = "auto";  // auto, fp8: of the transformer, of the text encoder
  bool offload = false;                                 // weights pass from the host's memory through the GPU's
  /// One file of a part's weights (safetensors, GGUF, .pth), in place of the model's, under diffusers' names or those
  /// of the model's authors; the second: of the second transformer, where there is one.
  std::string transformer = {}, transformer_2 = {}, vae = {}, text_encoder = {}, image_encoder = {};
  /// In place of the model's, and of one in the text encoder's file or beside it: a spiece.model, a tokenizer.json, or
  /// a folder of one.
  std::string tokenizer = {};
  std::string lora = {};     // "style.safetensors:0.8", several with commas between; added to the weights
  std::string configs = {};  // folder of the known models' YAML, which must be there; empty: the installation's, or the
                             // source tree's
  int threads = 0;  // of the CPU, for the whole process; 0: as many as it uses already, which are all cores at first
  /// That make each video together: cuda:0 and on, of those that CUDA_VISIBLE_DEVICES leaves. Each has the whole
  /// transformer and decoder, and a thread of this process, for as long as a video is made. Where one fails the video
  /// does, and the next is made as if nothing had been; a GPU that is broken stays so until the process ends. Beside
  /// device cpu so many threads share the cores: for tests. GPUs of several hosts are the command line's.
  int gpus = 1;
};

/// A picture, RGB of 8 bits as for a screen: [height, width, 3] without gaps, turned as it is to be seen. The pixels
/// are the caller's, and only read; null: no picture.
struct ImageView {
  const uint8_t* pixels = nullptr;
  int64_t height = 0, width = 0;
};

/// One video, resolved as the command line does: what is unset takes the value of the profile or the preset, then that
/// of the one file of ModelOptions::configs that fits the model, then the checkpoint's. Of such a file counts what has
/// a member here. Without such files in it the checkpoint's defaults are all there is, which is a warning. What is
/// impossible, out of its range or contradicts another member is refused as there, before anything is computed; a
/// member that can have no effect is a warning.
struct VideoRequest {
  std::string prompt = {};                          // UTF-8, more than white space
  std::optional<std::string> negative_prompt = {};  // UTF-8
  uint64_t seed = 42;
  std::optional<int64_t> steps = {};
  std::optional<int64_t> width = {}, height = {}, frames = {};  // pixels, frames; multiples as the model needs them
  std::string size = {};  // 480p, 720p: an area in place of width and height, in the image's shape, or 16:9
  std::optional<double> seconds = {};  // in place of frames: the nearest number at the model's frame rate
  /// What the video begins and ends with, for models that take it, of any size. With neither width nor height, the
  /// video has the first one's shape, and the area of `size`, or of the model's own.
  ImageView image = {}, last_image = {};
  std::string resize = {};                                 // cover (scale and crop), stretch; empty: cover
  std::optional<int64_t> max_sequence_length = {};         // tokens of the prompt; longer ones are cut
  std::optional<double> cfg_scale = {}, cfg_scale_2 = {};  // the second: of the second transformer, where there is one
  std::string guidance_passes = {};                        // batched, in-turn; empty: batched
  std::optional<bool> dynamic_cfg = {};                    // guidance grows over the steps
  std::string scheduler = {};                              // empty: the checkpoint's
  std::optional<double> flow_shift = {};                   // of schedulers of flow matching
  std::vector<double> sigmas = {};  // likewise; noise levels before the shift, {1, 0.75, 0.5}; they exclude steps
  std::string attention = {};       // full, quantized, sparse, check; empty: sparse where it runs
  std::optional<double> topk = {}, cdf = {}, error = {}, block_error = {}, similarity = {}, pv_threshold = {};
  std::string dropped = {};  // what stands for blocks that are not computed: mean, none; empty: the program's default
  std::string select = {};   // what blocks are chosen by: error, mass; empty: what goes with `dropped`
  std::optional<int64_t> cell = {};             // tokens that share one mean: 16, 32, 64
  std::optional<int64_t> arithmetic = {};       // bits in which a GPU computes sparse attention: 8, 16; unset: 8
  std::optional<std::string> dense_steps = {};  // the first ones, with every block: "5", or "20%" of all
  std::optional<int64_t> dense_layers = {};     // likewise
  std::string token_order = {};                 // hilbert, native, time-major, morton, random; empty: hilbert
  /// "0.1", "forecast:0.1": reuse steps whose first block changes less; "steps:20": compute 20 steps; empty: none
  std::string cache = {};
  std::string vae_tiling = {};  // auto, on, off; empty: auto
  /// exact, near, balanced, fast, as far as the model's file has them; empty: exact beside attention full, else
  /// balanced
  std::string preset = {};
  /// File of a profile that `sparsereel tune` made of this model, which stands for the preset; without effect beside
  /// attention full.
  std::string profile = {};
  /// Options of the video that have no member, or have one that is unset, by the command line's long names with _ or -:
  /// {{"cell", "32"}}.
  std::map<std::string, std::string> options = {};
};

/// Belongs to the caller: it outlives the TextToVideo that made it.
struct Video {
  int64_t frames = 0, height = 0, width = 0;
  std::vector<float> pixels = {};  // [frames, height, width, 3], RGB as for a screen (not linear light), 0..1
  double sparsity = 0;             // share of the attention's work that was not done, 0..1; means not counted
  double mean_share = 0;           // what the means of dropped blocks cost: their share of full attention's work
  std::string defect = {};         // "is black"; empty: nothing is wrong
  /// What the command line would warn of: members without effect, the defect, a prompt that was cut, steps that gave
  /// NaN and were redone with full attention, another number of frames, a decode that had to be done again in tiles.
  std::vector<std::string> warnings = {};
};

/// Called after each denoising step, from 1 to `steps`, on the caller's thread; false ends the run with a Failure of
/// code 130, after which the model is as good as before. What it throws ends the run too, and reaches the caller as it
/// is. Loading and decoding, which come before and after, are not interrupted.
using StepCallback = std::function<bool(int64_t step, int64_t steps)>;

/// An opened checkpoint; after the first video its denoiser and decoder stay in memory until it goes. A call
/// that overlaps another one of the same object is refused with a Failure of code 2. Different objects may run in
/// different threads, and share the CPU's cores or the GPU.
class SPARSEREEL_API TextToVideo {
 public:
  /// `model`: a checkpoint in diffusers' layout, or a folder of single files, or one file of all parts; empty: the
  /// files that the options name. Where a folder holds several models, the Failure's remedy lists their files. Only
  /// headers are read here; weights are loaded while a video is made.
  explicit TextToVideo(const std::string& model, const ModelOptions& options = {});
  ~TextToVideo();
  TextToVideo(TextToVideo&&) noexcept;
  TextToVideo& operator=(TextToVideo&&) noexcept;
  TextToVideo(const TextToVideo&) = delete;
  TextToVideo& operator=(const TextToVideo&) = delete;

  /// The same request on the same machine gives the same video, to the last bit.
  Video generate(const VideoRequest& request, const StepCallback& step = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sparsereel
