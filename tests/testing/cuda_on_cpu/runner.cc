// Runs one block: chooses the next thread, and detects threads that wait forever.
#include "tests/testing/cuda_on_cpu/runner.h"

#include <bit>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <utility>

namespace trainyard::cuda_on_cpu {
namespace {

std::string Name(const std::source_location& where) {
  return std::string(where.file_name()) + ":" + std::to_string(where.line());
}

bool Same(const std::source_location& a, const std::source_location& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         std::strcmp(a.file_name(), b.file_name()) == 0;
}

std::string Name(const uint3& index) {
  return "(" + std::to_string(index.x) + ", " + std::to_string(index.y) + ", " +
         std::to_string(index.z) + ")";
}

uint3 Unflatten(uint64_t position, const dim3& size) {
  return {static_cast<unsigned>(position % size.x),
          static_cast<unsigned>(position / size.x % size.y),
          static_cast<unsigned>(position / size.x / size.y)};
}

uint64_t Count(const dim3& size) {
  return uint64_t{size.x} * size.y * size.z;
}

Runner& ThisRunner() {
  thread_local Runner runner;
  return runner;
}

}  // namespace

constinit thread_local Place place;

void RunGrid(const Grid& grid, const std::function<void()>& thread) {
  ThisRunner().Run(grid, thread);
}
void* DynamicShared() {
  return ThisRunner().DynamicShared();
}
int WaitForBlock(BarrierKind kind, bool predicate, const std::source_location& where) {
  return ThisRunner().WaitForBlock(kind, predicate, where);
}
uint64_t WaitForWarp(const WarpCall& call) {
  return ThisRunner().WaitForWarp(call);
}

void CheckAligned(const void* address, size_t bytes) {
  ThisRunner().CheckAligned(address, bytes);
}

void Runner::Run(const Grid& grid, const std::function<void()>& thread) {
  grid_ = &grid;
  body_ = &thread;
  random_ = Random(grid.seed);
  place.block_size = grid.block_size;
  place.grid_size = grid.grid_size;
  threads_.assign(Count(grid.block_size), Thread{});
  for (size_t i = 0; i < threads_.size(); ++i) {
    threads_[i].index = Unflatten(i, grid.block_size);
  }
  // It has exactly this size, so that the address sanitizer notices a kernel that leaves it.
  dynamic_shared_.reset(
      grid.dynamic_shared_bytes == 0 ? nullptr : new unsigned char[grid.dynamic_shared_bytes]);
  const uint64_t blocks = Count(grid.grid_size);
  const Permutation order(blocks, random_);
  for (uint64_t i = 0; i < blocks; ++i) {
    RunBlock(Unflatten(order.At(i), grid.grid_size));
  }
  dynamic_shared_ = nullptr;
  grid_ = nullptr;
}

void Runner::RunBlock(uint3 block) {
  block_ = block;
  place.block = block;
  if (dynamic_shared_ != nullptr) {
    std::memset(dynamic_shared_.get(), 0xFF, grid_->dynamic_shared_bytes);
  }
  for (Thread& thread : threads_) {
    thread.state = State::kNotStarted;
  }
  order_.emplace(threads_.size(), random_);
  started_ = 0;
  finished_ = 0;
  main_.SwitchTo(IdleFiber());
}

void Runner::TakeThreads() {
  Fiber& self = Fiber::Current();
  for (;;) {
    while (started_ < threads_.size() && (ready_.empty() || random_.Coin())) {
      running_ = static_cast<unsigned>(order_->At(started_++));
      Thread& thread = threads_[running_];
      thread.state = State::kRunning;
      thread.fiber = &self;
      place.thread = thread.index;
      (*body_)();
      thread.state = State::kFinished;
      last_finished_ = running_;
      ++finished_;
      if (barrier_.arrived > 0) {
        Fail(Describe(running_) + ", and others wait at the barrier at " + Name(barrier_.where));
      }
    }
    idle_.push_back(&self);
    SwitchFrom(self);
  }
}

Fiber& Runner::IdleFiber() {
  if (idle_.empty()) {
    fibers_.push_back(std::make_unique<Fiber>(
        [](void* runner) { static_cast<Runner*>(runner)->TakeThreads(); }, this));
    return *fibers_.back();
  }
  Fiber* fiber = idle_.back();
  idle_.pop_back();
  return *fiber;
}

void Runner::SwitchFrom(Fiber& self) {
  Fiber* next = &main_;
  const bool can_start = started_ < threads_.size();
  if (!ready_.empty() && (!can_start || random_.Coin())) {
    std::swap(ready_[random_.Below(ready_.size())], ready_.back());
    running_ = ready_.back();
    ready_.pop_back();
    Thread& thread = threads_[running_];
    thread.state = State::kRunning;
    place.thread = thread.index;
    next = thread.fiber;
  } else if (can_start) {
    next = &IdleFiber();
  } else if (finished_ < threads_.size()) {
    FailDeadlock();
  }
  if (next != &self) {
    self.SwitchTo(*next);
  }
}

void Runner::Wait() {
  SwitchFrom(*threads_[running_].fiber);
}

void Runner::MaybeWait() {
  if (random_.Coin()) {
    ready_.push_back(running_);
    Wait();
  }
}

void* Runner::DynamicShared() {
  if (dynamic_shared_ == nullptr) {
    Fail(Describe(running_) + " and uses dynamic shared memory, of which the launch gave none");
  }
  return dynamic_shared_.get();
}

void Runner::CheckAligned(const void* address, size_t bytes) const {
  const auto number = reinterpret_cast<uintptr_t>(address);
  if (number % bytes != 0) {
    Fail(Describe(running_) + " and accesses " + std::to_string(bytes) + " bytes that begin " +
         std::to_string(number % bytes) + " behind a multiple of their number");
  }
}

int Runner::WaitForBlock(BarrierKind kind, bool predicate, const std::source_location& where) {
  Thread& self = threads_[running_];
  const unsigned self_index = running_;
  if (finished_ > 0) {
    Fail(Describe(running_) + " and reaches the barrier at " + Name(where) + ", which " +
         Describe(last_finished_) + " without");
  }
  if (barrier_.arrived == 0) {
    barrier_ = {kind, where, 0, 0};
  } else if (barrier_.kind != kind || !Same(barrier_.where, where)) {
    Fail(Describe(running_) + " and reaches the barrier at " + Name(where) +
         " while others wait at that at " + Name(barrier_.where));
  }
  self.state = State::kAtBarrier;
  barrier_.count += predicate ? 1 : 0;
  if (++barrier_.arrived < threads_.size()) {
    Wait();
    return static_cast<int>(threads_[self_index].result);
  }
  const unsigned all = static_cast<unsigned>(threads_.size());
  const unsigned result = kind == BarrierKind::kCount ? barrier_.count
                          : kind == BarrierKind::kAnd ? (barrier_.count == all ? 1U : 0U)
                                                      : (barrier_.count > 0 ? 1U : 0U);
  barrier_.arrived = 0;
  for (unsigned i = 0; i < all; ++i) {
    threads_[i].result = result;
    if (i != self_index) {
      ready_.push_back(i);
    }
  }
  self.state = State::kRunning;
  MaybeWait();
  return static_cast<int>(result);
}

std::string Runner::Describe(unsigned thread) const {
  const Thread& described = threads_[thread];
  std::string name = "thread " + Name(described.index);
  switch (described.state) {
    case State::kNotStarted:
      return name + " has not started";
    case State::kRunning:
      return name + " runs";
    case State::kAtBarrier:
      return name + " waits at the barrier at " + Name(barrier_.where);
    case State::kInWarpCall:
      return name + " waits for its warp at " + Name(described.call.where);
    case State::kFinished:
      return name + " has finished";
  }
  return name;
}

void Runner::Fail(const std::string& what) const {
  std::cerr << "CUDA on CPU: " << what << ". In block " << Name(block_)
            << " of the kernel launched at " << Name(grid_->where) << std::endl;
  std::abort();
}

void Runner::FailDeadlock() const {
  // All threads have ended or wait for lanes. The message names one that waits and one that it
  // waits for.
  for (unsigned i = 0; i < threads_.size(); ++i) {
    if (threads_[i].state != State::kInWarpCall) {
      continue;
    }
    const unsigned first = i / kWarpLanes * kWarpLanes;
    for (const WarpGroup& group : warp_groups_[i / kWarpLanes]) {
      const unsigned missing = group.call.mask & ~group.arrived;
      if ((group.arrived >> (i - first) & 1) != 0) {
        Fail(Describe(i) + " for ever, because " +
             Describe(first + static_cast<unsigned>(std::countr_zero(missing))));
      }
    }
  }
  Fail("no thread can go on");
}

}  // namespace trainyard::cuda_on_cpu
