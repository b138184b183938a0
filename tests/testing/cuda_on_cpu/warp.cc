// Operations over the lanes of a warp: votes and shuffles.
#include <bit>

#include "tests/testing/cuda_on_cpu/runner.h"

namespace trainyard::cuda_on_cpu {
namespace {

bool Same(const WarpCall& a, const WarpCall& b) {
  return a.kind == b.kind && a.mask == b.mask && a.value_bytes == b.value_bytes &&
         a.width == b.width;
}

// Returns the lane that `lane` reads, which is itself if the call leads out of its group. With
// kShuffleXor, later groups may read earlier ones (PTX ISA, shfl.sync).
unsigned Source(unsigned lane, const WarpCall& call) {
  const unsigned first = lane / call.width * call.width;
  const unsigned last = first + call.width - 1;
  switch (call.kind) {
    case WarpKind::kShuffle:
      return first + call.lane % call.width;
    case WarpKind::kShuffleUp:
      return lane >= first + call.lane ? lane - call.lane : lane;
    case WarpKind::kShuffleDown:
      return lane + call.lane <= last ? lane + call.lane : lane;
    case WarpKind::kShuffleXor:
      return (lane ^ call.lane) <= last ? lane ^ call.lane : lane;
    case WarpKind::kSync:
    case WarpKind::kBallot:
      return lane;
  }
  return lane;
}

}  // namespace

uint64_t Runner::WaitForWarp(const WarpCall& call) {
  const unsigned self = running_;
  const unsigned lane = self - FirstLane();
  if ((call.mask >> lane & 1) == 0) {
    Fail(Describe(self) + " and is no lane of the mask that it gives at " +
         std::to_string(call.where.line()));
  }
  if (!std::has_single_bit(call.width) || call.width > kWarpLanes) {
    Fail(Describe(self) + " and shuffles a width that is no power of 2 up to 32");
  }
  threads_[self].call = call;
  threads_[self].state = State::kInWarpCall;
  WarpGroup& group = Join(call);
  group.arrived |= 1U << lane;
  if (group.arrived != call.mask) {
    Wait();
    return threads_[self].result;
  }
  Complete(group);
  auto& groups = warp_groups_[FirstLane() / kWarpLanes];
  std::swap(group, groups.back());
  groups.pop_back();
  threads_[self].state = State::kRunning;
  MaybeWait();
  return threads_[self].result;
}

Runner::WarpGroup& Runner::Join(const WarpCall& call) {
  const unsigned first = FirstLane();
  auto& groups = warp_groups_[first / kWarpLanes];
  for (WarpGroup& group : groups) {
    if (Same(group.call, call)) {
      return group;
    }
  }
  // Two lanes that wait for each other in different calls would wait forever.
  const unsigned self = 1U << (running_ - first);
  for (const WarpGroup& group : groups) {
    if ((group.arrived & call.mask) != 0 && (group.call.mask & self) != 0) {
      const unsigned other =
          first + static_cast<unsigned>(std::countr_zero(group.arrived & call.mask));
      Fail(Describe(running_) +
           " in another call or with another mask than a lane of its mask: " + Describe(other));
    }
  }
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if ((call.mask >> lane & 1) == 0) {
      continue;
    }
    if (first + lane >= threads_.size()) {
      Fail(Describe(running_) + " and names lane " + std::to_string(lane) +
           ", which the block does not have");
    }
    if (threads_[first + lane].state == State::kFinished) {
      Fail(Describe(running_) + " and names a lane that is gone: " + Describe(first + lane));
    }
  }
  groups.push_back({call, 0});
  return groups.back();
}

void Runner::Complete(const WarpGroup& group) {
  const unsigned first = FirstLane();
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if ((group.arrived >> lane & 1) != 0) {
      threads_[first + lane].result = ResultOf(lane, group);
      if (first + lane != running_) {
        ready_.push_back(first + lane);
      }
    }
  }
}

uint64_t Runner::ResultOf(unsigned lane, const WarpGroup& group) {
  const unsigned first = FirstLane();
  if (group.call.kind == WarpKind::kBallot) {
    uint64_t votes = 0;
    for (unsigned other = 0; other < kWarpLanes; ++other) {
      if ((group.arrived >> other & 1) != 0) {
        votes |= threads_[first + other].call.value << other;
      }
    }
    return votes;
  }
  const unsigned source = Source(lane, threads_[first + lane].call);
  if ((group.arrived >> source & 1) == 0) {
    Fail(Describe(first + lane) + " and reads lane " + std::to_string(source) +
         ", which takes no part");
  }
  return threads_[first + source].call.value;
}

}  // namespace trainyard::cuda_on_cpu
