// Lays out the buffers of a program by the calls that touch them.
#include "worker/engine/backend/buffer_plan.h"

#include <algorithm>

#include "common/base/check.h"

namespace trainyard::engine {

BufferId BufferPlan::AddArena(int64_t bytes) {
  buffers_.push_back({nullptr, static_cast<int>(lifetimes_.size())});
  lifetimes_.push_back({bytes, -1, -1});
  return static_cast<BufferId>(buffers_.size()) - 1;
}

BufferId BufferPlan::AddFixed(void* data) {
  buffers_.push_back({static_cast<std::byte*>(data), -1});
  return static_cast<BufferId>(buffers_.size()) - 1;
}

void BufferPlan::Touch(int call, absl::Span<const BufferId> buffers) {
  for (const BufferId buffer : buffers) {
    if (buffer == kNoBuffer || !is_arena(buffer)) {
      continue;
    }
    Lifetime& lifetime = lifetimes_[static_cast<size_t>(at(buffer).lifetime)];
    lifetime.first = lifetime.first < 0 ? call : lifetime.first;
    lifetime.last = call;
  }
}

void BufferPlan::Plan(int calls, bool is_guarded, const BufferPlan* larger) {
  for (const BufferId buffer : kept_) {
    if (is_arena(buffer)) {
      lifetimes_[static_cast<size_t>(at(buffer).lifetime)].last = calls;
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

bool BufferPlan::FitsInto(const BufferPlan& larger) const {
  return std::equal(lifetimes_.begin(), lifetimes_.end(), larger.lifetimes_.begin(),
                    larger.lifetimes_.end(), [](const Lifetime& small, const Lifetime& large) {
                      return small.first == large.first && small.last == large.last &&
                             small.bytes <= large.bytes;
                    });
}

void BufferPlan::Bind(std::byte* arena) {
  base_ = arena;
  for (Buffer& buffer : buffers_) {
    if (buffer.lifetime >= 0) {
      buffer.data = arena + arena_.offsets[static_cast<size_t>(buffer.lifetime)];
    }
  }
}

int64_t BufferPlan::unshared_bytes() const {
  int64_t bytes = 0;
  for (const Lifetime& lifetime : lifetimes_) {
    bytes += AlignUp(lifetime.bytes);
  }
  return bytes;
}

template <class Wanted>
std::vector<std::byte*> BufferPlan::Guards(const Wanted& wanted) const {
  std::vector<std::byte*> guards;
  for (size_t i = 0; i < lifetimes_.size(); ++i) {
    if (wanted(lifetimes_[i])) {
      guards.push_back(base_ + arena_.offsets[i] + AlignUp(lifetimes_[i].bytes));
    }
  }
  return guards;
}

std::vector<std::byte*> BufferPlan::NewGuards(int call) const {
  return Guards([call](const Lifetime& lifetime) { return lifetime.first == call; });
}

std::vector<std::byte*> BufferPlan::LiveGuards(int call) const {
  return Guards(
      [call](const Lifetime& lifetime) { return lifetime.first <= call && call <= lifetime.last; });
}

}  // namespace trainyard::engine
