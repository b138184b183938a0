// Computes embeddings and their gradients. The gradient first gathers the positions of each token,
// in ascending order. So each row of the table is summed by one block, in a fixed order and without
// atomics on floats. Buckets are filled in any order and sorted afterwards.
#include "worker/engine/backend/cuda/kernels/lanes.h"
#include "worker/engine/backend/cuda/kernels/reduce.h"
#include "worker/engine/backend/cuda/kernels/sequence.h"

namespace trainyard::engine::cuda {
namespace {

constexpr int kThreads = 256;
// The number of threads that sum one row of the table: 128 groups of lanes are 1,024 channels.
constexpr int kRowThreads = 128;
// A bucket of up to this size is sorted by counting, for each position, those before it. The
// positions of a larger one are found again by going over all tokens. So no token, however
// frequent, takes quadratic time.
constexpr int kSortedMax = 1024;
constexpr int kScanThreads = 1024;

unsigned Blocks(int64_t items, int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

__device__ int64_t GlobalThread() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__global__ void ReadTokensKernel(const StepControl* control, int32_t* tokens, int64_t count) {
  const int64_t i = GlobalThread();
  if (i < count) {
    tokens[i] = static_cast<int32_t>(static_cast<const float*>(control->inputs)[i]);
  }
}

// Returns the f32 table as an operand.
Operand Table(const float* weight, int64_t channels) {
  return Input(View{const_cast<float*>(weight), channels, Type::kF32});
}

__device__ void AddTo(Float8& sum, const Float8& values) {
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    sum.at[i] += values.at[i];
  }
}

// A thread has a group of lanes, here and in the kernels below.
template <class T>
__global__ void ForwardKernel(const int32_t* tokens, Operand weight, Operand y, int64_t count,
                              int64_t channels, int64_t groups) {
  const int64_t index = GlobalThread();
  const int64_t n = index / groups;
  if (n >= count) {
    return;
  }
  const int64_t channel = (index - n * groups) * kLanes;
  const int lanes = LaneCount(channels, channel);
  StoreLanes<T>(y, n, channel, lanes, Unpack(LoadLanes<float>(weight, tokens[n], channel, lanes)));
}

template <class T>
__global__ void PositionForwardKernel(Operand x, Operand weight, Operand y, int64_t count,
                                      int64_t positions, int64_t channels, int64_t groups) {
  const int64_t index = GlobalThread();
  const int64_t n = index / groups;
  if (n >= count) {
    return;
  }
  const int64_t channel = (index - n * groups) * kLanes;
  const int lanes = LaneCount(channels, channel);
  Float8 sum = Unpack(LoadLanes<T>(x, n, channel, lanes));
  AddTo(sum, Unpack(LoadLanes<float>(weight, n % positions, channel, lanes)));
  StoreLanes<T>(y, n, channel, lanes, sum);
}

// Writes a part of dweight[row], or adds to it.
__device__ void StoreRow(const Operand& dweight, bool adds, int64_t row, int64_t channel, int lanes,
                         Float8 sum) {
  if (adds) {
    AddTo(sum, Unpack(LoadLanes<float>(dweight, row, channel, lanes)));
  }
  StoreLanes<float>(dweight, row, channel, lanes, sum);
}

template <class T>
__global__ void PositionGradientKernel(Operand dy, Operand dweight, bool adds, int64_t rows,
                                       int64_t positions, int64_t table_positions, int64_t channels,
                                       int64_t groups) {
  const int64_t index = GlobalThread();
  const int64_t position = index / groups;
  if (position >= table_positions || (adds && position >= positions)) {
    return;
  }
  const int64_t channel = (index - position * groups) * kLanes;
  const int lanes = LaneCount(channels, channel);
  Float8 sum = {};
  if (position < positions) {
#pragma unroll 4
    for (int64_t row = 0; row < rows; ++row) {
      AddTo(sum, Unpack(LoadLanes<T>(dy, row * positions + position, channel, lanes)));
    }
  }
  StoreRow(dweight, adds, position, channel, lanes, sum);
}

// The workspace of the gradient.
struct Buckets {
  int32_t* begin;      // [vocabulary + 1]
  int32_t* filled;     // [vocabulary]: the numbers of positions first, then how many are in place
  int32_t* positions;  // [count], by bucket
};

__global__ void ClearKernel(int32_t* values, int64_t count) {
  const int64_t i = GlobalThread();
  if (i < count) {
    values[i] = 0;
  }
}

__global__ void CountKernel(const int32_t* tokens, int64_t count, Buckets buckets) {
  const int64_t i = GlobalThread();
  if (i < count) {
    atomicAdd(buckets.filled + tokens[i], 1);
  }
}

// Computes where each bucket begins, and clears the counts. There is one block, in which each
// thread has a run of the vocabulary.
__global__ void __launch_bounds__(kScanThreads) BeginKernel(int64_t vocabulary, Buckets buckets) {
  __shared__ int32_t before[kScanThreads];
  const int64_t run = (vocabulary + kScanThreads - 1) / kScanThreads;
  const int64_t first = static_cast<int64_t>(threadIdx.x) * run;
  const int64_t end = first + run < vocabulary ? first + run : vocabulary;
  int32_t own = 0;
  for (int64_t token = first; token < end; ++token) {
    own += buckets.filled[token];
  }
  before[threadIdx.x] = own;
  __syncthreads();
  for (unsigned distance = 1; distance < kScanThreads; distance *= 2) {
    const int32_t other = threadIdx.x >= distance ? before[threadIdx.x - distance] : 0;
    __syncthreads();
    before[threadIdx.x] += other;
    __syncthreads();
  }
  int32_t begin = before[threadIdx.x] - own;
  for (int64_t token = first; token < end; ++token) {
    buckets.begin[token] = begin;
    begin += buckets.filled[token];
    buckets.filled[token] = 0;
  }
  if (threadIdx.x == kScanThreads - 1) {
    buckets.begin[vocabulary] = before[threadIdx.x];
  }
}

__global__ void FillKernel(const int32_t* tokens, int64_t count, Buckets buckets) {
  const int64_t i = GlobalThread();
  if (i < count) {
    const int32_t token = tokens[i];
    const int32_t place = buckets.begin[token] + atomicAdd(buckets.filled + token, 1);
    buckets.positions[place] = static_cast<int32_t>(i);
  }
}

// Sorts the positions of a small bucket into `sorted`.
__device__ void SortPositions(const int32_t* positions, int size, int32_t* unsorted,
                              int32_t* sorted) {
  for (int i = static_cast<int>(threadIdx.x); i < size; i += kRowThreads) {
    unsorted[i] = positions[i];
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < size; i += kRowThreads) {
    const int32_t own = unsorted[i];
    int rank = 0;
    for (int k = 0; k < size; ++k) {
      rank += unsorted[k] < own ? 1 : 0;
    }
    sorted[rank] = own;
  }
  __syncthreads();
}

// Finds the next positions of `token` in order, from `next` on, as many as certainly fit into
// `found`. Returns their number, and advances `next`. The result is the same for all threads.
__device__ int FindPositions(const int32_t* tokens, int64_t count, int32_t token, int64_t* next,
                             int32_t* found) {
  __shared__ int of_warp[kRowThreads / kWarp];
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned warp = threadIdx.x / kWarp;
  int size = 0;
  __syncthreads();
  while (*next < count && size + kRowThreads <= kSortedMax) {
    const int64_t i = *next + threadIdx.x;
    const bool is_here = i < count && tokens[i] == token;
    const unsigned here = __ballot_sync(kFullWarp, is_here);
    if (lane == 0) {
      of_warp[warp] = __popc(here);
    }
    __syncthreads();
    int place = size + __popc(here & ((1U << lane) - 1));
    for (unsigned w = 0; w < kRowThreads / kWarp; ++w) {
      place += w < warp ? of_warp[w] : 0;
      size += of_warp[w];
    }
    if (is_here) {
      found[place] = static_cast<int32_t>(i);
    }
    *next += kRowThreads;
    __syncthreads();
  }
  return size;
}

// A block sums up one row of the table.
template <class T>
__global__ void GradientKernel(const int32_t* tokens, Operand dy, Operand dweight, bool adds,
                               int64_t count, int64_t channels, Buckets buckets) {
  __shared__ int32_t unsorted[kSortedMax];
  __shared__ int32_t sorted[kSortedMax];
  const auto token = static_cast<int32_t>(blockIdx.x);
  const int32_t begin = buckets.begin[token];
  const int32_t size = buckets.begin[token + 1] - begin;
  if (size == 0 && adds) {
    return;
  }
  if (size <= kSortedMax) {
    SortPositions(buckets.positions + begin, size, unsorted, sorted);
  }
  for (int64_t first = 0; first < channels; first += int64_t{kLanes} * kRowThreads) {
    const int64_t channel = first + int64_t{kLanes} * threadIdx.x;
    const int lanes = LaneCount(channels, channel);
    Float8 sum = {};
    int64_t next = 0;
    int32_t done = 0;
    do {
      const int32_t found =
          size <= kSortedMax ? size : FindPositions(tokens, count, token, &next, sorted);
      if (channel < channels) {
#pragma unroll 4
        for (int32_t i = 0; i < found; ++i) {
          AddTo(sum, Unpack(LoadLanes<T>(dy, sorted[i], channel, lanes)));
        }
      }
      done += found;
    } while (done < size);
    if (channel < channels) {
      StoreRow(dweight, adds, token, channel, lanes, sum);
    }
  }
}

int64_t Rounded(int64_t elements) {
  return (elements + 3) / 4 * 4;
}

}  // namespace

void ReadTokens(const StepControl* control, int32_t* tokens, int64_t count, cudaStream_t stream) {
  if (count > 0) {
    Launch(ReadTokensKernel, dim3(Blocks(count, kThreads)), dim3(kThreads), 0, stream, control,
           tokens, count);
  }
}

void EmbeddingForward(const int32_t* tokens, const float* weight, View y, int64_t count,
                      int64_t channels, cudaStream_t stream) {
  if (count == 0) {
    return;
  }
  const int64_t groups = LaneGroups(channels);
  WithType(y.type, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    Launch(ForwardKernel<T>, dim3(Blocks(count * groups, kThreads)), dim3(kThreads), 0, stream,
           tokens, Table(weight, channels), Output(y, channels, true), count, channels, groups);
  });
}

int64_t EmbeddingGradientWorkspace(int64_t count, int64_t vocabulary) {
  return (Rounded(vocabulary + 1) + Rounded(vocabulary) + Rounded(count)) *
         int64_t{sizeof(int32_t)};
}

void EmbeddingGradient(const int32_t* tokens, View dy, float* dweight, bool adds, int64_t count,
                       int64_t vocabulary, int64_t channels, void* workspace, cudaStream_t stream) {
  auto* begin = static_cast<int32_t*>(workspace);
  int32_t* filled = begin + Rounded(vocabulary + 1);
  const Buckets buckets = {begin, filled, filled + Rounded(vocabulary)};
  Launch(ClearKernel, dim3(Blocks(vocabulary, kThreads)), dim3(kThreads), 0, stream, filled,
         vocabulary);
  if (count > 0) {
    Launch(CountKernel, dim3(Blocks(count, kThreads)), dim3(kThreads), 0, stream, tokens, count,
           buckets);
  }
  Launch(BeginKernel, dim3(1), dim3(kScanThreads), 0, stream, vocabulary, buckets);
  if (count > 0) {
    Launch(FillKernel, dim3(Blocks(count, kThreads)), dim3(kThreads), 0, stream, tokens, count,
           buckets);
  }
  const View table = {dweight, channels, Type::kF32};
  WithType(dy.type, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    Launch(GradientKernel<T>, dim3(static_cast<unsigned>(vocabulary)), dim3(kRowThreads), 0, stream,
           tokens, Input(dy), Output(table, channels, false), adds, count, channels, buckets);
  });
}

void PositionEmbeddingForward(View x, const float* weight, View y, int64_t rows, int64_t positions,
                              int64_t channels, cudaStream_t stream) {
  const int64_t count = rows * positions;
  if (count == 0) {
    return;
  }
  const int64_t groups = LaneGroups(channels);
  WithTypeOf(
      [&](auto* type) {
        using T = std::remove_pointer_t<decltype(type)>;
        Launch(PositionForwardKernel<T>, dim3(Blocks(count * groups, kThreads)), dim3(kThreads), 0,
               stream, Input(x), Table(weight, channels), Output(y, channels, true), count,
               positions, channels, groups);
      },
      x, y);
}

void PositionEmbeddingGradient(View dy, float* dweight, bool adds, int64_t rows, int64_t positions,
                               int64_t table_positions, int64_t channels, cudaStream_t stream) {
  const int64_t groups = LaneGroups(channels);
  const View table = {dweight, channels, Type::kF32};
  WithType(dy.type, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    Launch(PositionGradientKernel<T>, dim3(Blocks(table_positions * groups, kThreads)),
           dim3(kThreads), 0, stream, Input(dy), Output(table, channels, false), adds, rows,
           positions, table_positions, channels, groups);
  });
}

}  // namespace trainyard::engine::cuda
