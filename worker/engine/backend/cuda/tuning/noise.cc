// Draws a block of noise on the host and repeats it on the device.
#include "worker/engine/backend/cuda/tuning/noise.h"

#include <algorithm>
#include <vector>

namespace trainyard::engine::cuda {
namespace {

// The number of words that are drawn; they repeat.
constexpr int64_t kWords = int64_t{1} << 16;

// Makes a word of a sign and an exponent that is 0 in f16 and -7 to 0 in bf16, which is the upper
// half of f32.
uint16_t WordOf(uint64_t random) {
  constexpr unsigned kSign = 0x8000;
  constexpr unsigned kExponent = 0x3C00;
  constexpr unsigned kDrawn = 0x03FF;
  return static_cast<uint16_t>((random & (kSign | kDrawn)) | kExponent);
}

const std::vector<uint16_t>& Words() {
  static const auto* const words = [] {
    auto* const drawn = new std::vector<uint16_t>(kWords);
    uint64_t state = 1;
    for (uint16_t& word : *drawn) {
      // The constants are from Knuth, The Art of Computer Programming, volume 2, section 3.3.4,
      // table 1, line 26.
      state = state * 6364136223846793005U + 1442695040888963407U;
      word = WordOf(state >> 40);
    }
    return drawn;
  }();
  return *words;
}

}  // namespace

cudaError_t FillWithNoise(void* memory, int64_t bytes, cudaStream_t stream) {
  auto* const begin = static_cast<unsigned char*>(memory);
  int64_t filled = std::min<int64_t>(bytes, kWords * int64_t{sizeof(uint16_t)});
  cudaError_t error = cudaMemcpyAsync(begin, Words().data(), static_cast<size_t>(filled),
                                      cudaMemcpyHostToDevice, stream);
  while (error == cudaSuccess && filled < bytes) {
    const int64_t copied = std::min(filled, bytes - filled);
    error = cudaMemcpyAsync(begin + filled, begin, static_cast<size_t>(copied),
                            cudaMemcpyDeviceToDevice, stream);
    filled += copied;
  }
  return error;
}

}  // namespace trainyard::engine::cuda
