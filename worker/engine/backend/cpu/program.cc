#include "worker/engine/backend/cpu/program.h"

#include <time.h>

#include <algorithm>
#include <cstring>

#include "common/base/check.h"

namespace trainyard::engine::cpu {
namespace {

constexpr int64_t kGuardBytes = 4 * kArenaAlignment;
constexpr uint8_t kGuardByte = 0x5a;

// Of the calling thread: what others do on the machine does not show.
double CpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

BufferId Program::AddArenaBuffer(int64_t bytes) {
  buffers_.push_back({Kind::kArena, nullptr, static_cast<int>(lifetimes_.size())});
  lifetimes_.push_back({bytes, -1, -1});
  return static_cast<BufferId>(buffers_.size()) - 1;
}

BufferId Program::AddFixedBuffer(void* data) {
  buffers_.push_back({Kind::kFixed, static_cast<std::byte*>(data), -1});
  return static_cast<BufferId>(buffers_.size()) - 1;
}

BufferId Program::AddInputBuffer() {
  buffers_.push_back({Kind::kInput, nullptr, -1});
  return static_cast<BufferId>(buffers_.size()) - 1;
}

dnnl::memory Program::Bound(const dnnl::engine& engine, const dnnl::memory::desc& desc,
                            BufferId buffer) {
  dnnl::memory memory(desc, engine, DNNL_MEMORY_NONE);
  const Buffer& at = buffers_[static_cast<size_t>(buffer)];
  if (at.kind == Kind::kFixed) {
    memory.set_data_handle(at.data);
  } else {
    bindings_.push_back({memory, buffer});
  }
  return memory;
}

void Program::Emit(Call call, const std::vector<BufferId>& buffers) {
  const int index = static_cast<int>(calls_.size());
  calls_.push_back(std::move(call));
  for (BufferId buffer : buffers) {
    if (buffer == kNoBuffer || buffers_[static_cast<size_t>(buffer)].kind != Kind::kArena) {
      continue;
    }
    Lifetime& lifetime =
        lifetimes_[static_cast<size_t>(buffers_[static_cast<size_t>(buffer)].lifetime)];
    lifetime.first = lifetime.first < 0 ? index : lifetime.first;
    lifetime.last = index;
  }
}

void Program::Plan(bool is_guarded, const Program* larger) {
  for (BufferId buffer : kept_) {
    const Buffer& at = buffers_[static_cast<size_t>(buffer)];
    if (at.kind == Kind::kArena) {
      lifetimes_[static_cast<size_t>(at.lifetime)].last = static_cast<int>(calls_.size());
    }
  }
  for (const Lifetime& lifetime : lifetimes_) {
    TY_CHECK(lifetime.first >= 0);
  }
  is_guarded_ = is_guarded;
  std::vector<Lifetime> placed = lifetimes_;
  for (Lifetime& lifetime : placed) {
    lifetime.bytes = AlignUp(lifetime.bytes) + (is_guarded ? kGuardBytes : 0);
  }
  arena_ = PlanArena(placed);
  if (larger != nullptr && arena_.bytes > larger->arena_.bytes && FitsInto(*larger)) {
    arena_ = larger->arena_;
  }
}

bool Program::FitsInto(const Program& larger) const {
  return std::equal(lifetimes_.begin(), lifetimes_.end(), larger.lifetimes_.begin(),
                    larger.lifetimes_.end(), [](const Lifetime& small, const Lifetime& large) {
                      return small.first == large.first && small.last == large.last &&
                             small.bytes <= large.bytes;
                    });
}

std::byte* Program::Guard(const Lifetime& lifetime) const {
  const auto index = static_cast<size_t>(&lifetime - lifetimes_.data());
  return base_ + arena_.offsets[index] + AlignUp(lifetime.bytes);
}

void Program::FillGuards(int call) {
  for (const Lifetime& lifetime : lifetimes_) {
    if (lifetime.first == call) {
      std::memset(Guard(lifetime), kGuardByte, kGuardBytes);
    }
  }
}

void Program::CheckGuards(int call) const {
  for (const Lifetime& lifetime : lifetimes_) {
    if (lifetime.first <= call && call <= lifetime.last) {
      const std::byte* guard = Guard(lifetime);
      TY_CHECK(std::all_of(guard, guard + kGuardBytes,
                           [](std::byte byte) { return byte == std::byte{kGuardByte}; }));
    }
  }
}

int64_t Program::unshared_bytes() const {
  int64_t bytes = 0;
  for (const Lifetime& lifetime : lifetimes_) {
    bytes += AlignUp(lifetime.bytes);
  }
  return bytes;
}

void Program::Bind(std::byte* arena) {
  base_ = arena;
  for (Buffer& buffer : buffers_) {
    if (buffer.kind == Kind::kArena) {
      buffer.data = arena + arena_.offsets[static_cast<size_t>(buffer.lifetime)];
    }
  }
  for (Binding& binding : bindings_) {
    const Buffer& buffer = buffers_[static_cast<size_t>(binding.buffer)];
    if (buffer.kind == Kind::kArena) {
      binding.memory.set_data_handle(buffer.data);
    }
  }
}

void Program::Run(const float* inputs, size_t calls, RunState& state,
                  const Executable::ReadyCallback& on_ready, std::vector<double>* seconds) {
  for (Buffer& buffer : buffers_) {
    if (buffer.kind == Kind::kInput) {
      // oneDNN knows no constant memory; nothing writes to the input.
      buffer.data = reinterpret_cast<std::byte*>(const_cast<float*>(inputs));
    }
  }
  for (Binding& binding : bindings_) {
    const Buffer& buffer = buffers_[static_cast<size_t>(binding.buffer)];
    if (buffer.kind == Kind::kInput) {
      binding.memory.set_data_handle(buffer.data);
    }
  }
  int64_t ready = 0;
  for (size_t i = 0; i < calls; ++i) {
    const Call& call = calls_[i];
    const double start = seconds == nullptr ? 0 : CpuSeconds();
    if (is_guarded_) {
      FillGuards(static_cast<int>(i));
    }
    call.run(state);
    if (is_guarded_) {
      CheckGuards(static_cast<int>(i));
    }
    if (seconds != nullptr) {
      (*seconds)[i] += CpuSeconds() - start;
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
