// Implements how the ranks of a gang meet in calls and in collectives.
#include "tests/testing/cuda_on_cpu/nccl/group.h"

#include <cuda_bf16.h>

#include <algorithm>
#include <chrono>
#include <map>

namespace trainyard::cuda_on_cpu::nccl {
namespace {

// A collective whose peers never come ends with an error, rather than when the test times out.
constexpr std::chrono::seconds kPatience(20);

std::mutex groups_mutex;
std::map<std::string, std::weak_ptr<Group>>& Groups() {
  static auto* groups = new std::map<std::string, std::weak_ptr<Group>>;
  return *groups;
}

}  // namespace

Group::Group(int ranks)
    : ranks_(ranks),
      members_(static_cast<size_t>(ranks)),
      ways_(static_cast<size_t>(ranks) * static_cast<size_t>(ranks)) {}

std::shared_ptr<Group> Group::OfId(const ncclUniqueId& id, int ranks) {
  const std::string key(id.internal, sizeof(id.internal));
  const std::lock_guard lock(groups_mutex);
  std::weak_ptr<Group>& known = Groups()[key];
  std::shared_ptr<Group> group = known.lock();
  if (group == nullptr) {
    group = std::make_shared<Group>(ranks);
    known = group;
  }
  return group->ranks() == ranks ? group : nullptr;
}

ncclResult_t Group::Join(int rank, int device) {
  const std::lock_guard lock(mutex_);
  Rank& me = members_[static_cast<size_t>(rank)];
  if (me.joined) return ncclInvalidArgument;
  me.joined = true;
  me.device = device;
  const bool is_shared = std::count_if(members_.begin(), members_.end(), [&](const Rank& other) {
                           return other.joined && other.device == device;
                         }) > 1;
  // The ranks notice the mistake when they compare their arguments, so all ranks learn of it.
  if (is_shared) {
    for (Rank& member : members_) member.error = ncclInvalidUsage;
  }
  changed_.notify_all();
  return ncclSuccess;
}

void Group::Leave(int rank) {
  const std::lock_guard lock(mutex_);
  members_[static_cast<size_t>(rank)].left = true;
  Withdraw(rank);
  for (int peer = 0; peer < ranks_; ++peer) WayOf(rank, peer).shown.clear();
  changed_.notify_all();
}

void Group::Call(int rank) {
  const std::lock_guard lock(mutex_);
  ++members_[static_cast<size_t>(rank)].calls;
  changed_.notify_all();
}

void Group::CallMessages(int rank, const std::vector<Message>& messages) {
  const std::lock_guard lock(mutex_);
  for (const Message& message : messages) {
    message.in != nullptr ? ++WayOf(rank, message.peer).sends_called
                          : ++WayOf(message.peer, rank).receives_called;
  }
  changed_.notify_all();
}

ncclResult_t Group::StateLocked(int rank) const {
  const Rank& me = members_[static_cast<size_t>(rank)];
  if (me.error != ncclSuccess) return me.error;
  for (const Rank& other : members_) {
    if (!other.joined || other.calls < me.calls) return ncclInProgress;
  }
  // NCCL connects two ranks with their first messages. Later messages are done at once.
  for (int peer = 0; peer < ranks_; ++peer) {
    const Way& out = WayOf(rank, peer);
    const Way& in = WayOf(peer, rank);
    if ((out.sends_called > 0 && out.receives_called == 0) ||
        (in.receives_called > 0 && in.sends_called == 0)) {
      return ncclInProgress;
    }
  }
  return ncclSuccess;
}

ncclResult_t Group::State(int rank) {
  const std::lock_guard lock(mutex_);
  return StateLocked(rank);
}

ncclResult_t Group::AwaitState(int rank) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kPatience, [&] { return StateLocked(rank) != ncclInProgress; });
  const ncclResult_t state = StateLocked(rank);
  return state == ncclInProgress ? ncclSystemError : state;
}

void Group::Break(int rank, ncclResult_t error) {
  const std::lock_guard lock(mutex_);
  members_[static_cast<size_t>(rank)].error = error;
  changed_.notify_all();
}

bool Group::SomeoneIsGone() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const Rank& member) { return member.left || member.error != ncclSuccess; });
}

bool Group::Execute(int rank, const Part& part, Progress& progress) {
  const std::lock_guard lock(mutex_);
  Rank& me = members_[static_cast<size_t>(rank)];
  if (!progress.has_begun) {
    if (me.left || me.error != ncclSuccess) return true;
    progress = {
        .has_begun = true, .deadline = std::chrono::steady_clock::now() + kPatience, .turn = turn_};
    me.part = part;
    me.has_arrived = true;
    const bool is_last = std::all_of(members_.begin(), members_.end(),
                                     [](const Rank& member) { return member.has_arrived; });
    if (is_last) {
      Compute();
      for (Rank& member : members_) member.has_arrived = false;
      ++turn_;
      changed_.notify_all();
    }
  }
  if (turn_ == progress.turn) {
    if (!SomeoneIsGone() && std::chrono::steady_clock::now() < progress.deadline) return false;
    Withdraw(rank);
    if (me.error == ncclSuccess && !me.left) me.error = ncclRemoteError;
    changed_.notify_all();
  }
  progress = {};
  return true;
}

void Group::Withdraw(int rank) {
  members_[static_cast<size_t>(rank)].has_arrived = false;
  members_[static_cast<size_t>(rank)].part = {};
}

bool Group::IsInVain(int rank, int peer, const Progress& progress) const {
  for (const int of : {rank, peer}) {
    const Rank& member = members_[static_cast<size_t>(of)];
    if (member.left || member.error != ncclSuccess) return true;
  }
  return std::chrono::steady_clock::now() >= progress.deadline;
}

std::optional<bool> Group::TakeMessages(int rank, const std::vector<Message>& messages,
                                        Progress& progress) {
  for (; progress.received < messages.size(); ++progress.received) {
    const Message& message = messages[progress.received];
    if (message.out == nullptr) continue;
    std::deque<Message>& shown = WayOf(message.peer, rank).shown;
    if (shown.empty()) {
      if (IsInVain(rank, message.peer, progress)) return false;
      return std::nullopt;
    }
    // On hardware anything may happen when sizes differ. Here it is an error.
    if (shown.front().count != message.count) return false;
    std::copy_n(shown.front().in, message.count, message.out);
    shown.pop_front();
    changed_.notify_all();
  }
  for (const Message& message : messages) {
    if (message.in == nullptr || WayOf(rank, message.peer).shown.empty()) continue;
    if (IsInVain(rank, message.peer, progress)) return false;
    return std::nullopt;
  }
  return true;
}

bool Group::ExecuteMessages(int rank, const std::vector<Message>& messages, Progress& progress) {
  const std::lock_guard lock(mutex_);
  Rank& me = members_[static_cast<size_t>(rank)];
  if (!progress.has_begun) {
    if (me.left || me.error != ncclSuccess) return true;
    progress = {.has_begun = true, .deadline = std::chrono::steady_clock::now() + kPatience};
    for (const Message& message : messages) {
      if (message.in != nullptr) WayOf(rank, message.peer).shown.push_back(message);
    }
  }
  const std::optional<bool> taken = TakeMessages(rank, messages, progress);
  if (!taken.has_value()) return false;
  if (!*taken) {
    for (const Message& message : messages) {
      // Its memory may be released soon, so it must no longer be found here.
      if (message.in != nullptr) WayOf(rank, message.peer).shown.clear();
    }
    if (me.error == ncclSuccess && !me.left) me.error = ncclRemoteError;
  }
  progress = {};
  changed_.notify_all();
  return true;
}

void Group::Compute() {
  const Part& first = members_[0].part;
  for (const Rank& member : members_) {
    if (member.part.count == first.count && member.part.type == first.type) continue;
    // On hardware anything may happen. Here it is an error.
    for (Rank& each : members_) each.error = ncclInvalidUsage;
    return;
  }
  if (first.type == ncclBfloat16) return SumAs<__nv_bfloat16>(first.count);
  SumAs<float>(first.count);
}

template <typename Element>
void Group::SumAs(size_t count) {
  std::vector<Element> sums(count);
  for (const Rank& member : members_) {
    const auto* const in = static_cast<const Element*>(member.part.in);
    for (size_t i = 0; i < count; ++i) {
      sums[i] = Element(static_cast<float>(sums[i]) + static_cast<float>(in[i]));
    }
  }
  for (const Rank& member : members_) {
    std::copy(sums.begin(), sums.end(), static_cast<Element*>(member.part.out));
  }
}

}  // namespace trainyard::cuda_on_cpu::nccl
