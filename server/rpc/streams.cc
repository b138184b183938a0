// Keeps the open streams alive, limits their number, and ends them all when the server stops.
#include "server/rpc/streams.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "server/rpc/limits.h"

namespace trainyard::rpc {

absl::Status Streams::Add(std::shared_ptr<StreamBase> stream, absl::string_view owner) {
  const absl::MutexLock lock(&mutex_);
  if (!ended_.ok()) return ended_;
  const auto count_of = [&](absl::string_view name) ABSL_SHARED_LOCKS_REQUIRED(mutex_) -> size_t {
    const auto found = open_by_owner_.find(std::string(name));
    return found == open_by_owner_.end() ? 0 : found->second;
  };
  const size_t own = count_of(owner);
  if (owner == kWorkers) {
    if (own >= kStreamsOfWorkersMax) {
      return runtime::ServerBusy(absl::StrCat(own, " streams of workers are open"));
    }
  } else if (own >= kStreamsOfUserMax) {
    return runtime::ServerBusy(absl::StrCat(own, " streams of ", owner, " are open"));
  } else if (const size_t all = streams_.size() - count_of(kWorkers); all >= kStreamsOfUsersMax) {
    return runtime::ServerBusy(absl::StrCat(all, " streams of users are open"));
  }
  StreamBase* key = stream.get();
  streams_[key] = {std::move(stream), std::string(owner)};
  ++open_by_owner_[std::string(owner)];
  return absl::OkStatus();
}

void Streams::Remove(StreamBase* stream) {
  Open removed;  // is destroyed after the lock is released
  const absl::MutexLock lock(&mutex_);
  const auto it = streams_.find(stream);
  if (it == streams_.end()) return;
  removed = std::move(it->second);
  streams_.erase(it);
  const auto count = open_by_owner_.find(removed.owner);
  if (--count->second == 0) open_by_owner_.erase(count);
}

void Streams::EndAll(const absl::Status& status) {
  std::vector<std::shared_ptr<StreamBase>> streams;
  {
    const absl::MutexLock lock(&mutex_);
    ended_ = status;
    for (const auto& [key, open] : streams_) streams.push_back(open.stream);
  }
  for (const auto& stream : streams) stream->End(status);
}

void Streams::EndOfUsers(absl::string_view owner, const absl::Status& status) {
  std::vector<std::shared_ptr<StreamBase>> streams;
  {
    const absl::MutexLock lock(&mutex_);
    for (const auto& [key, open] : streams_) {
      const bool is_meant = owner.empty() ? open.owner != kWorkers : open.owner == owner;
      if (is_meant) streams.push_back(open.stream);
    }
  }
  for (const auto& stream : streams) stream->End(status);
}

size_t Streams::size() const {
  const absl::MutexLock lock(&mutex_);
  return streams_.size();
}

}  // namespace trainyard::rpc
