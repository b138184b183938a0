// Streams that miss the same message at once each read it, so that no stream waits for another.
#include "server/http/event_cache.h"

#include <utility>

#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "server/http/event_resume.h"
#include "server/http/json.h"
#include "server/http/rpc_call.h"

namespace trainyard::http {
namespace {

// At least so many messages fit in.
constexpr size_t kMessagesMin = 100;

// Returns the bytes of the message and the name of the type; empty if they cannot be had.
std::string KeyOf(const google::protobuf::Descriptor& type, const grpc::ByteBuffer& message) {
  grpc::Slice slice;
  if (!message.DumpToSingleSlice(&slice).ok()) return "";
  std::string key(reinterpret_cast<const char*>(slice.begin()), slice.size());
  key += type.full_name();
  return key;
}

size_t BytesOf(const EventCache::Events& events) {
  size_t bytes = 0;
  for (const auto& event : events) bytes += event->message->SpaceUsedLong() + event->json.size();
  return bytes;
}

}  // namespace

// Streams group the same changes in different ways, so each change is looked for by itself.
absl::StatusOr<EventCache::Events> EventCache::Read(const google::protobuf::Descriptor& type,
                                                    grpc::ByteBuffer message) {
  auto read = NewMessage(type);
  TY_RETURN_IF_ERROR(FromBuffer(message, *read));
  auto parts = TakeApart(std::move(read));
  Events events;
  if (parts.size() == 1) {
    TY_ASSIGN_OR_RETURN(std::string json, ToJson(*parts[0]));
    events.push_back(
        std::make_shared<const StreamEvent>(StreamEvent{std::move(parts[0]), std::move(json)}));
    return events;
  }
  for (const auto& part : parts) {
    TY_ASSIGN_OR_RETURN(Events of_part, EventsOf(type, ToBuffer(*part)));
    events.push_back(std::move(of_part.front()));
  }
  return events;
}

absl::StatusOr<EventCache::Events> EventCache::EventsOf(const google::protobuf::Descriptor& type,
                                                        const grpc::ByteBuffer& message) {
  std::string key = message.Length() <= bytes_max_ / kMessagesMin ? KeyOf(type, message) : "";
  const bool is_kept = !key.empty();
  if (is_kept) {
    const MutexLock lock(&mutex_);
    const auto found = kept_.find(key);
    if (found != kept_.end()) return found->second.events;
  }
  TY_ASSIGN_OR_RETURN(Events events, Read(type, message));
  if (!is_kept) return events;
  const size_t bytes = key.size() + BytesOf(events);
  const MutexLock lock(&mutex_);
  const auto [entry, is_new] = kept_.try_emplace(std::move(key), Kept{events, bytes});
  if (!is_new) return events;
  keys_.push_back(&entry->first);
  bytes_ += bytes;
  while (bytes_ > bytes_max_) {
    const auto oldest = kept_.find(*keys_.front());
    keys_.pop_front();
    bytes_ -= oldest->second.bytes;
    kept_.erase(oldest);
  }
  return events;
}

}  // namespace trainyard::http
