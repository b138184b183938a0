// Looks at the frames of HTTP/2 that a client sends, as far as it needs to notice headers without
// end, and to count requests. gRPC (1.51) keeps all headers of a request in memory until the last
// one has come, however many there are, and it takes any number of requests from a client that does
// not acknowledge its settings. So a stranger with one connection could take the memory of the host
// and all time of the server.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace trainyard::tls {

// Reads the bytes of one connection in their order, in pieces of any size. It keeps no bytes but
// the head of a frame.
class HeaderWatch {
 public:
  // The headers of one request, with the heads of their frames. gRPC refuses a call that has more
  // than 8 KiB of headers, and an honest client sends some hundred bytes.
  static constexpr uint64_t kHeaderBytesMax = 64 * 1024;

  // Returns false if the headers of a request are larger than that. The connection has to end then.
  bool Take(absl::string_view bytes);

  // Returns how many requests have begun.
  uint64_t requests() const { return requests_; }

 private:
  static constexpr size_t kPrefaceBytes = 24;  // "PRI * HTTP/2.0..." comes before all frames
  static constexpr size_t kHeadBytes = 9;

  // Takes the head of a frame, and returns false if the headers are too large with it.
  bool TakeHead();

  uint64_t to_skip_ = kPrefaceBytes;  // bytes before the head of the next frame
  std::array<unsigned char, kHeadBytes> head_{};
  size_t head_size_ = 0;
  uint64_t header_bytes_ = 0;  // of the request whose headers are coming
  uint64_t requests_ = 0;
};

}  // namespace trainyard::tls
