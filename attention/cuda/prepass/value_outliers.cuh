// Finds values of V that are far larger than any in the sample from which V's scale comes, and stores them exactly.
#pragma once

#include "attention/cuda/prepass/quantize.cuh"
#include "attention/cuda/value_records.cuh"

namespace sparsereel::attention::cuda {

/// Returns a word in which the highest bit of a byte is set if the e4m3 value in this byte of the argument is at least
/// as large, in magnitude, as the value with the code kCode.
template <uint32_t kCode>
__device__ uint32_t reaches(uint32_t e4m3) {
  return (e4m3 & 0x7F7F7F7FU) + (0x80 - kCode) * 0x01010101U;
}
template <uint32_t kCode>
__device__ bool reaches(const uint4& e4m3) {
  const uint32_t bits =
      reaches<kCode>(e4m3.x) | reaches<kCode>(e4m3.y) | reaches<kCode>(e4m3.z) | reaches<kCode>(e4m3.w);
  return (bits & 0x80808080U) != 0;
}
constexpr uint32_t kLargestCode = 0x7E;  // code of 448, to which larger values are rounded

/// V's scale is such that the largest value of the sample is 1.75. If a record has a value beyond 4 (kOutlierCode), all
/// its channels with values beyond 2.5 (kSparedCode) are rewritten. In normal data no value exceeds 4, but one record
/// in 25 has a value beyond 2.5.
constexpr uint32_t kOutlierCode = 0x48;
constexpr uint32_t kSparedCode = 0x42;

/// A channel of a record that has an outlier. Four neighboring lanes have 16 keys each, and call the functions
/// together. Instead of the channel's mean, a number is subtracted that makes the largest of the 64 values exact in
/// e4m3. A query that attends only to the key of this value then gets the exact value.
template <typename T, int D>
class OutlierRow {
 public:
  __device__ OutlierRow(const KernelParams& p, const Sizes& sizes, const Buffers& buffers,
                        const RecordThread<D>& thread, int channel, int chunk)
      : rows_(p.v, thread.b, thread.h, p.head_dim, channel / kLaneElements * kLaneElements),
        channel_(channel),
        chunk_(chunk),
        first_(thread.block * kRecord),
        left_(min(key_count(p, thread.b) - first_, kRecord)) {
    const int64_t at = static_cast<int64_t>(thread.b * sizes.kv_heads + thread.h) * D + channel;
    inverse_ = fast_inverse(buffers.v_scale[at]);
    center_ = buffers.v_center[at] * inverse_;
  }

  /// Rewrites the lane's keys. Returns the row's mean for Buffers::v_mean, in units of V's scale: the number that was
  /// subtracted, minus V's center, corrected by what rounding added to the row.
  __device__ float spare(uint4& e4m3) const {
    float x[16], sum = 0;
#pragma unroll
    for (int i = 0; i < 16; ++i) {  // all loads run at once
      const int key = key_of(chunk_ * 4 + i / 4, i % 4);
      const float value = to_float(rows_.load(first_ + min(key, left_ - 1)).element[channel_ % kLaneElements]);
      x[i] = key < left_ ? value * inverse_ : 0.0F;
      sum += x[i];
    }
    sum += __shfl_xor_sync(lanes_, sum, 1);
    sum += __shfl_xor_sync(lanes_, sum, 2);
    float mean = sum / static_cast<float>(left_);
    mean += rounding_of(largest(x, mean));
#pragma unroll
    for (int i = 0; i < 16; ++i) x[i] = key_of(chunk_ * 4 + i / 4, i % 4) < left_ ? x[i] - mean : 0.0F;
    const auto four = [&](int i) { return e4m3x4(x[i], x[i + 1], x[i + 2], x[i + 3]); };
    e4m3 = make_uint4(four(0), four(4), four(8), four(12));
    const float rest = sum - mean * static_cast<float>(left_);  // sum of the e4m3 values without rounding
    return fp16_range(mean - center_ - (sum_of_row(e4m3, lanes_) - rest) / static_cast<float>(left_));
  }

 private:
  /// Returns the value of the row that is farthest from the row's mean, minus that mean.
  __device__ float largest(const float (&x)[16], float mean) const {
    float most = 0;
#pragma unroll
    for (int i = 0; i < 16; ++i)
      if (key_of(chunk_ * 4 + i / 4, i % 4) < left_ && fabsf(x[i] - mean) > fabsf(most)) most = x[i] - mean;
    for (int lane = 1; lane < 4; lane *= 2) {
      const float other = __shfl_xor_sync(lanes_, most, lane);
      if (fabsf(other) > fabsf(most) || (fabsf(other) == fabsf(most) && other > most)) most = other;
    }
    return most;
  }

  __device__ static float rounding_of(float x) {
    return x - __low2float(halves_of(e4m3x4(x, 0, 0, 0) & 0xFFFFU));
  }

  const Rows<T> rows_;
  const int channel_, chunk_, first_, left_;
  const unsigned lanes_ = 0xFU << (threadIdx.x % 32 & ~3U);
  float inverse_, center_;
};

/// Stores the outliers of a record exactly.
template <typename T, int D>
__device__ void spare_outliers(const KernelParams& p, const Sizes& sizes, const Buffers& buffers,
                               const RecordThread<D>& thread) {
  const int64_t record = static_cast<int64_t>(thread.b * sizes.kv_heads + thread.h) * sizes.key_records + thread.block;
  uint8_t* out = buffers.v + record * sizes.value_record_bytes;
  for (int item = static_cast<int>(threadIdx.x); item < D * 4; item += kQuantizeThreads) {
    const int channel = item / 4, chunk = item % 4;
    auto* const place = reinterpret_cast<uint4*>(out + value_offset(channel, chunk * 16));
    uint4 keys = *place;
    const unsigned found = __ballot_sync(~0U, reaches<kSparedCode>(keys));
    if ((found >> (threadIdx.x % 32 & ~3U) & 0xF) == 0) continue;
    const float mean = OutlierRow<T, D>(p, sizes, buffers, thread, channel, chunk).spare(keys);
    *place = keys;
    if (chunk == 0) buffers.v_mean[record * D + channel] = __half_as_ushort(__float2half_rn(mean));
  }
}

}  // namespace sparsereel::attention::cuda
