// Defines the launches of an update: what they pass to each other, and how one of them handles a
// chunk of one parameter.
#pragma once

#include "worker/engine/backend/cuda/kernels/packing.h"
#include "worker/engine/backend/cuda/kernels/reduce.h"
#include "worker/engine/backend/cuda/kernels/update_rules.h"
#include "worker/engine/backend/cuda/kernels/update_tables.h"

namespace trainyard::engine::cuda {

inline constexpr int kUpdateThreads = 256;
inline constexpr int kUpdateWarps = kUpdateThreads / kWarp;
// The number of vectors of each array that a thread has in flight. More would take registers from
// other warps.
inline constexpr int kVectorsAtOnce = 2;

// The values that launches pass to each other, at the start of the workspace.
struct Progress {
  uint32_t ticket;
  uint32_t is_spoiled;  // set if a gradient is not finite; the last launch clears it
  uint32_t updates;     // that have ended
  float count;          // of the steps, if UpdateMemory has no count
  // The rates of the coming update. The last launch of the update before computes them, so that no
  // block waits for the corrections. A checkpoint that was loaded since then may have brought
  // another count.
  Rates rates;
};
// Sums of squares over a chunk: of the parameter, and of the gradient or the update.
struct ChunkSums {
  double parameter, other;
};
inline constexpr int64_t kProgressBytes = 128;
static_assert(sizeof(Progress) <= kProgressBytes);

struct Job {
  OptimizerSpec spec;
  UpdateTables tables;
  UpdateMemory memory;
  Progress* progress;
  ChunkSums* sums;  // [chunks]
  double* ratios;   // [segments]
  bool is_surveyed;
  bool is_aligned;  // all of flat memory is aligned to vectors
  // The part of the update that this launch does: all of it, or a range.
  int64_t first_chunk = 0;
  int64_t chunks = 0;
  int64_t begin = 0;  // in elements
  int64_t end = 0;
  // True if the launch also does the running statistics, and all that is done once.
  bool ends = true;

  // Returns the part of a chunk that lies in the range.
  __device__ UpdateChunk Chunk(int64_t index) const {
    UpdateChunk chunk = tables.chunks[first_chunk + index];
    const int64_t first = chunk.offset > begin ? chunk.offset : begin;
    const int64_t last = chunk.offset + chunk.count < end ? chunk.offset + chunk.count : end;
    chunk.offset = first;
    chunk.count = last > first ? static_cast<int32_t>(last - first) : 0;
    return chunk;
  }
};

// `width` adjacent elements.
template <int width>
struct Elements {
  Vector<float, width> w, g, first, second, average;
};

// A chunk of one parameter during a pass.
template <Pass pass>
class ChunkUpdate {
 public:
  __device__ ChunkUpdate(const Job& job, const UpdateChunk& chunk, const Rates& rates, float lr,
                         bool is_skipped)
      : count_(chunk.count),
        is_skipped_(is_skipped),
        w_(job.memory.parameters + chunk.offset),
        g_(job.memory.gradients + chunk.offset) {
    const UpdateSegment& segment = job.tables.segments[chunk.segment];
    const double ratio =
        pass == Pass::kLars || pass == Pass::kLambApply ? job.ratios[chunk.segment] : 1;
    numbers_ = NumbersOf(job.spec, rates, lr, ratio, segment.is_excluded);
    if (HasMoments(pass) || numbers_.has_momentum) {
      first_ = job.memory.slots + chunk.offset;
    }
    if (HasMoments(pass)) {
      second_ = first_ + job.memory.slot_stride;
    }
    if (job.memory.averages != nullptr && job.spec.ema_decay > 0) {
      average_ = job.memory.averages + chunk.offset;
    }
    is_aligned_ = job.is_aligned && chunk.offset % 4 == 0;
    if (segment.packed >= 0) {
      const PackedWeight& weight = job.tables.packed[segment.packed];
      packed_ = weight.packed;
      type_ = weight.type;
      run_ = PackedRun(weight.inner, weight.stride, chunk.offset - weight.offset);
      packs_fours_ = run_.HoldsFours() && IsAligned(packed_);
    }
  }

  __device__ void Run() {
    const int vectors = is_aligned_ ? count_ / 4 : 0;
    Span<4>(0, vectors);
    Span<1>(vectors * 4, count_);
  }
  __device__ bool is_spoiled() const { return is_spoiled_; }
  // Returns this thread's sums of squares of parameter and update, in the pass for LAMB's moments.
  __device__ const ChunkSums& sums() const { return sums_; }

 private:
  static constexpr bool kReadsGradient = pass != Pass::kLambApply;
  static constexpr bool kWritesParameter = pass != Pass::kLambMoments;
  static constexpr bool kWritesMoments = pass != Pass::kLambApply;

  // Updates vectors [begin, end) of `width` elements.
  template <int width>
  __device__ void Span(int begin, int end) {
    for (int at = begin + static_cast<int>(threadIdx.x); at < end;
         at += kUpdateThreads * kVectorsAtOnce) {
      Elements<width> elements[kVectorsAtOnce];
#pragma unroll
      for (int i = 0; i < kVectorsAtOnce; ++i) {
        if (at + i * kUpdateThreads < end) {
          Load(elements[i], (at + i * kUpdateThreads) * width);
        }
      }
#pragma unroll
      for (int i = 0; i < kVectorsAtOnce; ++i) {
        if (at + i * kUpdateThreads < end) {
          Advance(elements[i]);
          Store(elements[i], (at + i * kUpdateThreads) * width);
        }
      }
    }
  }

  template <int width>
  __device__ void Load(Elements<width>& e, int at) const {
    if (is_skipped_) {
      return;
    }
    e.w = LoadVector<width>(w_ + at);
    if (kReadsGradient) {
      e.g = LoadVector<width, Reuse::kLate>(g_ + at);
    }
    if (first_ != nullptr) {
      e.first = LoadVector<width, Reuse::kLate>(first_ + at);
    }
    if (HasMoments(pass)) {
      e.second = LoadVector<width, Reuse::kLate>(second_ + at);
    }
    if (kWritesParameter && average_ != nullptr) {
      e.average = LoadVector<width, Reuse::kLate>(average_ + at);
    }
  }

  template <int width>
  __device__ void Advance(Elements<width>& e) {
    if (is_skipped_) {
      return;
    }
#pragma unroll
    for (int i = 0; i < width; ++i) {
      Element element = {e.w.at[i], kReadsGradient ? e.g.at[i] : 0,
                         first_ != nullptr ? e.first.at[i] : 0,
                         HasMoments(pass) ? e.second.at[i] : 0};
      is_spoiled_ |= kReadsGradient && IsSpoiled(element.g);
      ApplyRule<pass>(numbers_, element);
      e.w.at[i] = element.w;
      e.first.at[i] = element.first;
      e.second.at[i] = element.second;
      if constexpr (pass == Pass::kLambMoments) {
        sums_.parameter += Square(element.w);
        sums_.other += Square(Direction(numbers_, element) + numbers_.weight_decay * element.w);
      }
      if (kWritesParameter && average_ != nullptr) {
        // The first update sets the average, whatever it was before.
        e.average.at[i] = numbers_.keep > 0
                              ? numbers_.keep * e.average.at[i] + numbers_.rest * element.w
                              : element.w;
      }
    }
  }

  template <int width>
  __device__ void Store(const Elements<width>& e, int at) const {
    if (kReadsGradient) {
      StoreVector<Reuse::kLate>(g_ + at, Vector<float, width>{});
    }
    if (is_skipped_) {
      return;
    }
    if (kWritesMoments && first_ != nullptr) {
      StoreVector<Reuse::kLate>(first_ + at, e.first);
    }
    if (kWritesMoments && HasMoments(pass)) {
      StoreVector<Reuse::kLate>(second_ + at, e.second);
    }
    if constexpr (kWritesParameter) {
      StoreVector(w_ + at, e.w);
      if (average_ != nullptr) {
        StoreVector<Reuse::kLate>(average_ + at, e.average);
      }
      if (packed_ != nullptr) {
        Pack(e.w, at);
      }
    }
  }

  template <int width>
  __device__ void Pack(const Vector<float, width>& w, int at) const {
    if constexpr (width > 1) {
      if (!packs_fours_) {
#pragma unroll
        for (int i = 0; i < width; ++i) {
          StorePacked(packed_, type_, run_.At(at + i), Floats<1>{{w.at[i]}});
        }
        return;
      }
    }
    StorePacked(packed_, type_, run_.At(at), Unpack(w));
  }

  const int count_;
  const bool is_skipped_;
  float* __restrict__ const w_;
  float* __restrict__ const g_;
  float* __restrict__ first_ = nullptr;
  float* __restrict__ second_ = nullptr;
  float* __restrict__ average_ = nullptr;
  bool is_aligned_ = false;
  Numbers numbers_;
  void* packed_ = nullptr;
  Type type_ = Type::kF32;
  PackedRun run_ = PackedRun(1, 1, 0);
  bool packs_fours_ = false;
  bool is_spoiled_ = false;
  ChunkSums sums_ = {0, 0};
};

}  // namespace trainyard::engine::cuda
