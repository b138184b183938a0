// Lets a team of threads, a warp or a block, handle one vector. What fits into registers is loaded
// once and used as often as a formula needs it; the rest is read again.
#pragma once

#include "worker/engine/backend/cuda/kernels/lanes.h"
#include "worker/engine/backend/cuda/kernels/reduce.h"

namespace trainyard::engine::cuda {

// The part of one vector that a thread of a team handles: groups of lanes, `threads` apart. The
// first `held` of them stay in registers. Without `has_rest` there are no others.
template <class T, int operands, int threads, int held, bool has_rest = true>
class TeamRow {
 public:
  // The operands `of` are all read at vector n.
  __device__ TeamRow(const Operand (&of)[operands], int64_t n, int64_t channels, int thread)
      : n_(n), channels_(channels), first_(int64_t{kLanes} * thread) {
#pragma unroll
    for (int i = 0; i < operands; ++i) {
      of_[i] = of[i];
    }
#pragma unroll
    for (int group = 0; group < held; ++group) {
      Load(ChannelOf(group), held_[group]);
    }
  }

  // Calls body(channel, count, values[operands]) for all groups in order.
  template <class Body>
  __device__ void ForGroups(const Body& body) const {
    ForHeld([&](int, int64_t channel, int count, const Float8* values) {
      body(channel, count, values);
    });
    ForRest(body);
  }
  // Calls body(group, channel, count, values[operands]) for the groups in registers. The number of
  // the group is a constant once the loop is unrolled.
  template <class Body>
  __device__ void ForHeld(const Body& body) const {
#pragma unroll
    for (int group = 0; group < held; ++group) {
      if (ChannelOf(group) < channels_) {
        Call(ChannelOf(group), held_[group], [&](int64_t channel, int count, const Float8* values) {
          body(group, channel, count, values);
        });
      }
    }
  }
  // Reads the other groups, and calls body(channel, count, values[operands]).
  template <class Body>
  __device__ void ForRest(const Body& body) const {
    if constexpr (has_rest) {
#pragma unroll 2
      for (int64_t channel = ChannelOf(held); channel < channels_;
           channel += int64_t{kLanes} * threads) {
        Group group;
        Load(channel, group);
        Call(channel, group, body);
      }
    }
  }

 private:
  struct Group {
    Lanes<T> of[operands];
  };

  __device__ int64_t ChannelOf(int group) const {
    return first_ + int64_t{group} * kLanes * threads;
  }
  __device__ void Load(int64_t channel, Group& group) const {
    if (channel >= channels_) {
      return;
    }
    const int count = LaneCount(channels_, channel);
#pragma unroll
    for (int i = 0; i < operands; ++i) {
      group.of[i] = LoadLanes<T>(of_[i], n_, channel, count);
    }
  }
  template <class Body>
  __device__ void Call(int64_t channel, const Group& group, const Body& body) const {
    Float8 values[operands];
#pragma unroll
    for (int i = 0; i < operands; ++i) {
      values[i] = Unpack(group.of[i]);
    }
    body(channel, LaneCount(channels_, channel), values);
  }

  Operand of_[operands];
  int64_t n_, channels_, first_;
  Group held_[held];
};

// Returns the sum over the threads of a team, in all of them. shared is [kWarp].
template <int threads>
__device__ float SumOfTeam(float value, float* shared) {
  if constexpr (threads == kWarp) {
    return WarpSum(value);
  } else {
    return BlockSum(value, shared);
  }
}

}  // namespace trainyard::engine::cuda
