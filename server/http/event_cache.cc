// Streams group the same changes in different ways, so each change is kept by itself. Streams that
// miss the same one at once each read it, so that no stream waits for another.
#include "server/http/event_cache.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "server/http/event_resume.h"
#include "server/http/json.h"

namespace trainyard::http {

absl::StatusOr<EventCache::Event> EventCache::EventOf(const google::protobuf::Descriptor& type,
                                                      std::string message) {
  const size_t size = message.size();
  std::string key = std::move(message);
  key += type.full_name();
  if (const auto kept = kept_.Find(key); kept.has_value()) return *kept;
  auto read = NewMessage(type);
  if (!read->ParseFromArray(key.data(), static_cast<int>(size))) {
    return absl::InternalError(absl::StrCat("an answer of the services is no ", type.name()));
  }
  TY_ASSIGN_OR_RETURN(std::string json, ToJson(*read));
  auto event = std::make_shared<const SharedEvent>(SharedEvent{std::move(read), std::move(json)});
  const size_t bytes = key.size() + event->message->SpaceUsedLong() + event->json.size();
  kept_.Put(std::move(key), event, bytes);
  return event;
}

absl::StatusOr<EventCache::Events> EventCache::EventsOf(const google::protobuf::Descriptor& type,
                                                        const grpc::ByteBuffer& message) {
  grpc::Slice slice;
  if (!message.DumpToSingleSlice(&slice).ok()) {
    return absl::InternalError("an answer of the services cannot be had in one piece");
  }
  Events events;
  const char* begin = reinterpret_cast<const char*>(slice.begin());
  for (std::string& part : TakeApart(type, std::string(begin, slice.size()))) {
    TY_ASSIGN_OR_RETURN(Event event, EventOf(type, std::move(part)));
    events.push_back(std::move(event));
  }
  return events;
}

}  // namespace trainyard::http
