// Computes the loss in one pass over the logits. Each thread keeps the largest logit that it has
// met and the sum of exponentials relative to it (Milakov & Gimelshein 2018, algorithm 3), and
// threads then combine theirs. A warp takes a vector of few classes, a block one of many.
#include "worker/engine/backend/cuda/kernels/loss.h"

#include "worker/engine/backend/cuda/kernels/lanes.h"
#include "worker/engine/backend/cuda/kernels/reduce.h"

namespace trainyard::engine::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
// With more classes than this, a block takes a vector. Up to this number, a warp has 4 groups of
// lanes a thread.
constexpr int64_t kWarpClasses = 1024;
// Blocks share the labels, and the last one combines what they found.
constexpr int64_t kBlocksMax = 1024;
constexpr int64_t kTicketBytes = 16;
constexpr int kTopCount = 5;  // as in judge.h

struct BlockTotals {
  double loss;
  uint32_t correct, top5;
};

// The knowledge of a thread about some logits of a vector.
struct Softmax {
  float largest;
  int index;    // of the first of the largest logits
  float sum;    // of exp(logit - largest)
  float total;  // of logits, if labels are smoothed
  int before;   // logits that come before the label's

  __device__ void Add(float logit, int k) {
    if (logit > largest) {
      sum = sum * expf(largest - logit) + 1;
      largest = logit;
      index = k;
    } else if (logit != -INFINITY) {
      sum += expf(logit - largest);
    }
  }
  __device__ void Join(const Softmax& other) {
    const bool is_other =
        other.largest > largest || (other.largest == largest && other.index < index);
    const float joint = is_other ? other.largest : largest;
    sum = (largest == joint ? sum : sum * expf(largest - joint)) +
          (other.largest == joint ? other.sum : other.sum * expf(other.largest - joint));
    largest = joint;
    index = is_other ? other.index : index;
    total += other.total;
    before += other.before;
  }
};

__device__ Softmax Shuffled(const Softmax& of, int distance) {
  return {__shfl_xor_sync(kFullWarp, of.largest, distance),
          __shfl_xor_sync(kFullWarp, of.index, distance),
          __shfl_xor_sync(kFullWarp, of.sum, distance),
          __shfl_xor_sync(kFullWarp, of.total, distance),
          __shfl_xor_sync(kFullWarp, of.before, distance)};
}

// Combines the softmax of all threads of a team in its first thread. `shared` has [kWarps] entries,
// which may be reused after the next call's first synchronisation.
template <bool is_block>
__device__ Softmax JoinTeam(Softmax softmax, Softmax* shared) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    softmax.Join(Shuffled(softmax, distance));
  }
  if constexpr (is_block) {
    __syncthreads();
    if (threadIdx.x % kWarp == 0) {
      shared[threadIdx.x / kWarp] = softmax;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int warp = 1; warp < kWarps; ++warp) {
        softmax.Join(shared[warp]);
      }
    }
  }
  return softmax;
}

struct Forward {
  LossParameters loss;
  Operand logits;
  float* logsum;
  const StepControl* control;
};

// The part of a vector that thread `thread` of `threads` handles.
template <class T>
__device__ Softmax LookAt(const Forward& forward, int64_t n, int64_t label, float of_label,
                          int thread, int threads) {
  const int64_t classes = forward.loss.classes;
  const bool is_smoothed = forward.loss.label_smoothing > 0;
  Softmax softmax = {-INFINITY, 0x7fffffff, 0, 0, 0};
#pragma unroll 4
  for (int64_t k = int64_t{kLanes} * thread; k < classes; k += int64_t{kLanes} * threads) {
    const int count = LaneCount(classes, k);
    const Float8 logits = Unpack(LoadLanes<T>(forward.logits, n, k, count));
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      if (i >= count) {
        continue;
      }
      const float logit = logits.at[i];
      softmax.Add(logit, static_cast<int>(k) + i);
      if (is_smoothed) {
        softmax.total += logit;
      }
      if (forward.loss.counts_top5 && k + i != label) {
        const bool is_after = k + i < label ? logit < of_label : logit <= of_label;
        softmax.before += is_after ? 0 : 1;
      }
    }
  }
  return softmax;
}

template <class T>
__device__ float LogitAt(const Operand& logits, int64_t n, int64_t k) {
  return ToFloat(static_cast<const T*>(logits.data)[n * logits.stride + k]);
}

// Computes the loss of one label. The first thread of its team calls it.
__device__ void Judge(const Forward& forward, const Softmax& softmax, int64_t n, int64_t label,
                      float of_label, float first, BlockTotals* totals) {
  const float smoothing = forward.loss.label_smoothing;
  const auto classes = static_cast<float>(forward.loss.classes);
  // The difference would be infinity minus itself, so whatever the sum is, it means nothing.
  const float sum = fabsf(softmax.largest) < INFINITY ? softmax.sum : NAN;
  const float logsum = logf(sum);
  float target = (1 - smoothing) * (of_label - softmax.largest);
  if (smoothing > 0) {
    target += smoothing / classes * (softmax.total - classes * softmax.largest);
  }
  forward.logsum[n] = softmax.largest + logsum;
  totals->loss += logsum - target;
  // This matches std::max_element, which takes a first logit that is NaN as the largest.
  const int64_t best = first != first || softmax.index == 0x7fffffff ? 0 : softmax.index;
  totals->correct += best == label ? 1 : 0;
  const bool is_in_top = softmax.before < kTopCount;
  totals->top5 += forward.loss.counts_top5 && is_in_top ? 1 : 0;
}

struct Sums {
  LossTotals* totals;
  float* loss_sum;
  float* correct_sum;
  bool adds;
  BlockTotals* blocks;
  uint32_t* ticket;
};

// Combines what all blocks found. All threads of the last block call it.
__device__ void Conclude(const Forward& forward, const Sums& sums) {
  __shared__ double losses[kWarp];
  __shared__ uint32_t counts[kWarp];
  BlockTotals total = {0, 0, 0};
  for (unsigned i = threadIdx.x; i < gridDim.x; i += kThreads) {
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
  if (sums.totals != nullptr) {
    *sums.totals = {total.loss, total.correct, total.top5};
  }
  const double share =
      static_cast<double>(forward.control->weight) / static_cast<double>(forward.loss.labels);
  const auto add = [&](float* sum, double value) {
    if (sum != nullptr) {
      *sum = (sums.adds ? *sum : 0) + static_cast<float>(value);
    }
  };
  add(sums.loss_sum, share * total.loss);
  add(sums.correct_sum, share * total.correct);
}

template <class T, bool is_block>
__global__ void ForwardKernel(Forward forward, Sums sums) {
  __shared__ Softmax of_warps[kWarps];
  __shared__ BlockTotals of_teams[kWarps];
  constexpr int kTeamThreads = is_block ? kThreads : kWarp;
  constexpr int kTeams = kThreads / kTeamThreads;
  const int team = static_cast<int>(threadIdx.x) / kTeamThreads;
  const int thread = static_cast<int>(threadIdx.x) % kTeamThreads;
  BlockTotals totals = {0, 0, 0};
  for (int64_t n = static_cast<int64_t>(blockIdx.x) * kTeams + team; n < forward.loss.labels;
       n += static_cast<int64_t>(gridDim.x) * kTeams) {
    const int64_t label = forward.control->labels[n];
    const float of_label = LogitAt<T>(forward.logits, n, label);
    const Softmax softmax =
        JoinTeam<is_block>(LookAt<T>(forward, n, label, of_label, thread, kTeamThreads), of_warps);
    if (thread == 0) {
      const float first = LogitAt<T>(forward.logits, n, 0);
      Judge(forward, softmax, n, label, of_label, first, &totals);
    }
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
    Conclude(forward, sums);
  }
}

int64_t BlocksOf(const LossParameters& loss) {
  const int64_t teams = loss.classes > kWarpClasses ? 1 : kWarps;
  return std::clamp<int64_t>((loss.labels + teams - 1) / teams, 1, kBlocksMax);
}

// A thread has a group of lanes; a vector has `groups` of them.
template <class T>
__global__ void GradientKernel(LossParameters loss, Operand logits, const float* logsum,
                               Operand dlogits, const StepControl* control,
                               const LossScale* loss_scale, int64_t groups) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t n = index / groups;
  if (n >= loss.labels) {
    return;
  }
  const int64_t k = (index - n * groups) * kLanes;
  const int count = LaneCount(loss.classes, k);
  const int64_t label = control->labels[n];
  const float scale = control->gradient_scale * (loss_scale == nullptr ? 1 : loss_scale->scale);
  const float everywhere = loss.label_smoothing / static_cast<float>(loss.classes);
  const float of_vector = logsum[n];
  Float8 values = Unpack(LoadLanes<T>(logits, n, k, count));
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    const float onehot = k + i == label ? 1 : 0;
    const float target = (1 - loss.label_smoothing) * onehot + everywhere;
    values.at[i] = (expf(values.at[i] - of_vector) - target) * scale;
  }
  StoreLanes<T>(dlogits, n, k, count, values);
}

}  // namespace

int64_t LossWorkspace(int64_t labels) {
  return kTicketBytes + std::clamp<int64_t>(labels, 1, kBlocksMax) * int64_t{sizeof(BlockTotals)};
}

void LossForward(const LossParameters& loss, View logits, float* logsum, LossTotals* totals,
                 float* loss_sum, float* correct_sum, bool adds, const StepControl* control,
                 void* workspace, cudaStream_t stream) {
  auto* bytes = static_cast<unsigned char*>(workspace);
  const Forward forward = {loss, Input(logits), logsum, control};
  const Sums sums = {totals,
                     loss_sum,
                     correct_sum,
                     adds,
                     reinterpret_cast<BlockTotals*>(bytes + kTicketBytes),
                     reinterpret_cast<uint32_t*>(bytes)};
  const dim3 blocks(static_cast<unsigned>(BlocksOf(loss)));
  WithType(logits.type, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    if (loss.classes > kWarpClasses) {
      Launch(ForwardKernel<T, true>, blocks, dim3(kThreads), 0, stream, forward, sums);
    } else {
      Launch(ForwardKernel<T, false>, blocks, dim3(kThreads), 0, stream, forward, sums);
    }
  });
}

void LossGradient(const LossParameters& loss, View logits, const float* logsum, View dlogits,
                  bool clears_padding, const StepControl* control, const LossScale* loss_scale,
                  cudaStream_t stream) {
  if (loss.labels == 0) {
    return;
  }
  const int64_t groups = LaneGroups(loss.classes);
  const int64_t blocks = (loss.labels * groups + kThreads - 1) / kThreads;
  WithTypeOf(
      [&](auto* type) {
        using T = std::remove_pointer_t<decltype(type)>;
        Launch(GradientKernel<T>, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0, stream,
               loss, Input(logits), logsum, Output(dlogits, loss.classes, clears_padding), control,
               loss_scale, groups);
      },
      logits, dlogits);
}

}  // namespace trainyard::engine::cuda
