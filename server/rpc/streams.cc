// Keeps the open streams alive, limits their number, and ends them all when the server stops.
#include "server/rpc/streams.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "server/rpc/limits.h"
#include "server/rpc/request.h"

namespace trainyard::rpc {

StreamOwner OwnerOf(const access::Caller& caller) {
  return {UserActor(caller.user), caller.real_user.empty() ? "" : UserActor(caller.real_user),
          caller.token, caller.rights_revision};
}

absl::Status Streams::Add(std::shared_ptr<StreamBase> stream, const StreamOwner& owner) {
  const absl::MutexLock lock(&mutex_);
  if (!ended_.ok()) return ended_;
  if (owner.name != kWorkers && owner.revision != revision_) {
    return absl::UnavailableError("rights have changed; open the stream again");
  }
  const auto count_of = [&](absl::string_view name) ABSL_SHARED_LOCKS_REQUIRED(mutex_) -> size_t {
    const auto found = open_by_owner_.find(std::string(name));
    return found == open_by_owner_.end() ? 0 : found->second;
  };
  const size_t own = count_of(owner.name);
  if (owner.name == kWorkers) {
    if (own >= kStreamsOfWorkersMax) {
      return runtime::ServerBusy(absl::StrCat(own, " streams of workers are open"));
    }
  } else if (own >= kStreamsOfUserMax) {
    return runtime::ServerBusy(absl::StrCat(own, " streams of ", owner.name, " are open"));
  } else if (const size_t all = streams_.size() - count_of(kWorkers); all >= kStreamsOfUsersMax) {
    return runtime::ServerBusy(absl::StrCat(all, " streams of users are open"));
  }
  StreamBase* key = stream.get();
  streams_[key] = {std::move(stream), owner};
  ++open_by_owner_[owner.name];
  return absl::OkStatus();
}

void Streams::Remove(StreamBase* stream) {
  Open removed;  // is destroyed after the lock is released
  const absl::MutexLock lock(&mutex_);
  const auto it = streams_.find(stream);
  if (it == streams_.end()) return;
  removed = std::move(it->second);
  streams_.erase(it);
  const auto count = open_by_owner_.find(removed.owner.name);
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

void Streams::EndIf(const std::function<bool(const StreamOwner&)>& is_meant,
                    const absl::Status& status) {
  std::vector<std::shared_ptr<StreamBase>> streams;
  {
    const absl::MutexLock lock(&mutex_);
    ++revision_;
    for (const auto& [key, open] : streams_) {
      if (open.owner.name != kWorkers && is_meant(open.owner)) streams.push_back(open.stream);
    }
  }
  for (const auto& stream : streams) stream->End(status);
}

void Streams::EndOfUsers(absl::string_view user, const absl::Status& status) {
  EndIf(
      [user](const StreamOwner& owner) {
        return user.empty() || owner.name == user || owner.opened_by == user;
      },
      status);
}

void Streams::EndOfToken(absl::string_view token, const absl::Status& status) {
  EndIf([token](const StreamOwner& owner) { return owner.token == token; }, status);
}

uint64_t Streams::revision() const {
  const absl::MutexLock lock(&mutex_);
  return revision_;
}

size_t Streams::size() const {
  const absl::MutexLock lock(&mutex_);
  return streams_.size();
}

}  // namespace trainyard::rpc
