// Updates all parameters. There is one block for each chunk, and one for each running statistic.
// The block that ends last does what has to be done once: it adds up the sums over chunks, counts
// the step, and reports to the host.
//
// SGD and AdamW are one launch. With clipping, LARS or a loss scale, a launch over the gradients
// comes first: their norm, and whether they are finite, must be known before anything is written.
// LAMB's rule is two launches.
#include "worker/engine/backend/cuda/kernels/update.h"

#include "worker/engine/backend/cuda/kernels/reduce.h"
#include "worker/engine/backend/cuda/kernels/update_chunk.h"

namespace trainyard::engine::cuda {
namespace {

// Returns true if a launch over the gradients comes first.
bool IsSurveyed(const OptimizerSpec& spec, bool scales_loss) {
  return spec.clip_norm > 0 || spec.rule == Rule::kLars || scales_loss;
}

__device__ float LossScaleOf(const UpdateMemory& memory) {
  return memory.loss_scale == nullptr ? 1 : memory.loss_scale->scale;
}
__device__ float CountOf(const Job& job) {
  const float* count = job.memory.step_count;
  return count == nullptr ? job.progress->count : *count;
}

__device__ Rates RatesOf(const Job& job) {
  if (job.is_surveyed) {
    return job.progress->rates;
  }
  if (!KeepsCount(job.spec)) {
    return ComputeRates(job.spec, 0, 0, 1);
  }
  const float update = NextUpdate(CountOf(job));
  return job.progress->rates.update == update ? job.progress->rates
                                              : ComputeRates(job.spec, update, 0, 1);
}

// Computes the ratio of each parameter from the sums of its chunks; a warp has a parameter.
__device__ void ComputeRatios(const Job& job, double other_scale) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  for (int64_t i = warp; i < job.tables.segment_count; i += kUpdateWarps) {
    const UpdateSegment& segment = job.tables.segments[i];
    ChunkSums total = {0, 0};
    for (int32_t chunk = lane; chunk < segment.chunks; chunk += kWarp) {
      total.parameter += job.sums[segment.first_chunk + chunk].parameter;
      total.other += job.sums[segment.first_chunk + chunk].other;
    }
    total.parameter = WarpSum(total.parameter);
    total.other = WarpSum(total.other);
    if (lane == 0) {
      job.ratios[i] = segment.is_excluded ? 1
                                          : LayerRatio(job.spec, sqrt(total.parameter),
                                                       other_scale * sqrt(total.other));
    }
  }
}

// The findings of a thread in its part of a chunk.
struct Survey {
  ChunkSums sums = {0, 0};
  bool is_spoiled = false;
};

// Looks at the gradients of a chunk, and at its parameters if their norm is wanted.
__device__ Survey SurveyChunk(const Job& job, const UpdateChunk& chunk, bool of_parameters) {
  Survey found;
  const float* gradients = job.memory.gradients + chunk.offset;
  const float* parameters = job.memory.parameters + chunk.offset;
  const auto look_at = [&](float g, float w) {
    found.is_spoiled |= IsSpoiled(g);
    found.sums.other += Square(g);
    found.sums.parameter += Square(w);
  };
  ForVectors(static_cast<int>(threadIdx.x), kUpdateThreads, chunk.count,
             job.is_aligned && chunk.offset % kFlatWidth == 0, [&](auto width, int i) {
               const auto g = LoadVector<width()>(gradients + i);
               const auto w = of_parameters ? LoadVector<width()>(parameters + i) : decltype(g){};
               for (int k = 0; k < width(); ++k) {
                 look_at(g.at[k], w.at[k]);
               }
             });
  return found;
}

// Surveys the gradients before anything is written.
__global__ void SurveyKernel(Job job) {
  __shared__ double scratch[kWarp];
  __shared__ Rates rates;
  const int64_t index = blockIdx.x;
  const bool of_parameters = job.spec.rule == Rule::kLars;
  const bool takes_norms = of_parameters || job.spec.clip_norm > 0;
  Survey found;
  if (index < job.tables.chunk_count) {
    found = SurveyChunk(job, job.tables.chunks[index], of_parameters);
  }
  if (found.is_spoiled) {
    atomicOr(&job.progress->is_spoiled, 1U);
  }
  ChunkSums sums = found.sums;
  if (takes_norms) {
    sums.other = BlockSum(sums.other, scratch);
    sums.parameter = BlockSum(sums.parameter, scratch);
    if (threadIdx.x == 0 && index < job.tables.chunk_count) {
      job.sums[index] = sums;
    }
  }
  if (!IsLastBlock(&job.progress->ticket, gridDim.x)) {
    return;
  }
  double squares = 0;
  for (int64_t i = threadIdx.x; takes_norms && i < job.tables.chunk_count; i += kUpdateThreads) {
    squares += job.sums[i].other;
  }
  squares = BlockSum(squares, scratch);
  if (threadIdx.x == 0) {
    const float update = KeepsCount(job.spec) ? NextUpdate(CountOf(job)) : 0;
    rates = ComputeRates(job.spec, update, sqrt(squares), LossScaleOf(job.memory));
    job.progress->rates = rates;
  }
  __syncthreads();
  if (of_parameters) {
    ComputeRatios(job, rates.gradient_scale);
  }
}

__device__ void FoldRunning(const UpdateMemory& memory, const RunningSegment& segment,
                            bool is_skipped) {
  const float share = segment.momentum;
  for (int64_t i = segment.offset + threadIdx.x; i < segment.offset + segment.count;
       i += kUpdateThreads) {
    if (!is_skipped) {
      memory.running[i] = (1 - share) * memory.running[i] + share * memory.statistics[i];
    }
    memory.statistics[i] = 0;
  }
}

// Ends an update. One thread calls it.
__device__ void Finish(const Job& job, const Rates& rates, bool is_skipped) {
  const UpdateMemory& memory = job.memory;
  StepResult result;
  const auto take = [](float* sum) {
    const float value = sum == nullptr ? 0 : *sum;
    if (sum != nullptr) {
      *sum = 0;
    }
    return value;
  };
  result.loss = take(memory.loss);
  result.accuracy = take(memory.correct);
  const bool is_spoiled = job.progress->is_spoiled != 0;
  result.not_finite = is_spoiled || IsSpoiled(result.loss) ? 1 : 0;
  result.skipped = is_skipped ? 1 : 0;
  memory.results.first[job.progress->updates % memory.results.count] = result;
  ++job.progress->updates;
  job.progress->is_spoiled = 0;
  if (memory.loss_scale != nullptr) {
    LossScale scale = *memory.loss_scale;
    scale.good_steps += 1;
    if (is_skipped) {
      scale = {fmaxf(scale.scale / 2, kLossScaleMin), 0};
    } else if (scale.good_steps >= kLossScaleGrowth) {
      scale = {fminf(scale.scale * 2, kLossScaleMax), 0};
    }
    *memory.loss_scale = scale;
  }
  if (is_skipped || !KeepsCount(job.spec)) {
    return;
  }
  *(memory.step_count == nullptr ? &job.progress->count : memory.step_count) = rates.update;
  if (!job.is_surveyed) {
    job.progress->rates = ComputeRates(job.spec, NextUpdate(rates.update), 0, 1);
  }
}

template <Pass pass>
__global__ void UpdateKernel(Job job) {
  __shared__ Rates rates;
  __shared__ double scratch[kWarp];
  if (threadIdx.x == 0) {
    rates = RatesOf(job);
  }
  // All threads read this before the ticket, since the last block changes it.
  const bool is_skipped = job.memory.loss_scale != nullptr && job.progress->is_spoiled != 0;
  __syncthreads();
  const int64_t chunk = blockIdx.x;
  const int64_t running = chunk - job.chunks;
  if (running < 0) {
    ChunkUpdate<pass> update(job, job.Chunk(chunk), rates, job.memory.control->lr, is_skipped);
    update.Run();
    if (!job.is_surveyed && update.is_spoiled()) {
      atomicOr(&job.progress->is_spoiled, 1U);
    }
    if constexpr (pass == Pass::kLambMoments) {
      const ChunkSums sums = {BlockSum(update.sums().parameter, scratch),
                              BlockSum(update.sums().other, scratch)};
      if (threadIdx.x == 0) {
        job.sums[chunk] = sums;
      }
    }
  } else if (pass != Pass::kLambMoments && running < job.tables.running_count) {
    FoldRunning(job.memory, job.tables.running[running], is_skipped);
  }
  if (!job.ends || !IsLastBlock(&job.progress->ticket, gridDim.x)) {
    return;
  }
  if constexpr (pass == Pass::kLambMoments) {
    ComputeRatios(job, 1);
  } else if (threadIdx.x == 0) {
    Finish(job, rates, is_skipped);
  }
}

// The last launch also folds the running statistics.
template <Pass pass>
void LaunchUpdate(const Job& job, cudaStream_t stream) {
  const bool folds = job.ends && pass != Pass::kLambMoments;
  const int64_t blocks = job.chunks + (folds ? job.tables.running_count : 0);
  Launch(UpdateKernel<pass>, dim3(static_cast<unsigned>(blocks > 0 ? blocks : 1)),
         dim3(kUpdateThreads), 0, stream, job);
}

constexpr int kExchangeVectors = 4;

unsigned FlatBlocks(int64_t count) {
  constexpr int64_t kBlockElements = int64_t{kUpdateThreads} * 4 * kExchangeVectors;
  return static_cast<unsigned>((count + kBlockElements - 1) / kBlockElements);
}

// Calls body(width, i) for elements [i, i + width) of [0, count), which all threads share.
template <class Body>
__device__ void ForFlat(int64_t count, bool is_aligned, const Body& body) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kUpdateThreads + threadIdx.x;
  ForVectors(first, static_cast<int64_t>(gridDim.x) * kUpdateThreads, count, is_aligned, body);
}

__global__ void AddLeftKernel(const float* __restrict__ left, float* __restrict__ sums,
                              int64_t count, bool is_aligned) {
  ForFlat(count, is_aligned, [&](auto width, int64_t i) {
    auto sum = Unpack(LoadVector<width()>(left + i));
    AddTo(sum, Unpack(LoadVector<width()>(sums + i)));
    StoreVector(sums + i, Pack<float>(sum));
  });
}

template <typename From, typename To>
__global__ void ConvertKernel(const From* __restrict__ from, To* __restrict__ to, int64_t count,
                              bool is_aligned) {
  ForFlat(count, is_aligned, [&](auto width, int64_t i) {
    StoreVector(to + i, Pack<To>(Unpack(LoadVector<width()>(from + i))));
  });
}

__global__ void ExchangeKernel(float* a, float* b, int64_t count, bool is_aligned) {
  ForFlat(count, is_aligned, [&](auto width, int64_t i) {
    const auto of_a = LoadVector<width()>(a + i);
    StoreVector(a + i, LoadVector<width()>(b + i));
    StoreVector(b + i, of_a);
  });
}

// Describes the whole update.
Job MakeJob(const OptimizerSpec& spec, const UpdateTables& tables, const UpdateMemory& memory) {
  auto* bytes = static_cast<unsigned char*>(memory.workspace);
  auto* sums = reinterpret_cast<ChunkSums*>(bytes + kProgressBytes);
  return {.spec = spec,
          .tables = tables,
          .memory = memory,
          .progress = reinterpret_cast<Progress*>(bytes),
          .sums = sums,
          .ratios = reinterpret_cast<double*>(sums + tables.chunk_count),
          .is_surveyed = IsSurveyed(spec, memory.loss_scale != nullptr),
          .is_aligned = IsAligned(memory.parameters) && IsAligned(memory.gradients) &&
                        IsAligned(memory.slots) && IsAligned(memory.averages) &&
                        memory.slot_stride % 4 == 0,
          .chunks = tables.chunk_count,
          .end = memory.gradient_elements};
}

// Runs all passes over the parameters.
void LaunchRule(const Job& job, cudaStream_t stream) {
  switch (job.spec.rule) {
    case Rule::kSgd:
      LaunchUpdate<Pass::kSgd>(job, stream);
      return;
    case Rule::kAdamW:
      LaunchUpdate<Pass::kAdamW>(job, stream);
      return;
    case Rule::kAdam:
      LaunchUpdate<Pass::kAdam>(job, stream);
      return;
    case Rule::kLars:
      LaunchUpdate<Pass::kLars>(job, stream);
      return;
    case Rule::kLamb:
      LaunchUpdate<Pass::kLambMoments>(job, stream);
      LaunchUpdate<Pass::kLambApply>(job, stream);
      return;
  }
}

}  // namespace

int64_t UpdateWorkspace(const OptimizerSpec&, int64_t segments, int64_t chunks) {
  return kProgressBytes + chunks * int64_t{sizeof(ChunkSums)} + segments * int64_t{sizeof(double)};
}

int64_t UpdateKernels(const OptimizerSpec& spec, bool scales_loss) {
  return (IsSurveyed(spec, scales_loss) ? 1 : 0) + (spec.rule == Rule::kLamb ? 2 : 1);
}

void Update(const OptimizerSpec& spec, const UpdateTables& tables, const UpdateMemory& memory,
            cudaStream_t stream) {
  const Job job = MakeJob(spec, tables, memory);
  if (job.is_surveyed) {
    const int64_t blocks = tables.chunk_count > 0 ? tables.chunk_count : 1;
    Launch(SurveyKernel, dim3(static_cast<unsigned>(blocks)), dim3(kUpdateThreads), 0, stream, job);
  }
  LaunchRule(job, stream);
}

void UpdatePart(const OptimizerSpec& spec, const UpdateTables& tables, const UpdateMemory& memory,
                const UpdateRangeOf& range, cudaStream_t stream) {
  if (range.chunks == 0) {
    return;
  }
  Job job = MakeJob(spec, tables, memory);
  job.first_chunk = range.first_chunk;
  job.chunks = range.chunks;
  job.begin = range.begin;
  job.end = range.end;
  job.ends = false;
  LaunchRule(job, stream);
}

void FinishParts(const OptimizerSpec& spec, const UpdateTables& tables, const UpdateMemory& memory,
                 cudaStream_t stream) {
  Job job = MakeJob(spec, tables, memory);
  job.chunks = 0;
  LaunchRule(job, stream);
}

void AddLeft(const float* left, float* sums, int64_t count, cudaStream_t stream) {
  if (count == 0) {
    return;
  }
  Launch(AddLeftKernel, dim3(FlatBlocks(count)), dim3(kUpdateThreads), 0, stream, left, sums, count,
         IsAligned(left) && IsAligned(sums));
}

void ToBf16(const float* from, void* to, int64_t count, cudaStream_t stream) {
  if (count == 0) {
    return;
  }
  auto* const out = static_cast<__nv_bfloat16*>(to);
  Launch(ConvertKernel<float, __nv_bfloat16>, dim3(FlatBlocks(count)), dim3(kUpdateThreads), 0,
         stream, from, out, count, IsAligned(from) && IsAligned(out));
}

void FromBf16(const void* from, float* to, int64_t count, cudaStream_t stream) {
  if (count == 0) {
    return;
  }
  const auto* const in = static_cast<const __nv_bfloat16*>(from);
  Launch(ConvertKernel<__nv_bfloat16, float>, dim3(FlatBlocks(count)), dim3(kUpdateThreads), 0,
         stream, in, to, count, IsAligned(in) && IsAligned(to));
}

void Exchange(float* a, float* b, int64_t count, cudaStream_t stream) {
  if (count == 0) {
    return;
  }
  Launch(ExchangeKernel, dim3(FlatBlocks(count)), dim3(kUpdateThreads), 0, stream, a, b, count,
         IsAligned(a) && IsAligned(b));
}

}  // namespace trainyard::engine::cuda
