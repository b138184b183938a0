// Computes pooling. A thread has eight channels of one pixel of the output. Gradients are gathered
// from the windows that cover a pixel, in order, so that no two threads add to one element.
#include "worker/engine/backend/cuda/kernels/pool.h"

#include <algorithm>
#include <type_traits>

#include "worker/engine/backend/cuda/kernels/device.h"
#include "worker/engine/backend/cuda/kernels/lanes.h"
#include "worker/engine/backend/cuda/kernels/reduce.h"

namespace trainyard::engine::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kBlocksPerMultiprocessor = 8;

struct Axis {
  int height = 1;
  int width = 1;
};

struct PoolArguments {
  int kernel = 1;
  int stride = 1;
  int padding = 0;
  bool count_padding = true;
  bool relu = false;
  Axis in;
  Axis out;
  int64_t channels = 0;
  // The output: [rows * height * width * groups] items, and the divisors that split an index into
  // them.
  int64_t items = 0;
  Divider groups;
  Divider width;
  Divider height;
  uint8_t* index = nullptr;
  int64_t index_stride = 0;
  bool is_index_aligned = false;
};

// One item of the output.
struct Item {
  int64_t row = 0;
  int y = 0;
  int x = 0;
  int64_t channel = 0;
  int count = 0;
};

__device__ Item ItemAt(const PoolArguments& a, int64_t at) {
  Item item;
  uint32_t rest = static_cast<uint32_t>(at);
  item.channel = int64_t{a.groups.Split(rest)} * kLanes;
  item.x = static_cast<int>(a.width.Split(rest));
  item.y = static_cast<int>(a.height.Split(rest));
  item.row = rest;
  item.count = LaneCount(a.channels, item.channel);
  return item;
}

__device__ int64_t PixelOf(const Axis& size, int64_t row, int y, int x) {
  return (row * size.height + y) * size.width + x;
}

__device__ int Least(int a, int b) {
  return a < b ? a : b;
}
__device__ int Most(int a, int b) {
  return a > b ? a : b;
}

// The part of a window that is not padding, and the number of its elements that count in an
// average.
struct Span {
  int begin = 0;
  int end = 0;
  int counted = 0;
};
__device__ Span WindowAt(const PoolArguments& a, int at, int size) {
  const int begin = at * a.stride - a.padding;
  const int end = begin + a.kernel;
  Span span = {Most(begin, 0), Least(end, size), 0};
  // Elements beyond the padding never count.
  span.counted = a.count_padding ? Least(end, size + a.padding) - begin : span.end - span.begin;
  return span;
}
// The windows [begin, end) that cover a pixel.
__device__ Span WindowsOver(const PoolArguments& a, int at, int windows) {
  const int reach = at + a.padding - a.kernel + 1;
  const int first = reach <= 0 ? 0 : (reach + a.stride - 1) / a.stride;
  return {first, Least((at + a.padding) / a.stride + 1, windows), 0};
}

using Bytes8 = Vector<uint8_t, kLanes>;

__device__ Bytes8 LoadIndex(const PoolArguments& a, int64_t pixel, const Item& item) {
  const uint8_t* from = a.index + pixel * a.index_stride + item.channel;
  return a.is_index_aligned && item.count == kLanes
             ? LoadVector<kLanes>(from)
             : LoadElements<kLanes>(from, item.count, 1, kNoMaximum);
}

__device__ void StoreIndex(const PoolArguments& a, int64_t pixel, const Item& item,
                           const Bytes8& bytes) {
  uint8_t* to = a.index + pixel * a.index_stride + item.channel;
  if (a.is_index_aligned && item.count == kLanes) {
    StoreVector(to, bytes);
  } else {
    StoreElements(to, item.count, bytes);
  }
}

template <class T>
__device__ void MaxOf(const PoolArguments& a, const Operand& x, const Operand& y, int64_t at) {
  const Item item = ItemAt(a, at);
  const Span rows = WindowAt(a, item.y, a.in.height);
  const Span columns = WindowAt(a, item.x, a.in.width);
  const int first_row = item.y * a.stride - a.padding;
  const int first_column = item.x * a.stride - a.padding;
  Float8 largest = {};
  Bytes8 index;
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    index.at[i] = kNoMaximum;
  }
  for (int h = rows.begin; h < rows.end; ++h) {
    for (int w = columns.begin; w < columns.end; ++w) {
      const Float8 values =
          Unpack(LoadLanes<T>(x, PixelOf(a.in, item.row, h, w), item.channel, item.count));
      const int position = (h - first_row) * a.kernel + (w - first_column);
#pragma unroll
      for (int i = 0; i < kLanes; ++i) {
        const float value = values.at[i];
        if (index.at[i] == kNoMaximum || value > largest.at[i] || value != value) {
          index.at[i] = static_cast<uint8_t>(position);
          largest.at[i] = value;
        }
      }
    }
  }
  const int64_t pixel = PixelOf(a.out, item.row, item.y, item.x);
  StoreLanes<T>(y, pixel, item.channel, item.count, largest);
  if (a.index != nullptr) {
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      index.at[i] = a.relu && !(largest.at[i] > 0) ? kNoMaximum : index.at[i];
    }
    StoreIndex(a, pixel, item, index);
  }
}

template <class T>
__device__ void MaxGradientOf(const PoolArguments& a, const Operand& dy, const Operand& dx,
                              int64_t at) {
  const Item item = ItemAt(a, at);
  const Span rows = WindowsOver(a, item.y, a.out.height);
  const Span columns = WindowsOver(a, item.x, a.out.width);
  Float8 sum = {};
  for (int h = rows.begin; h < rows.end; ++h) {
    for (int w = columns.begin; w < columns.end; ++w) {
      const int64_t pixel = PixelOf(a.out, item.row, h, w);
      const int position =
          (item.y + a.padding - h * a.stride) * a.kernel + (item.x + a.padding - w * a.stride);
      const Bytes8 index = LoadIndex(a, pixel, item);
      const Float8 values = Unpack(LoadLanes<T>(dy, pixel, item.channel, item.count));
#pragma unroll
      for (int i = 0; i < kLanes; ++i) {
        sum.at[i] += index.at[i] == position ? values.at[i] : 0.0F;
      }
    }
  }
  StoreLanes<T>(dx, PixelOf(a.in, item.row, item.y, item.x), item.channel, item.count, sum);
}

template <class T>
__device__ void AverageOf(const PoolArguments& a, const Operand& x, const Operand& y, int64_t at) {
  const Item item = ItemAt(a, at);
  const Span rows = WindowAt(a, item.y, a.in.height);
  const Span columns = WindowAt(a, item.x, a.in.width);
  const float area = static_cast<float>(rows.counted * columns.counted);
  Float8 sum = {};
  for (int h = rows.begin; h < rows.end; ++h) {
    for (int w = columns.begin; w < columns.end; ++w) {
      const Float8 values =
          Unpack(LoadLanes<T>(x, PixelOf(a.in, item.row, h, w), item.channel, item.count));
#pragma unroll
      for (int i = 0; i < kLanes; ++i) {
        sum.at[i] += values.at[i];
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    // A window that holds only padding has the average 0, whatever it counts.
    sum.at[i] = rows.begin < rows.end && columns.begin < columns.end ? sum.at[i] / area : 0.0F;
  }
  StoreLanes<T>(y, PixelOf(a.out, item.row, item.y, item.x), item.channel, item.count, sum);
}

template <class T>
__device__ void AverageGradientOf(const PoolArguments& a, const Operand& dy, const Operand& dx,
                                  int64_t at) {
  const Item item = ItemAt(a, at);
  const Span rows = WindowsOver(a, item.y, a.out.height);
  const Span columns = WindowsOver(a, item.x, a.out.width);
  Float8 sum = {};
  for (int h = rows.begin; h < rows.end; ++h) {
    for (int w = columns.begin; w < columns.end; ++w) {
      const float area = static_cast<float>(WindowAt(a, h, a.in.height).counted *
                                            WindowAt(a, w, a.in.width).counted);
      const Float8 values =
          Unpack(LoadLanes<T>(dy, PixelOf(a.out, item.row, h, w), item.channel, item.count));
#pragma unroll
      for (int i = 0; i < kLanes; ++i) {
        sum.at[i] += values.at[i] / area;
      }
    }
  }
  StoreLanes<T>(dx, PixelOf(a.in, item.row, item.y, item.x), item.channel, item.count, sum);
}

enum class PoolOp { kMax, kMaxGradient, kAverage, kAverageGradient };

template <class T, PoolOp kOp>
__global__ void __launch_bounds__(kThreads) PoolKernel(PoolArguments a, Operand from, Operand to) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; at < a.items;
       at += step) {
    if constexpr (kOp == PoolOp::kMax) {
      MaxOf<T>(a, from, to, at);
    } else if constexpr (kOp == PoolOp::kMaxGradient) {
      MaxGradientOf<T>(a, from, to, at);
    } else if constexpr (kOp == PoolOp::kAverage) {
      AverageOf<T>(a, from, to, at);
    } else {
      AverageGradientOf<T>(a, from, to, at);
    }
  }
}

Axis AxisOf(const ImageShape& shape) {
  return {static_cast<int>(shape.height), static_cast<int>(shape.width)};
}

// `written` is the shape that the op writes: in or out.
PoolArguments ArgumentsOf(const PoolWindow& window, const ImageShape& in, const ImageShape& out,
                          const ImageShape& written) {
  PoolArguments a;
  a.kernel = static_cast<int>(window.kernel);
  a.stride = static_cast<int>(window.stride);
  a.padding = static_cast<int>(window.padding);
  a.count_padding = window.count_padding;
  a.in = AxisOf(in);
  a.out = AxisOf(out);
  a.channels = in.channels;
  a.items = written.pixels() * LaneGroups(in.channels);
  a.groups = Divider(LaneGroups(in.channels));
  a.width = Divider(written.width);
  a.height = Divider(written.height);
  return a;
}

void SetIndex(uint8_t* index, int64_t stride, PoolArguments& a) {
  a.index = index;
  a.index_stride = stride;
  a.is_index_aligned = IsAligned(index, kLanes) && stride % kLanes == 0;
}

// The items that one launch counts.
constexpr int64_t kItemsMax = int64_t{1} << 30;

View AdvanceRows(View view, int64_t rows, const ImageShape& shape) {
  view.data = static_cast<unsigned char*>(view.data) +
              rows * shape.height * shape.width * view.stride * SizeOf(view.type);
  return view;
}

// Launches as many rows at a time as a launch can count.
template <PoolOp kOp>
void Pool(PoolArguments a, View from, View to, const ImageShape& of_from, const ImageShape& of_to,
          bool clears_padding, cudaStream_t stream) {
  const int64_t per_row = std::max<int64_t>(a.items / std::max<int64_t>(of_to.rows, 1), 1);
  const int64_t rows_max = std::max<int64_t>(kItemsMax / per_row, 1);
  const ImageShape& pooled = kOp == PoolOp::kMax ? of_to : of_from;
  uint8_t* index = a.index;
  for (int64_t begin = 0; begin < of_to.rows; begin += rows_max) {
    a.items = std::min(rows_max, of_to.rows - begin) * per_row;
    if (index != nullptr) {
      a.index = index + begin * pooled.height * pooled.width * a.index_stride;
    }
    WithTypeOf(
        [&](auto* type) {
          using T = std::remove_pointer_t<decltype(type)>;
          Launch(PoolKernel<T, kOp>, dim3(GridBlocks(a.items, kThreads, kBlocksPerMultiprocessor)),
                 dim3(kThreads), 0, stream, a, Input(AdvanceRows(from, begin, of_from)),
                 Output(AdvanceRows(to, begin, of_to), a.channels, clears_padding));
        },
        to, from);
  }
}

}  // namespace

void MaxPoolForward(const PoolWindow& window, View x, View y, uint8_t* index, int64_t index_stride,
                    bool relu, const ImageShape& in, const ImageShape& out, bool clears_padding,
                    cudaStream_t stream) {
  PoolArguments a = ArgumentsOf(window, in, out, out);
  a.relu = relu;
  SetIndex(index, index_stride, a);
  Pool<PoolOp::kMax>(a, x, y, in, out, clears_padding, stream);
}

void MaxPoolGradient(const PoolWindow& window, View dy, const uint8_t* index, int64_t index_stride,
                     View dx, const ImageShape& in, const ImageShape& out, bool clears_padding,
                     cudaStream_t stream) {
  PoolArguments a = ArgumentsOf(window, in, out, in);
  SetIndex(const_cast<uint8_t*>(index), index_stride, a);
  Pool<PoolOp::kMaxGradient>(a, dy, dx, out, in, clears_padding, stream);
}

void AvgPoolForward(const PoolWindow& window, View x, View y, const ImageShape& in,
                    const ImageShape& out, bool clears_padding, cudaStream_t stream) {
  Pool<PoolOp::kAverage>(ArgumentsOf(window, in, out, out), x, y, in, out, clears_padding, stream);
}

void AvgPoolGradient(const PoolWindow& window, View dy, View dx, const ImageShape& in,
                     const ImageShape& out, bool clears_padding, cudaStream_t stream) {
  Pool<PoolOp::kAverageGradient>(ArgumentsOf(window, in, out, in), dy, dx, out, in, clears_padding,
                                 stream);
}

}  // namespace trainyard::engine::cuda
