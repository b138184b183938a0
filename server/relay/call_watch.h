// Looks at the frames of HTTP/2 that pass, as far as it needs to notice headers without end, and to
// know how many calls are under way. gRPC (1.51) keeps all headers of a request in memory until the
// last one has come, however many there are. It takes any number of requests from a client that
// does not acknowledge its settings, or that takes each of them back at once. So one connection
// could take the memory of the host and all time of the server.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/relay/client_calls.h"

namespace trainyard::relay {

// Finds the heads of frames in the bytes of one direction, which come in pieces of any size. It
// keeps no bytes but a part of a head.
class FrameHeads {
 public:
  struct Head {
    uint64_t size = 0;  // of the frame, without its head
    unsigned char type = 0;
    unsigned char flags = 0;
    uint32_t stream = 0;
  };
  static constexpr size_t kHeadBytes = 9;

  // Skips so many bytes before the first frame.
  explicit FrameHeads(uint64_t preface_bytes) : to_skip_(preface_bytes) {}

  // Takes bytes from the front of `bytes`. Returns the next head as soon as it is complete, or
  // nothing when all bytes are taken.
  std::optional<Head> Next(absl::string_view& bytes);

 private:
  uint64_t to_skip_;  // bytes before the head of the next frame
  std::array<unsigned char, kHeadBytes> head_{};
  size_t head_size_ = 0;
};

// Reads the bytes of one connection in their order. It borrows the count of its client's calls,
// and takes its own calls back when it is destroyed.
class CallWatch {
 public:
  // The headers of one request, with the heads of their frames. gRPC refuses a call that has more
  // than 8 KiB of headers, and an honest client sends some hundred bytes.
  static constexpr uint64_t kHeaderBytesMax = 64 * 1024;

  explicit CallWatch(ClientCalls& calls) : calls_(calls) {}
  CallWatch(const CallWatch&) = delete;
  CallWatch& operator=(const CallWatch&) = delete;
  ~CallWatch();

  // Takes what the client sends at the uptime `now`. Returns false if the connection has to end,
  // because the headers of a request are too large, or the client has too many calls.
  bool TakeRequests(absl::string_view bytes, absl::Duration now);
  // Takes what the client is answered.
  void TakeAnswers(absl::string_view bytes);

  // Returns how many times headers have begun to come.
  uint64_t requests() const { return requests_; }

 private:
  static constexpr size_t kPrefaceBytes = 24;  // "PRI * HTTP/2.0..." comes before all frames

  bool TakeHeaders(const FrameHeads::Head& head);

  ClientCalls& calls_;
  FrameHeads from_client_{kPrefaceBytes};
  FrameHeads from_server_{0};
  uint64_t header_bytes_ = 0;  // of the request whose headers are coming
  uint64_t requests_ = 0;
  uint32_t last_stream_ = 0;
  absl::flat_hash_set<uint32_t> under_way_;  // the streams of calls
  absl::Duration now_;                       // when bytes have come last
};

}  // namespace trainyard::relay
