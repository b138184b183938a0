// Reads the messages of streams, and writes them as JSON, once for all streams that get them.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/node_hash_map.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/byte_buffer.h"

namespace trainyard::http {

// A message of a stream that becomes an event.
struct StreamEvent {
  std::unique_ptr<const google::protobuf::Message> message;
  std::string json;
};

// A change of a job goes to everybody who watches, and reading it and writing it as JSON cost far
// more than the rest of an event. Messages are told apart by their bytes, so nobody is shown what
// was made for somebody else. Every function may be called by any thread.
class EventCache {
 public:
  using Events = std::vector<std::shared_ptr<const StreamEvent>>;

  // What is kept has at most about `bytes_max` bytes; the oldest messages are dropped. A message of
  // more than a hundredth of that is not kept.
  explicit EventCache(size_t bytes_max) : bytes_max_(bytes_max) {}

  // Returns the events of a message (TakeApart), whose bytes are a message of this type. Returns
  // INTERNAL if they are not.
  absl::StatusOr<Events> EventsOf(const google::protobuf::Descriptor& type,
                                  const grpc::ByteBuffer& message);

 private:
  struct Kept {
    Events events;
    size_t bytes = 0;
  };

  absl::StatusOr<Events> Read(const google::protobuf::Descriptor& type, grpc::ByteBuffer message);

  const size_t bytes_max_;
  Mutex mutex_;
  // By the bytes of the message and the name of the type.
  absl::node_hash_map<std::string, Kept> kept_ ABSL_GUARDED_BY(mutex_);
  std::deque<const std::string*> keys_ ABSL_GUARDED_BY(mutex_);  // of kept_; the oldest one first
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace trainyard::http
