// Packs parameters into the copies that products read, and unpacks gradients.
#include "worker/engine/backend/cuda/kernels/weights.h"

#include "worker/engine/backend/cuda/kernels/packing.h"
#include "worker/engine/backend/cuda/kernels/unpacking.h"

namespace trainyard::engine::cuda {
namespace {

constexpr int kThreads = 256;

// Finds the weight to which a chunk belongs: the last one that begins at or before it.
__device__ int64_t WeightOfChunk(const int32_t* first_chunk, int64_t count, int64_t chunk) {
  int64_t low = 0;
  int64_t high = count - 1;
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (first_chunk[middle] <= chunk) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// A block writes a chunk.
__global__ void PackKernel(const float* parameters, const PackedWeight* weights,
                           const int32_t* first_chunk, int64_t count) {
  const int64_t chunk = first_chunk[0] + blockIdx.x;
  const int64_t index = WeightOfChunk(first_chunk, count, chunk);
  const PackedWeight weight = weights[index];
  const int64_t begin = (chunk - first_chunk[index]) * kPackChunk;
  const int64_t rest = weight.count - begin;
  const int elements = static_cast<int>(rest < kPackChunk ? rest : kPackChunk);
  const float* source = parameters + weight.offset + begin;
  const PackedRun run(weight.inner, weight.stride, begin);
  const bool is_aligned = run.HoldsFours() && IsAligned(source) && IsAligned(weight.packed);
  ForVectors(static_cast<int>(threadIdx.x), kThreads, elements, is_aligned, [&](auto width, int i) {
    StorePacked(weight.packed, weight.type, run.At(i), Unpack(LoadVector<width()>(source + i)));
  });
}

__global__ void UnpackKernel(PackedGradient gradient) {
  UnpackChunk<kThreads>(gradient, blockIdx.x);
}

}  // namespace

void PackWeights(const float* parameters, const PackedWeight* weights, const int32_t* first_chunk,
                 int64_t count, int64_t chunks, cudaStream_t stream) {
  if (count == 0 || chunks == 0) {
    return;
  }
  Launch(PackKernel, dim3(static_cast<unsigned>(chunks)), dim3(kThreads), 0, stream, parameters,
         weights, first_chunk, count);
}

void UnpackGradient(const PackedGradient& gradient, cudaStream_t stream) {
  if (gradient.count > 0) {
    Launch(UnpackKernel, dim3(static_cast<unsigned>(gradient.chunks())), dim3(kThreads), 0, stream,
           gradient);
  }
}

}  // namespace trainyard::engine::cuda
