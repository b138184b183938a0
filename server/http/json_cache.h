// Keeps the JSON of messages that many streams send at the same time.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string>

#include "absl/container/node_hash_map.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "google/protobuf/message.h"

namespace trainyard::http {

// A change of a job goes to everybody who watches, and writing it as JSON costs far more than the
// rest of an event, since protobuf describes the types anew for each message. Messages are told
// apart by what they contain, so nobody is shown what was made for somebody else. Every function
// may be called by any thread.
class JsonCache {
 public:
  using Text = std::shared_ptr<const std::string>;

  // All texts with their messages have at most `bytes_max` bytes; the oldest ones are dropped. A
  // message of more than a hundredth of that is not kept.
  explicit JsonCache(size_t bytes_max) : bytes_max_(bytes_max) {}

  // Returns what http::ToJson returns for the message.
  absl::StatusOr<Text> ToJson(const google::protobuf::Message& message);

 private:
  const size_t bytes_max_;
  Mutex mutex_;
  // By the name of the type and the bytes of the message.
  absl::node_hash_map<std::string, Text> texts_ ABSL_GUARDED_BY(mutex_);
  std::deque<const std::string*> keys_ ABSL_GUARDED_BY(mutex_);  // of texts_; the oldest one first
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace trainyard::http
