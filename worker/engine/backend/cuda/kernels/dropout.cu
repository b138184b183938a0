// Computes dropout (graph/dropout.h). Random numbers depend only on the place of an element, so the
// gradient draws the same ones again.
#include <type_traits>

#include "worker/engine/backend/cuda/kernels/device.h"
#include "worker/engine/backend/cuda/kernels/elementwise.h"
#include "worker/engine/backend/cuda/kernels/lanes.h"
#include "worker/engine/backend/cuda/kernels/reduce.h"

namespace trainyard::engine::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kBlocksPerMultiprocessor = 8;
// The words of a block of random numbers, and the pixels of a thread. The four pixels of one
// channel share a block if the plane is a multiple of four.
constexpr int kWords = 4;

struct Words {
  uint32_t at[kWords];
};

// This is Philox4x32-10 (Salmon et al. 2011), as in graph/philox.h.
__device__ Words Philox(Words counter, uint32_t key0, uint32_t key1) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53U} * counter.at[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57U} * counter.at[2];
    counter = {{static_cast<uint32_t>(product1 >> 32) ^ counter.at[1] ^ key0,
                static_cast<uint32_t>(product1),
                static_cast<uint32_t>(product0 >> 32) ^ counter.at[3] ^ key1,
                static_cast<uint32_t>(product0)}};
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
  return counter;
}

struct DropoutArguments {
  int64_t rows = 0;
  int64_t pixels = 0;  // of a row
  int64_t channels = 0;
  uint32_t layer = 0;
  uint32_t threshold = 0;
  float scale = 1;
  // Return the distance to the next pixel and to the next channel, in the count of a row's
  // elements.
  int64_t pixel_step = 1;
  int64_t channel_step = 1;
  const StepControl* control = nullptr;
};

// Draws the numbers of one row, block by block. Elements that are asked for one after the other
// often share a block.
class Draw {
 public:
  __device__ Draw(const DropoutArguments& a, int64_t row) : a_(a) {
    const StepControl& control = *a.control;
    first_ = {{0, a.layer, control.first_row + static_cast<uint32_t>(row), control.step}};
    key0_ = control.key[0];
    key1_ = control.key[1];
  }

  __device__ bool Keeps(int64_t element) {
    const int64_t block = element / kWords;
    if (block != block_) {
      block_ = block;
      Words counter = first_;
      counter.at[0] = static_cast<uint32_t>(block);
      words_ = Philox(counter, key0_, key1_);
    }
    // The word is chosen without an index that becomes known late, because such an index would put
    // the words in memory.
    const int64_t word = element % kWords;
    const uint32_t low = word == 0 ? words_.at[0] : words_.at[1];
    const uint32_t high = word == 2 ? words_.at[2] : words_.at[3];
    return (word < 2 ? low : high) >= a_.threshold;
  }

 private:
  const DropoutArguments& a_;
  Words first_ = {};
  Words words_ = {};
  uint32_t key0_ = 0;
  uint32_t key1_ = 0;
  int64_t block_ = -1;
};

// A thread has eight channels of four pixels. The four pixels of a channel share a block of
// numbers. If there is only one pixel, the channels share it.
template <class T>
__global__ void __launch_bounds__(kThreads)
    DropoutKernel(DropoutArguments a, Operand x, Operand y) {
  const int64_t groups = LaneGroups(a.channels);
  const int64_t fours = (a.pixels + kWords - 1) / kWords;
  const int64_t of_row = fours * groups;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       at < a.rows * of_row; at += step) {
    const int64_t row = at / of_row;
    const int64_t within = at - row * of_row;
    const int64_t first_pixel = within / groups * kWords;
    const int64_t channel = within % groups * kLanes;
    const int count = LaneCount(a.channels, channel);
    Draw draw(a, row);
    uint32_t kept = 0;  // bit pixel * 8 + channel
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
#pragma unroll
      for (int p = 0; p < kWords; ++p) {
        if (i < count && first_pixel + p < a.pixels) {
          const int64_t element = (channel + i) * a.channel_step + (first_pixel + p) * a.pixel_step;
          kept |= draw.Keeps(element) ? 1U << (p * kLanes + i) : 0U;
        }
      }
    }
#pragma unroll
    for (int p = 0; p < kWords; ++p) {
      if (first_pixel + p < a.pixels) {
        const int64_t pixel = row * a.pixels + first_pixel + p;
        Float8 values = Unpack(LoadLanes<T>(x, pixel, channel, count));
#pragma unroll
        for (int i = 0; i < kLanes; ++i) {
          values.at[i] = (kept >> (p * kLanes + i) & 1U) != 0 ? values.at[i] * a.scale : 0.0F;
        }
        StoreLanes<T>(y, pixel, channel, count, values);
      }
    }
  }
}

}  // namespace

void Dropout(View x, View y, int64_t rows, int64_t pixels_per_row, int64_t channels, uint32_t layer,
             uint32_t threshold, float scale, const StepControl* control, cudaStream_t stream,
             bool clears_padding, bool counts_by_pixel) {
  // The elements are counted in memory order, so a row is one vector, in which neighbours share
  // random numbers.
  if (counts_by_pixel && x.stride == channels && y.stride == channels) {
    channels *= pixels_per_row;
    x.stride = channels;
    y.stride = channels;
    pixels_per_row = 1;
  }
  const DropoutArguments arguments = {rows,
                                      pixels_per_row,
                                      channels,
                                      layer,
                                      threshold,
                                      scale,
                                      counts_by_pixel ? channels : 1,
                                      counts_by_pixel ? 1 : pixels_per_row,
                                      control};
  const int64_t items = rows * ((pixels_per_row + kWords - 1) / kWords) * LaneGroups(channels);
  WithTypeOf(
      [&](auto* type) {
        using T = std::remove_pointer_t<decltype(type)>;
        Launch(DropoutKernel<T>, dim3(GridBlocks(items, kThreads, kBlocksPerMultiprocessor)),
               dim3(kThreads), 0, stream, arguments, Input(x), Output(y, channels, clears_padding));
      },
      y, x);
}

}  // namespace trainyard::engine::cuda
