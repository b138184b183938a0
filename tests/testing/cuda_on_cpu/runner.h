// Defines the state of a running block: its threads, and what they wait for.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include "tests/testing/cuda_on_cpu/fiber.h"
#include "tests/testing/cuda_on_cpu/grid.h"
#include "tests/testing/cuda_on_cpu/random.h"

namespace trainyard::cuda_on_cpu {

// Each thread of the host has one, which keeps the stacks from one kernel to the next.
//
// A fiber runs threads of the block one after the other, as long as they end without waiting. So a
// kernel without barriers needs one stack, and a block needs as many as it has threads waiting at
// once.
class Runner {
 public:
  void Run(const Grid& grid, const std::function<void()>& thread);

  void* DynamicShared();
  int WaitForBlock(BarrierKind kind, bool predicate, const std::source_location& where);
  uint64_t WaitForWarp(const WarpCall& call);
  void CheckAligned(const void* address, size_t bytes) const;

 private:
  enum class State { kNotStarted, kRunning, kAtBarrier, kInWarpCall, kFinished };
  struct Thread {
    uint3 index = {0, 0, 0};
    State state = State::kNotStarted;
    Fiber* fiber = nullptr;
    // The call with which it waits for its warp, and then the result.
    WarpCall call = {};
    uint64_t result = 0;
  };
  // The lanes of a warp that wait for the rest of a mask.
  struct WarpGroup {
    WarpCall call;
    unsigned arrived = 0;
  };
  // The barrier of the block that some threads have reached.
  struct Barrier {
    BarrierKind kind = BarrierKind::kSync;
    std::source_location where;
    unsigned arrived = 0;
    unsigned count = 0;
  };

  void RunBlock(uint3 block);
  // The body of a fiber.
  void TakeThreads();
  // Lets another thread run on another fiber, or ends the block.
  void SwitchFrom(Fiber& self);
  // Stops the running thread until it is in `ready_` and drawn.
  void Wait();
  // A coin decides whether the running thread continues at once, or after others.
  void MaybeWait();
  Fiber& IdleFiber();

  unsigned FirstLane() const { return running_ / kWarpLanes * kWarpLanes; }
  WarpGroup& Join(const WarpCall& call);
  void Complete(const WarpGroup& group);
  uint64_t ResultOf(unsigned lane, const WarpGroup& group);

  // These end the process.
  [[noreturn]] void Fail(const std::string& what) const;
  [[noreturn]] void FailDeadlock() const;
  std::string Describe(unsigned thread) const;

  const Grid* grid_ = nullptr;
  const std::function<void()>* body_ = nullptr;
  Random random_{1};
  uint3 block_ = {0, 0, 0};
  std::unique_ptr<unsigned char[]> dynamic_shared_;

  std::vector<Thread> threads_;
  std::optional<Permutation> order_;
  unsigned started_ = 0;
  unsigned finished_ = 0;
  unsigned last_finished_ = 0;
  unsigned running_ = 0;
  std::vector<unsigned> ready_;
  Barrier barrier_;
  std::array<std::vector<WarpGroup>, 1024 / kWarpLanes> warp_groups_;

  Fiber main_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
};

}  // namespace trainyard::cuda_on_cpu
