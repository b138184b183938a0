// Counts the bytes of the bodies that the door holds. What a client announces is not counted, only
// what has come, so nobody takes the places of others by a number in a header.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"

namespace trainyard::http {

// The class is thread-safe.
class BodyBytes {
 public:
  BodyBytes(size_t all_max, size_t client_max) : all_max_(all_max), client_max_(client_max) {}

  // The bytes that one body takes, until the share goes. It may go on any thread.
  class Share {
   public:
    Share(BodyBytes& bytes, std::string client) : bytes_(bytes), client_(std::move(client)) {}
    ~Share();
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    // Makes the share so large. Returns false if the client, or all clients together, would have
    // too much then.
    bool GrowTo(size_t size);

   private:
    BodyBytes& bytes_;
    const std::string client_;
    size_t size_ = 0;
  };

 private:
  const size_t all_max_;
  const size_t client_max_;
  Mutex mutex_;
  size_t all_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, size_t> by_client_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard::http
