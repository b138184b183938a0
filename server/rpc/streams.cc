// Keeps the open streams alive, limits their number, and ends them all when the server stops.
#include "server/rpc/streams.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "server/rpc/limits.h"

namespace trainyard::rpc {

absl::Status Streams::Add(std::shared_ptr<StreamBase> stream) {
  const absl::MutexLock lock(&mutex_);
  if (!ended_.ok()) return ended_;
  if (streams_.size() >= kStreamsMax) {
    return runtime::ServerBusy(absl::StrCat(streams_.size(), " streams are open"));
  }
  StreamBase* key = stream.get();
  streams_[key] = std::move(stream);
  return absl::OkStatus();
}

void Streams::Remove(StreamBase* stream) {
  std::shared_ptr<StreamBase> removed;  // is destroyed after the lock is released
  const absl::MutexLock lock(&mutex_);
  const auto it = streams_.find(stream);
  if (it == streams_.end()) return;
  removed = std::move(it->second);
  streams_.erase(it);
}

void Streams::EndAll(const absl::Status& status) {
  std::vector<std::shared_ptr<StreamBase>> streams;
  {
    const absl::MutexLock lock(&mutex_);
    ended_ = status;
    for (const auto& [key, stream] : streams_) streams.push_back(stream);
  }
  for (const auto& stream : streams) stream->End(status);
}

size_t Streams::size() const {
  const absl::MutexLock lock(&mutex_);
  return streams_.size();
}

}  // namespace trainyard::rpc
