// Computes embeddings and their gradients. The gradient of the table first sorts the tokens, so
// that the positions of each are neighbours. Then chunks of the sorted tokens are summed, and at
// last the sums of the tokens that several chunks share. The order of each sum is fixed, and no
// token, however frequent, is the work of a single block.
#include <algorithm>

#include "worker/engine/backend/cuda/kernels/lanes.h"
#include "worker/engine/backend/cuda/kernels/sequence.h"
#include "worker/engine/backend/cuda/kernels/sort.h"

namespace trainyard::engine::cuda {
namespace {

constexpr int kThreads = 256;
// The number of sorted tokens whose rows one thread adds up. A run of n equal tokens takes
// n / kChunk additions after that.
constexpr int64_t kChunk = 32;

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

// Returns the sum of `count` rows, in order. row_of(i) is the number of row i.
template <class T, class RowOf>
__device__ Float8 SumRows(const Operand& from, int64_t count, int64_t channel, int lanes,
                          const RowOf& row_of) {
  constexpr int kUnroll = 4;
  Float8 sum = {};
  for (int64_t first = 0; first < count; first += kUnroll) {
    Lanes<T> rows[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u < count) {
        rows[u] = LoadLanes<T>(from, row_of(first + u), channel, lanes);
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u < count) {
        AddTo(sum, Unpack(rows[u]));
      }
    }
  }
  return sum;
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
  const Float8 sum = SumRows<T>(dy, position < positions ? rows : 0, channel, lanes,
                                [=](int64_t row) { return row * positions + position; });
  StoreRow(dweight, adds, position, channel, lanes, sum);
}

// Numbers the positions for the sort, and clears the first rows of the table.
__global__ void PrepareKernel(int32_t* positions, int64_t count, Operand dweight,
                              int64_t cleared_rows, int64_t channels, int64_t groups) {
  const int64_t index = GlobalThread();
  if (index < count) {
    positions[index] = static_cast<int32_t>(index);
  }
  const int64_t row = index / groups;
  if (row < cleared_rows) {
    const int64_t channel = (index - row * groups) * kLanes;
    StoreLanes<float>(dweight, row, channel, LaneCount(channels, channel), Float8{});
  }
}

// The tokens in ascending order, with their positions. Equal tokens, which are a run, are in the
// order of their positions.
struct SortedTokens {
  const int32_t* tokens = nullptr;
  const int32_t* positions = nullptr;
  int64_t count = 0;

  __device__ bool BeginsRun(int64_t place) const {
    return place == 0 || tokens[place - 1] != tokens[place];
  }
  // Returns the end of the run that has `place`, or `end` if the run goes beyond it.
  __device__ int64_t RunEnd(int64_t place, int64_t end) const {
    int64_t next = place + 1;
    while (next < end) {
      const int64_t middle = next + (end - next) / 2;
      if (tokens[middle] == tokens[place]) {
        next = middle + 1;
      } else {
        end = middle;
      }
    }
    return next;
  }
};

// Sums up the runs in each chunk. A run that is in one chunk goes to the table. The parts of one
// that several chunks share go to `parts`: row 2 c + 1 of these is for the run that begins in chunk
// c and goes on, and row 2 c for the one that began before.
template <class T>
__global__ void ChunkKernel(SortedTokens sorted, Operand dy, Operand dweight, bool adds,
                            Operand parts, int64_t channels, int64_t groups) {
  const int64_t index = GlobalThread();
  const int64_t chunk = index / groups;
  const int64_t channel = (index - chunk * groups) * kLanes;
  const int lanes = LaneCount(channels, channel);
  const int64_t chunk_end = (chunk + 1) * kChunk;
  const int64_t end = chunk_end < sorted.count ? chunk_end : sorted.count;
  for (int64_t begin = chunk * kChunk; begin < end;) {
    const int64_t run_end = sorted.RunEnd(begin, end);
    const Float8 sum = SumRows<T>(dy, run_end - begin, channel, lanes,
                                  [&](int64_t i) { return sorted.positions[begin + i]; });
    const bool begins = sorted.BeginsRun(begin);
    const bool ends = run_end == sorted.count || sorted.BeginsRun(run_end);
    if (begins && ends) {
      StoreRow(dweight, adds, sorted.tokens[begin], channel, lanes, sum);
    } else {
      StoreLanes<float>(parts, 2 * chunk + (begins ? 1 : 0), channel, lanes, sum);
    }
    begin = run_end;
  }
}

// Adds up the parts of each run that several chunks share. The thread of the chunk in which the run
// begins does so.
__global__ void RunKernel(SortedTokens sorted, Operand dweight, bool adds, Operand parts,
                          int64_t channels, int64_t groups) {
  const int64_t index = GlobalThread();
  const int64_t chunk = index / groups;
  const int64_t begin = chunk * kChunk;
  const int64_t last = begin + kChunk - 1;
  if (last + 1 >= sorted.count || sorted.BeginsRun(last + 1) ||
      (!sorted.BeginsRun(begin) && sorted.tokens[begin] == sorted.tokens[last])) {
    return;
  }
  const int64_t channel = (index - chunk * groups) * kLanes;
  const int lanes = LaneCount(channels, channel);
  const int64_t last_chunk = (sorted.RunEnd(last, sorted.count) - 1) / kChunk;
  const Float8 sum = SumRows<float>(parts, last_chunk - chunk + 1, channel, lanes,
                                    [=](int64_t i) { return 2 * (chunk + i) + (i == 0 ? 1 : 0); });
  StoreRow(dweight, adds, sorted.tokens[last], channel, lanes, sum);
}

int64_t Chunks(int64_t count) {
  return (count + kChunk - 1) / kChunk;
}
int64_t RoundedInts(int64_t count) {
  return (count + 3) / 4 * 4;
}

// The workspace of the gradient, whose parts begin at multiples of 16 bytes.
struct GradientWorkspace {
  GradientWorkspace(void* memory, int64_t count, int64_t channels)
      : positions(static_cast<int32_t*>(memory)),
        sorted_tokens(positions + RoundedInts(count)),
        sorted_positions(sorted_tokens + RoundedInts(count)),
        parts(reinterpret_cast<float*>(sorted_positions + RoundedInts(count))),
        sort(parts + Chunks(count) * 2 * LaneGroups(channels) * kLanes) {}

  int32_t* positions;
  int32_t* sorted_tokens;
  int32_t* sorted_positions;
  float* parts;  // [chunks, 2, channels rounded up to eight]
  void* sort;
};

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

int64_t EmbeddingGradientWorkspace(int64_t count, int64_t channels) {
  const int64_t parts = Chunks(count) * 2 * LaneGroups(channels) * kLanes;
  return (3 * RoundedInts(count) + parts) * int64_t{sizeof(float)} + SortWorkspace(count);
}

int64_t EmbeddingGradientKernels(int64_t count, int64_t vocabulary) {
  return 3 + SortLaunches(count, SortBits(vocabulary));
}

cudaError_t EmbeddingGradient(const int32_t* tokens, View dy, float* dweight, bool adds,
                              int64_t count, int64_t vocabulary, int64_t channels, void* workspace,
                              cudaStream_t stream) {
  const GradientWorkspace memory(workspace, count, channels);
  const int64_t groups = LaneGroups(channels);
  const Operand table = Output(View{dweight, channels, Type::kF32}, channels, false);
  const Operand parts = Output(View{memory.parts, groups * kLanes, Type::kF32}, channels, false);
  const int64_t cleared_rows = adds ? 0 : vocabulary;
  Launch(PrepareKernel, dim3(Blocks(std::max(count, cleared_rows * groups), kThreads)),
         dim3(kThreads), 0, stream, memory.positions, count, table, cleared_rows, channels, groups);
  const cudaError_t error =
      SortPairs(tokens, memory.positions, count, SortBits(vocabulary), memory.sorted_tokens,
                memory.sorted_positions, memory.sort, stream);
  if (error != cudaSuccess) {
    return error;
  }
  const SortedTokens sorted = {memory.sorted_tokens, memory.sorted_positions, count};
  const dim3 blocks(Blocks(Chunks(count) * groups, kThreads));
  WithType(dy.type, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    Launch(ChunkKernel<T>, blocks, dim3(kThreads), 0, stream, sorted, Input(dy), table, adds, parts,
           channels, groups);
  });
  Launch(RunKernel, blocks, dim3(kThreads), 0, stream, sorted, table, adds, parts, channels,
         groups);
  return cudaSuccess;
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
