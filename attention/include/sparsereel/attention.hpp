// A C++ layer over attention.h: a handle that frees itself, calls with defaults, and exceptions in place of statuses.
#pragma once

#include <sparsereel/attention.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace sparsereel {

/// A function of attention.h failed. what() is the cause and the remedy.
class AttentionError : public std::runtime_error {
 public:
  explicit AttentionError(sparsereel_status status) : std::runtime_error(sparsereel_message()), status_(status) {}

  sparsereel_status status() const { return status_; }

 private:
  sparsereel_status status_;
};

inline void check_attention(sparsereel_status status) {
  if (status != SPARSEREEL_OK) throw AttentionError(status);
}

/// A call. The constructors set its fields to their defaults.
struct AttentionCall : sparsereel_attention_call {
  AttentionCall() : sparsereel_attention_call() { check_attention(sparsereel_attention_call_init(this, sizeof *this)); }

  /// Sets the sizes and strides of self-attention over contiguous tensors [batch, tokens, heads, head_dim]. kv_heads:
  /// number of heads of k and v; 0 means as many as `heads`.
  AttentionCall(int64_t batch_, int64_t tokens, int64_t heads_, int64_t head_dim_, int64_t kv_heads_ = 0)
      : AttentionCall() {
    batch = batch_;
    queries = keys = tokens;
    heads = heads_;
    kv_heads = kv_heads_;
    head_dim = head_dim_;
    const auto contiguous = [&](int64_t of) {
      return sparsereel_tensor{nullptr, tokens * of * head_dim_, of * head_dim_, head_dim_};
    };
    q = out = contiguous(heads_);
    k = v = contiguous(kv_heads_ == 0 ? heads_ : kv_heads_);
  }
};

/// Owns the handle of a device; see sparsereel_attention_create(). Its functions throw AttentionError.
class Attention {
 public:
  explicit Attention(int device) { check_attention(sparsereel_attention_create(device, &handle_)); }
  Attention(Attention&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Attention& operator=(Attention&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Attention() { sparsereel_attention_destroy(handle_); }

  /// Returns the handle for functions of attention.h.
  sparsereel_attention* get() const { return handle_; }

  /// Returns the bytes of device memory that the call needs as workspace, or 0 if the call is so short that full
  /// attention is faster.
  size_t workspace_size(const sparsereel_attention_call& call) const {
    size_t bytes = 0;
    return took(sparsereel_attention_workspace_size(handle_, &call, &bytes)) ? bytes : 0;
  }

  /// Runs the call as sparsereel_attention_run() does. Returns false without running the call if it is so short that
  /// full attention is faster; run your own full attention then.
  bool run(const sparsereel_attention_call& call, void* workspace, size_t bytes, void* stream = nullptr) {
    return took(sparsereel_attention_run(handle_, &call, workspace, bytes, stream));
  }

  std::string describe(const sparsereel_attention_call& call) const {
    char text[256];
    check_attention(sparsereel_attention_describe(handle_, &call, text, sizeof text));
    return text;
  }

 private:
  /// Returns false for SPARSEREEL_TOO_SHORT, and throws AttentionError for every other failure.
  static bool took(sparsereel_status status) {
    if (status == SPARSEREEL_TOO_SHORT) return false;
    check_attention(status);
    return true;
  }

  sparsereel_attention* handle_ = nullptr;
};

/// Returns `places` of sparsereel_token_order(): the native index of the token at each position of the sequence. Throws
/// AttentionError for a grid that is empty or too large.
inline std::vector<int64_t> token_order(sparsereel_order order, int64_t frames, int64_t height, int64_t width) {
  check_attention(sparsereel_token_order(order, frames, height, width, nullptr, nullptr));  // throws for a bad grid
  std::vector<int64_t> places(static_cast<size_t>(frames * height * width));
  check_attention(sparsereel_token_order(order, frames, height, width, places.data(), nullptr));
  return places;
}

}  // namespace sparsereel
