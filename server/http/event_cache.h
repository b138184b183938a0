// Reads the messages of streams, and writes them as JSON, once for all streams that get them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/recent_map.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/byte_buffer.h"

namespace trainyard::http {

// A message of a stream that becomes an event.
struct SharedEvent {
  std::unique_ptr<const google::protobuf::Message> message;
  std::string json;
};

// A change of a job goes to everybody who watches, and reading it and writing it as JSON cost far
// more than the rest of an event. Messages are told apart by their bytes, so nobody is shown what
// was made for somebody else. Every function may be called by any thread.
class EventCache {
 public:
  using Events = std::vector<std::shared_ptr<const SharedEvent>>;

  // All messages that are kept have at most about `bytes_max` bytes. One of more than a hundredth
  // of that is not kept.
  explicit EventCache(size_t bytes_max) : kept_(bytes_max) {}

  // Returns the events of a message, whose bytes are a message of this type. Returns INTERNAL if
  // they are not.
  absl::StatusOr<Events> EventsOf(const google::protobuf::Descriptor& type,
                                  const grpc::ByteBuffer& message);

 private:
  using Event = std::shared_ptr<const SharedEvent>;

  absl::StatusOr<Event> EventOf(const google::protobuf::Descriptor& type, std::string message);

  // The key is the bytes of the message and then the name of its type.
  RecentMap<std::string, Event> kept_;
};

}  // namespace trainyard::http
