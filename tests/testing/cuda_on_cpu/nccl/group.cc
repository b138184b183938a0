// Implements how the ranks of a gang meet in calls and in collectives.
#include "tests/testing/cuda_on_cpu/nccl/group.h"

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

void Group::Execute(int rank, const Part& part) {
  std::unique_lock lock(mutex_);
  Rank& me = members_[static_cast<size_t>(rank)];
  if (me.left || me.error != ncclSuccess) return;
  me.part = part;
  const int64_t turn = turn_;
  if (++arrived_ == ranks_) {
    arrived_ = 0;
    Compute();
    ++turn_;
    changed_.notify_all();
    return;
  }
  changed_.wait_for(lock, kPatience, [&] { return turn_ != turn || SomeoneIsGone(); });
  if (turn_ != turn) return;
  // Its memory may be released soon, so it must no longer be found here.
  --arrived_;
  if (me.error == ncclSuccess && !me.left) me.error = ncclRemoteError;
  changed_.notify_all();
}

template <typename Done>
bool Group::AwaitPeer(std::unique_lock<std::mutex>& lock, int peer, Done done) {
  const Rank& other = members_[static_cast<size_t>(peer)];
  changed_.wait_for(lock, kPatience,
                    [&] { return done() || other.left || other.error != ncclSuccess; });
  return done();
}

void Group::ExecuteMessages(int rank, const std::vector<Message>& messages) {
  std::unique_lock lock(mutex_);
  Rank& me = members_[static_cast<size_t>(rank)];
  if (me.left || me.error != ncclSuccess) return;
  for (const Message& message : messages) {
    if (message.in != nullptr) WayOf(rank, message.peer).shown.push_back(message);
  }
  changed_.notify_all();
  bool is_whole = true;
  for (const Message& message : messages) {
    if (message.out == nullptr) continue;
    std::deque<Message>& shown = WayOf(message.peer, rank).shown;
    is_whole = is_whole && AwaitPeer(lock, message.peer, [&] { return !shown.empty(); });
    // On hardware anything may happen when sizes differ. Here it is an error.
    is_whole = is_whole && shown.front().count == message.count;
    if (!is_whole) break;
    std::copy_n(shown.front().in, message.count, message.out);
    shown.pop_front();
    changed_.notify_all();
  }
  for (const Message& message : messages) {
    if (message.in == nullptr) continue;
    std::deque<Message>& shown = WayOf(rank, message.peer).shown;
    is_whole = is_whole && AwaitPeer(lock, message.peer, [&] { return shown.empty(); });
    // Its memory may be released soon, so it must no longer be found here.
    shown.clear();
  }
  if (!is_whole && me.error == ncclSuccess && !me.left) me.error = ncclRemoteError;
  changed_.notify_all();
}

void Group::Compute() {
  const size_t count = members_[0].part.count;
  for (const Rank& member : members_) {
    if (member.part.count == count) continue;
    // On hardware anything may happen. Here it is an error.
    for (Rank& each : members_) each.error = ncclInvalidUsage;
    return;
  }
  std::vector<float> sums(count);
  for (const Rank& member : members_) {
    for (size_t i = 0; i < count; ++i) sums[i] += member.part.in[i];
  }
  for (const Rank& member : members_) std::copy(sums.begin(), sums.end(), member.part.out);
}

}  // namespace trainyard::cuda_on_cpu::nccl
