// Computes the loss, and the gradient of the logits with it. A warp takes a vector of few classes,
// a block one of many.
#include "worker/engine/backend/cuda/kernels/loss.h"

#include "worker/engine/backend/cuda/kernels/team_row.h"

namespace trainyard::engine::cuda {
namespace {

// Warps share a block of this many threads, in which each holds a vector of up to kWarpClasses.
constexpr int kThreads = 256;
constexpr int kWarpGroups = 4;
constexpr int64_t kWarpClasses = int64_t{kWarpGroups} * kLanes * kWarp;
// A block that takes a vector is larger, and two of them fit on a multiprocessor: one loads while
// the other one stores. It reads its vector three times, which should cost one time of memory: with
// the vocabulary of GPT-2 in 16 bits, the vectors of all blocks on an H200 take 26 MB of its
// second-level cache.
constexpr int kBlockThreads = 512;
constexpr int kBlockGroups = 1;
// Blocks share the labels, and the last one combines what they found.
constexpr int64_t kBlocksMax = 1024;
constexpr int64_t kTicketBytes = 16;
constexpr int kTopCount = 5;  // as in judge.h

struct BlockTotals {
  double loss;
  uint32_t correct, top5;
};

// The knowledge of a thread, or of a team, about the logits of a vector.
struct Best {
  float largest;
  int index;    // of the first of the largest logits
  float total;  // of logits, if labels are smoothed
  int before;   // logits that come before the label's

  __device__ void Add(float logit, int k) {
    if (logit > largest) {
      largest = logit;
      index = k;
    }
  }
  __device__ void Join(const Best& other) {
    const bool is_other =
        other.largest > largest || (other.largest == largest && other.index < index);
    largest = is_other ? other.largest : largest;
    index = is_other ? other.index : index;
    total += other.total;
    before += other.before;
  }
};
constexpr int kNoIndex = 0x7fffffff;
__device__ inline Best Nothing() {
  return {-INFINITY, kNoIndex, 0, 0};
}

__device__ Best JoinWarp(Best best) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    best.Join({__shfl_xor_sync(kFullWarp, best.largest, distance),
               __shfl_xor_sync(kFullWarp, best.index, distance),
               __shfl_xor_sync(kFullWarp, best.total, distance),
               __shfl_xor_sync(kFullWarp, best.before, distance)});
  }
  return best;
}

// Combines what the threads of a team know, in all of them. `shared` has an entry for each warp of
// the block, and may be reused when it returns.
template <int threads>
__device__ Best JoinTeam(Best best, Best* shared) {
  best = JoinWarp(best);
  // Each lane has read its logits when another one goes on. Shuffles alone do not order memory.
  __syncwarp();
  if constexpr (threads > kWarp) {
    constexpr int kWarps = threads / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    if (lane == 0) {
      shared[threadIdx.x / kWarp] = best;
    }
    __syncthreads();
    best = JoinWarp(lane < kWarps ? shared[lane] : Nothing());
    __syncthreads();
  }
  return best;
}

struct Arguments {
  LossParameters loss;
  Operand logits;
  Operand dlogits;  // null if no gradient is wanted
  const StepControl* control;
  const LossScale* loss_scale;
};

template <class T>
__device__ float LogitAt(const Operand& logits, int64_t n, int64_t k) {
  return Unpack(LoadLanes<T>(logits, n, k, 1)).at[0];
}

// The label of a vector, and the logits that are read by themselves.
struct Singled {
  int64_t label;
  float of_label;
  float first;
};

// Computes the loss of one label. The first thread of its team calls it.
__device__ void Judge(const LossParameters& loss, const Best& best, const Singled& singled,
                      float log_of_sum, BlockTotals* totals) {
  const float smoothing = loss.label_smoothing;
  const auto classes = static_cast<float>(loss.classes);
  float target = (1 - smoothing) * (singled.of_label - best.largest);
  if (smoothing > 0) {
    target += smoothing / classes * (best.total - classes * best.largest);
  }
  totals->loss += log_of_sum - target;
  // This matches std::max_element, which takes a first logit that is NaN as the largest.
  const bool has_none = singled.first != singled.first || best.index == kNoIndex;
  totals->correct += (has_none ? 0 : best.index) == singled.label ? 1 : 0;
  totals->top5 += loss.counts_top5 && best.before < kTopCount ? 1 : 0;
}

struct Sums {
  LossSums into;
  BlockTotals* blocks;
  uint32_t* ticket;
};

// Combines what all blocks found. All threads of the last block call it.
__device__ void Conclude(const Arguments& a, const Sums& sums) {
  __shared__ double losses[kWarp];
  __shared__ uint32_t counts[kWarp];
  BlockTotals total = {0, 0, 0};
  for (unsigned i = threadIdx.x; i < gridDim.x; i += blockDim.x) {
    total.loss += sums.blocks[i].loss;
    total.correct += sums.blocks[i].correct;
    total.top5 += sums.blocks[i].top5;
  }
  total.loss = BlockSum(total.loss, losses);
  total.correct = BlockSum(total.correct, counts);
  total.top5 = BlockSum(total.top5, counts);
  if (threadIdx.x != 0) {
    return;
  }
  if (sums.into.totals != nullptr) {
    *sums.into.totals = {total.loss, total.correct, total.top5};
  }
  const double share = static_cast<double>(a.control->weight) / static_cast<double>(a.loss.labels);
  const auto add = [&](float* sum, double value) {
    if (sum != nullptr) {
      *sum = (sums.into.adds ? *sum : 0) + static_cast<float>(value);
    }
  };
  add(sums.into.loss, share * total.loss);
  add(sums.into.correct, share * total.correct);
}

// The gradient may be written over the logits. A thread writes where it alone reads, but for the
// two logits that all threads of the team have read before they join what they know.
template <class T, int block, int threads, int held, bool has_rest>
__global__ void __launch_bounds__(block, threads > kWarp ? 2 : 1)
    LossKernel(Arguments a, Sums sums) {
  constexpr int kTeams = block / threads;
  __shared__ Best of_warps[block / kWarp];
  __shared__ float shared[kWarp];
  __shared__ BlockTotals of_teams[kTeams];
  const int team = static_cast<int>(threadIdx.x) / threads;
  const int thread = static_cast<int>(threadIdx.x) % threads;
  const bool is_smoothed = a.loss.label_smoothing > 0;
  const float everywhere = a.loss.label_smoothing / static_cast<float>(a.loss.classes);
  const float scale =
      a.control->gradient_scale * (a.loss_scale == nullptr ? 1 : a.loss_scale->scale);
  BlockTotals totals = {0, 0, 0};
  for (int64_t n = static_cast<int64_t>(blockIdx.x) * kTeams + team; n < a.loss.labels;
       n += static_cast<int64_t>(gridDim.x) * kTeams) {
    const int64_t label = a.control->labels[n];
    const Singled singled = {label, LogitAt<T>(a.logits, n, label), LogitAt<T>(a.logits, n, 0)};
    const TeamRow<T, 1, threads, held, has_rest> row({a.logits}, n, a.loss.classes, thread);
    Best best = Nothing();
    row.ForGroups([&](int64_t k, int count, const Float8* logits) {
#pragma unroll
      for (int i = 0; i < kLanes; ++i) {
        if (i >= count) {
          continue;
        }
        const float logit = logits[0].at[i];
        best.Add(logit, static_cast<int>(k) + i);
        if (is_smoothed) {
          best.total += logit;
        }
        if (a.loss.counts_top5 && k + i != label) {
          const bool is_after =
              k + i < label ? logit < singled.of_label : logit <= singled.of_label;
          best.before += is_after ? 0 : 1;
        }
      }
    });
    best = JoinTeam<threads>(best, of_warps);
    float sum = 0;
    row.ForGroups([&](int64_t, int count, const Float8* logits) {
#pragma unroll
      for (int i = 0; i < kLanes; ++i) {
        sum += i < count ? expf(logits[0].at[i] - best.largest) : 0;
      }
    });
    sum = SumOfTeam<threads>(sum, shared);
    // The difference would be infinity minus itself, so whatever the sum is, it means nothing.
    const float log_of_sum = logf(fabsf(best.largest) < INFINITY ? sum : NAN);
    if (thread == 0) {
      Judge(a.loss, best, singled, log_of_sum, &totals);
    }
    if (!a.dlogits) {
      continue;
    }
    const float logsum = best.largest + log_of_sum;
    row.ForGroups([&](int64_t k, int count, const Float8* logits) {
      Float8 gradient;
#pragma unroll
      for (int i = 0; i < kLanes; ++i) {
        const float onehot = k + i == label ? 1 : 0;
        const float target = (1 - a.loss.label_smoothing) * onehot + everywhere;
        gradient.at[i] = (expf(logits[0].at[i] - logsum) - target) * scale;
      }
      StoreLanes<T>(a.dlogits, n, k, count, gradient);
    });
  }
  if (thread == 0) {
    of_teams[team] = totals;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < kTeams; ++i) {
      totals.loss += of_teams[i].loss;
      totals.correct += of_teams[i].correct;
      totals.top5 += of_teams[i].top5;
    }
    sums.blocks[blockIdx.x] = totals;
  }
  if (IsLastBlock(sums.ticket, gridDim.x)) {
    Conclude(a, sums);
  }
}

int64_t BlocksOf(const LossParameters& loss) {
  const int64_t teams = loss.classes > kWarpClasses ? 1 : kThreads / kWarp;
  return std::clamp<int64_t>((loss.labels + teams - 1) / teams, 1, kBlocksMax);
}

}  // namespace

int64_t LossWorkspace(int64_t labels) {
  return kTicketBytes + std::clamp<int64_t>(labels, 1, kBlocksMax) * int64_t{sizeof(BlockTotals)};
}

void Loss(const LossParameters& loss, View logits, View dlogits, bool clears_padding,
          const LossSums& into, const StepControl* control, const LossScale* loss_scale,
          void* workspace, cudaStream_t stream) {
  auto* bytes = static_cast<unsigned char*>(workspace);
  const Arguments arguments = {loss, Input(logits), Output(dlogits, loss.classes, clears_padding),
                               control, loss_scale};
  const Sums sums = {into, reinterpret_cast<BlockTotals*>(bytes + kTicketBytes),
                     reinterpret_cast<uint32_t*>(bytes)};
  const dim3 blocks(static_cast<unsigned>(BlocksOf(loss)));
  WithTypeOf(
      [&](auto* type) {
        using T = std::remove_pointer_t<decltype(type)>;
        if (loss.classes > kWarpClasses) {
          Launch(LossKernel<T, kBlockThreads, kBlockThreads, kBlockGroups, true>, blocks,
                 dim3(kBlockThreads), 0, stream, arguments, sums);
        } else {
          Launch(LossKernel<T, kThreads, kWarp, kWarpGroups, false>, blocks, dim3(kThreads), 0,
                 stream, arguments, sums);
        }
      },
      logits, dlogits);
}

}  // namespace trainyard::engine::cuda
