// Changes the layout between planes, [rows, channels, height, width], and pixels by channels, and
// converts a batch on its way in and out. A thread has eight channels of one pixel, and
// neighbouring threads have neighbouring pixels. So planes are read and written without gaps, and
// so are images with few channels.
#include <algorithm>
#include <type_traits>

#include "common/base/stored_row.h"
#include "worker/engine/backend/cuda/kernels/device.h"
#include "worker/engine/backend/cuda/kernels/elementwise.h"
#include "worker/engine/backend/cuda/kernels/input.h"
#include "worker/engine/backend/cuda/kernels/lanes.h"
#include "worker/engine/backend/cuda/kernels/reduce.h"

namespace trainyard::engine::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kBlocksPerMultiprocessor = 8;

// Element (row, channel, pixel) of the planes lies at row * row_stride + channel * plane + pixel.
struct Planes {
  void* data = nullptr;
  int64_t row_stride = 0;
};

struct Extent {
  int64_t rows = 0;
  int64_t plane = 0;
  int64_t channels = 0;
  int64_t groups = 0;
};

// Calls body(row, pixel of the row, channel, count) for all groups of all pixels. Rows come one
// after the other, and within a row all pixels of one group before those of the next.
template <class Body>
__device__ void ForEachGroup(const Extent& extent, const Body& body) {
  const uint32_t of_row = static_cast<uint32_t>(extent.plane * extent.groups);
  const uint32_t plane = static_cast<uint32_t>(extent.plane);
  for (int64_t row = blockIdx.y; row < extent.rows; row += gridDim.y) {
    for (uint32_t at = blockIdx.x * blockDim.x + threadIdx.x; at < of_row;
         at += gridDim.x * blockDim.x) {
      const uint32_t group = at / plane;
      const int64_t channel = int64_t{group} * kLanes;
      body(row, static_cast<int64_t>(at - group * plane), channel,
           LaneCount(extent.channels, channel));
    }
  }
}

template <class From, class To>
__global__ void __launch_bounds__(kThreads)
    PlanesToPixels(Extent extent, Planes planes, Operand images) {
  const From* data = static_cast<const From*>(planes.data);
  ForEachGroup(extent, [&](int64_t row, int64_t pixel, int64_t channel, int count) {
    const From* from = data + row * planes.row_stride + channel * extent.plane + pixel;
    const Float8 values = Unpack(LoadElements<kLanes>(from, count, extent.plane));
    StoreLanes<To>(images, row * extent.plane + pixel, channel, count, values);
  });
}

template <class From, class To>
__global__ void __launch_bounds__(kThreads)
    PixelsToPlanes(Extent extent, Operand images, Planes planes) {
  To* data = static_cast<To*>(planes.data);
  ForEachGroup(extent, [&](int64_t row, int64_t pixel, int64_t channel, int count) {
    const Float8 values =
        Unpack(LoadLanes<From>(images, row * extent.plane + pixel, channel, count));
    To* to = data + row * planes.row_stride + channel * extent.plane + pixel;
    StoreElements(to, count, Pack<To>(values), extent.plane);
  });
}

// Converts features that the host sent without gaps.
template <class T>
__global__ void __launch_bounds__(kThreads)
    ReadFeaturesKernel(const StepControl* control, Operand features, int64_t rows, int64_t count) {
  const float* inputs = static_cast<const float*>(control->inputs);
  const int64_t groups = LaneGroups(count);
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; at < rows * groups;
       at += step) {
    const int64_t row = at / groups;
    const int64_t first = (at - row * groups) * kLanes;
    const int there = LaneCount(count, first);
    const Float8 values = Unpack(LoadElements<kLanes>(inputs + row * count + first, there));
    StoreLanes<T>(features, row, first, there, values);
  }
}

// Computes the channels of pixel (x, y) of a row that is made of `image`.
__device__ Float8 ChangedAt(const StoredImages& stored, const uint8_t* image, const StoredRow& how,
                            int x, int y, int width, int height, int count) {
  const int from_x = (how.flip != 0 ? width - 1 - x : x) + how.dx;
  const int from_y = y + how.dy;
  const bool is_inside = from_x >= 0 && from_x < width && from_y >= 0 && from_y < height;
  const bool is_cut = x >= how.cut_x && x < how.cut_x + how.cut_width && y >= how.cut_y &&
                      y < how.cut_y + how.cut_height;
  const int64_t plane = static_cast<int64_t>(height) * width;
  const uint8_t* from = image + static_cast<int64_t>(from_y) * width + from_x;
  Float8 values = {};
#pragma unroll
  for (int i = 0; i < kStoredChannelsMax; ++i) {
    if (i >= count || is_cut) continue;
    const auto byte = static_cast<float>(is_inside ? from[i * plane] : uint8_t{0});
    // It is divided twice, as the host does it, so that the bits are the same.
    values.at[i] = (byte / 255.0F - stored.mean[i]) / stored.stddev[i];
  }
  return values;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    ReadImagesKernel(const StepControl* control, Operand images, Extent extent, int width,
                     int height) {
  const StoredImages stored = control->stored;
  const float* floats = static_cast<const float*>(control->inputs);
  const StoredRow* rows = static_cast<const StoredRow*>(control->inputs);
  const int64_t elements = extent.channels * extent.plane;
  ForEachGroup(extent, [&](int64_t row, int64_t pixel, int64_t channel, int count) {
    Float8 values;
    if (stored.pixels == nullptr) {
      const float* from = floats + row * elements + channel * extent.plane + pixel;
      values = Unpack(LoadElements<kLanes>(from, count, extent.plane));
    } else {
      const StoredRow how = rows[row];
      const int64_t image = stored.is_by_row != 0 ? row : how.image;
      const int y = static_cast<int>(pixel) / width;
      const int x = static_cast<int>(pixel) - y * width;
      values = ChangedAt(stored, stored.pixels + image * elements, how, x, y, width, height, count);
    }
    StoreLanes<T>(images, row * extent.plane + pixel, channel, count, values);
  });
}

Extent ExtentOf(const ImageShape& shape) {
  return {shape.rows, shape.height * shape.width, shape.channels, LaneGroups(shape.channels)};
}

// The grid has the blocks of a row, and as many rows as the device has room for.
dim3 GridOf(const Extent& extent) {
  constexpr int64_t kRowsMax = 65535;
  const unsigned of_row =
      GridBlocks(extent.plane * extent.groups, kThreads, kBlocksPerMultiprocessor);
  const int64_t room = Multiprocessors() * kBlocksPerMultiprocessor / of_row + 1;
  return dim3(of_row,
              static_cast<unsigned>(std::clamp<int64_t>(extent.rows, 1, std::min(room, kRowsMax))));
}

}  // namespace

void FlattenImages(View images, View features, const ImageShape& shape, cudaStream_t stream) {
  if (shape.height * shape.width == 1) {
    Copy(images, features, shape.rows, shape.channels, false, stream);
    return;
  }
  WithType(images.type, [&](auto* from) {
    WithType(features.type, [&](auto* to) {
      using From = std::remove_pointer_t<decltype(from)>;
      using To = std::remove_pointer_t<decltype(to)>;
      const Extent extent = ExtentOf(shape);
      Launch(PixelsToPlanes<From, To>, GridOf(extent), dim3(kThreads), 0, stream, extent,
             Input(images), Planes{features.data, features.stride});
    });
  });
}

void UnflattenImages(View features, View images, const ImageShape& shape, bool clears_padding,
                     cudaStream_t stream) {
  if (shape.height * shape.width == 1) {
    Copy(features, images, shape.rows, shape.channels, clears_padding, stream);
    return;
  }
  WithType(features.type, [&](auto* from) {
    WithType(images.type, [&](auto* to) {
      using From = std::remove_pointer_t<decltype(from)>;
      using To = std::remove_pointer_t<decltype(to)>;
      const Extent extent = ExtentOf(shape);
      Launch(PlanesToPixels<From, To>, GridOf(extent), dim3(kThreads), 0, stream, extent,
             Planes{features.data, features.stride},
             Output(images, shape.channels, clears_padding));
    });
  });
}

void ReadImages(const StepControl* control, View images, const ImageShape& shape,
                cudaStream_t stream) {
  WithType(images.type, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const Extent extent = ExtentOf(shape);
    Launch(ReadImagesKernel<T>, GridOf(extent), dim3(kThreads), 0, stream, control,
           Output(images, shape.channels, true), extent, static_cast<int>(shape.width),
           static_cast<int>(shape.height));
  });
}

void WriteImages(View images, float* values, const ImageShape& shape, cudaStream_t stream) {
  WithType(images.type, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const Extent extent = ExtentOf(shape);
    Launch(PixelsToPlanes<T, float>, GridOf(extent), dim3(kThreads), 0, stream, extent,
           Input(images), Planes{values, extent.channels * extent.plane});
  });
}

void ReadFeatures(const StepControl* control, View features, int64_t rows, int64_t count,
                  cudaStream_t stream) {
  WithType(features.type, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    Launch(ReadFeaturesKernel<T>,
           dim3(GridBlocks(rows * LaneGroups(count), kThreads, kBlocksPerMultiprocessor)),
           dim3(kThreads), 0, stream, control, Output(features, count, false), rows, count);
  });
}

}  // namespace trainyard::engine::cuda
