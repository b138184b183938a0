// Computes group_norm. A block has a group of one row. The x index of a thread selects channels,
// and its y index selects pixels, so that neighbouring threads load neighbouring elements.
#include "worker/engine/backend/cuda/kernels/lanes.h"
#include "worker/engine/backend/cuda/kernels/norm.h"
#include "worker/engine/backend/cuda/kernels/reduce.h"

namespace trainyard::engine::cuda {
namespace {

constexpr int kThreads = 256;

// The group of a block, and the part of it that belongs to a thread.
struct Group {
  int64_t groups;
  int64_t channels;  // of all groups
  int64_t plane;     // pixels of a row
  int64_t group_channels;
  // The number of threads along the channels: a power of two, and no more than kThreads.
  int columns;

  // These give a block's row and first channel, and a thread's place.
  __device__ int64_t row() const { return static_cast<int64_t>(blockIdx.x) / groups; }
  __device__ int64_t first_channel() const {
    return static_cast<int64_t>(blockIdx.x) % groups * group_channels;
  }
  __device__ int column() const { return static_cast<int>(threadIdx.x) % columns; }
  __device__ int line() const { return static_cast<int>(threadIdx.x) / columns; }
  __device__ int lines() const { return kThreads / columns; }
  __device__ float elements() const { return static_cast<float>(plane * group_channels); }

  // Calls body(pixel, channel) for the pixels of one channel that belong to this thread.
  template <class Body>
  __device__ void ForPixels(int64_t channel, const Body& body) const {
    for (int64_t p = line(); p < plane; p += lines()) {
      body(row() * plane + p, channel);
    }
  }
  // Does so for all channels of the group that belong to this thread.
  template <class Body>
  __device__ void ForEach(const Body& body) const {
    for (int64_t c = column(); c < group_channels; c += columns) {
      ForPixels(first_channel() + c, body);
    }
  }
  // The last group of a row clears the padding after the channels.
  __device__ void ClearPadding(const Operand& to) const {
    if (first_channel() + group_channels != channels) {
      return;
    }
    for (int64_t c = channels + column(); c < to.written; c += columns) {
      ForPixels(c, [&](int64_t pixel, int64_t channel) { StoreElement(to, pixel, channel, 0); });
    }
  }
};

Group GroupOf(const GroupNormShape& shape) {
  const ImageShape& image = shape.image;
  Group group = {.groups = shape.groups,
                 .channels = image.channels,
                 .plane = image.height * image.width,
                 .group_channels = image.channels / shape.groups,
                 .columns = 1};
  while (group.columns < kThreads && group.columns < group.group_channels) {
    group.columns *= 2;
  }
  return group;
}

__global__ void __launch_bounds__(kThreads)
    ForwardKernel(Group group, Operand x, const float* weight, const float* bias, float eps,
                  Operand y, float* mean_out, float* inverse_out) {
  __shared__ float shared[kWarp];
  float sum = 0;
  group.ForEach([&](int64_t pixel, int64_t channel) { sum += LoadElement(x, pixel, channel); });
  const float mean = BlockSum(sum, shared) / group.elements();
  float squares = 0;
  group.ForEach([&](int64_t pixel, int64_t channel) {
    const float apart = LoadElement(x, pixel, channel) - mean;
    squares += apart * apart;
  });
  const float variance = BlockSum(squares, shared) / group.elements();
  const float inverse = 1 / sqrtf(variance + eps);
  group.ForEach([&](int64_t pixel, int64_t channel) {
    StoreElement(
        y, pixel, channel,
        (LoadElement(x, pixel, channel) - mean) * inverse * weight[channel] + bias[channel]);
  });
  group.ClearPadding(y);
  if (threadIdx.x == 0) {
    mean_out[blockIdx.x] = mean;
    inverse_out[blockIdx.x] = inverse;
  }
}

// Computes the sums of one row by channel: of dy, then of dy h with h = (x - mean) * inverse.
// Threads of one column add up what they have in order of their lines.
__global__ void __launch_bounds__(kThreads)
    GradientKernel(Group group, Operand dy, Operand x, const float* weight, const float* mean_in,
                   const float* inverse_in, Operand dx, float* sums) {
  __shared__ float of_dy[kThreads];
  __shared__ float of_dyh[kThreads];
  __shared__ float shared[kWarp];
  const float mean = mean_in[blockIdx.x];
  const float inverse = inverse_in[blockIdx.x];
  float* row_sums = sums + group.row() * 2 * group.channels;
  float d = 0;
  float dh = 0;
  for (int64_t begin = 0; begin < group.group_channels; begin += group.columns) {
    const int64_t channel = group.first_channel() + begin + group.column();
    const bool is_there = begin + group.column() < group.group_channels;
    float sum = 0;
    float sum_h = 0;
    if (is_there) {
      group.ForPixels(channel, [&](int64_t pixel, int64_t c) {
        const float g = LoadElement(dy, pixel, c);
        sum += g;
        sum_h += g * ((LoadElement(x, pixel, c) - mean) * inverse);
      });
    }
    of_dy[threadIdx.x] = sum;
    of_dyh[threadIdx.x] = sum_h;
    __syncthreads();
    if (group.line() == 0 && is_there) {
      for (int line = 1; line < group.lines(); ++line) {
        sum += of_dy[line * group.columns + group.column()];
        sum_h += of_dyh[line * group.columns + group.column()];
      }
      row_sums[channel] = sum;
      row_sums[group.channels + channel] = sum_h;
      d += sum * weight[channel];
      dh += sum_h * weight[channel];
    }
    __syncthreads();
  }
  const float mean_d = BlockSum(d, shared) / group.elements();
  const float mean_dh = BlockSum(dh, shared) / group.elements();
  if (!dx) {
    return;
  }
  group.ForEach([&](int64_t pixel, int64_t channel) {
    const float h = (LoadElement(x, pixel, channel) - mean) * inverse;
    StoreElement(
        dx, pixel, channel,
        inverse * (LoadElement(dy, pixel, channel) * weight[channel] - mean_d - h * mean_dh));
  });
  group.ClearPadding(dx);
}

// Computes dbias and dweight, which are the sums over rows, in their order.
__global__ void ParametersKernel(const float* sums, int64_t rows, int64_t channels, bool adds,
                                 float* dweight, float* dbias) {
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (channel >= channels) {
    return;
  }
  float bias = adds ? dbias[channel] : 0;
  float weight = adds ? dweight[channel] : 0;
  for (int64_t row = 0; row < rows; ++row) {
    bias += sums[row * 2 * channels + channel];
    weight += sums[(row * 2 + 1) * channels + channel];
  }
  dbias[channel] = bias;
  dweight[channel] = weight;
}

}  // namespace

void GroupNormForward(const GroupNormShape& shape, View x, const float* weight, const float* bias,
                      float eps, View y, float* mean, float* inverse, bool clears_padding,
                      cudaStream_t stream) {
  Launch(ForwardKernel, dim3(static_cast<unsigned>(shape.image.rows * shape.groups)),
         dim3(kThreads), 0, stream, GroupOf(shape), Input(x), weight, bias, eps,
         Output(y, shape.image.channels, clears_padding), mean, inverse);
}

int64_t GroupNormWorkspace(const GroupNormShape& shape) {
  return shape.image.rows * 2 * shape.image.channels * int64_t{sizeof(float)};
}

void GroupNormBackward(const GroupNormShape& shape, View dy, View x, const float* weight,
                       const float* mean, const float* inverse, View dx, float* dweight,
                       float* dbias, bool adds, bool clears_padding, void* workspace,
                       cudaStream_t stream) {
  const ImageShape& image = shape.image;
  float* sums = static_cast<float*>(workspace);
  Launch(GradientKernel, dim3(static_cast<unsigned>(image.rows * shape.groups)), dim3(kThreads), 0,
         stream, GroupOf(shape), Input(dy), Input(x), weight, mean, inverse,
         Output(dx, image.channels, clears_padding), sums);
  Launch(ParametersKernel, dim3(static_cast<unsigned>((image.channels + kThreads - 1) / kThreads)),
         dim3(kThreads), 0, stream, static_cast<const float*>(sums), image.rows, image.channels,
         adds, dweight, dbias);
}

}  // namespace trainyard::engine::cuda
