// Runs the calls of a program in order, and guards its buffers in tests.
#include "worker/engine/backend/cpu/program.h"

#include <time.h>

#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "common/base/errors.h"

namespace trainyard::engine::cpu {
namespace {

// Returns the CPU time of the calling thread, which other processes do not affect.
double CpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

BufferId Program::AddInputBuffer() {
  inputs_.push_back(buffers_.AddFixed(nullptr));
  return inputs_.back();
}

dnnl::memory Program::Bound(const dnnl::engine& engine, const dnnl::memory::desc& desc,
                            BufferId buffer, int64_t offset) {
  dnnl::memory memory(desc, engine, DNNL_MEMORY_NONE);
  // Buffers at fixed addresses need not be bound again.
  if (!buffers_.is_arena(buffer) && buffers_.ptr<void>(buffer) != nullptr) {
    memory.set_data_handle(buffers_.ptr<std::byte>(buffer) + offset);
  } else {
    bindings_.push_back({memory, buffer, offset});
  }
  return memory;
}

void Program::FillGuards(int call) {
  for (std::byte* guard : buffers_.NewGuards(call)) {
    std::memset(guard, kGuardByte, kGuardBytes);
  }
}

void Program::CheckGuards(int call) const {
  for (const std::byte* guard : buffers_.LiveGuards(call)) {
    TY_CHECK(std::all_of(guard, guard + kGuardBytes,
                         [](std::byte byte) { return byte == std::byte{kGuardByte}; }));
  }
}

void Program::Bind(std::byte* arena) {
  if (arena == bound_) return;
  bound_ = arena;
  buffers_.Bind(arena);
  for (Binding& binding : bindings_) {
    if (buffers_.is_arena(binding.buffer)) {
      binding.memory.set_data_handle(buffers_.ptr<std::byte>(binding.buffer) + binding.offset);
    }
  }
}

void Program::Run(const float* inputs, size_t calls, RunState& state,
                  const Executable::ReadyCallback& on_ready, std::vector<double>* seconds,
                  size_t first) {
  for (const BufferId input : inputs_) {
    // oneDNN has no constant memory, but nothing writes to the input.
    buffers_.SetFixed(input, const_cast<float*>(inputs));
  }
  for (Binding& binding : bindings_) {
    if (!buffers_.is_arena(binding.buffer)) {
      binding.memory.set_data_handle(buffers_.ptr<std::byte>(binding.buffer) + binding.offset);
    }
  }
  int64_t ready = 0;
  for (size_t i = first; i < calls; ++i) {
    const Call& call = calls_[i];
    const double start = seconds == nullptr ? 0 : CpuSeconds();
    if (buffers_.is_guarded()) {
      FillGuards(static_cast<int>(i));
    }
    call.run(state);
    if (buffers_.is_guarded()) {
      CheckGuards(static_cast<int>(i));
    }
    if (seconds != nullptr) {
      (*seconds)[i] += CpuSeconds() - start;
    }
    if (!state.status.ok()) {
      state.status = Annotate(state.status, call.name);
      return;
    }
    if (call.ready > ready) {
      if (on_ready) {
        on_ready(ready, call.ready - ready);
      }
      ready = call.ready;
    }
  }
}

}  // namespace trainyard::engine::cpu
