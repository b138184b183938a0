// States the limits of the HTTP door, each with its reason. Tests make them smaller.
#pragma once

#include <cstddef>

#include "absl/time/time.h"

namespace trainyard::http {

// Changes of jobs that come within this time are sent together. People see no difference, and a
// list in which 50 jobs run gets a fifth of the messages.
inline constexpr absl::Duration kGatherInterval = absl::Milliseconds(100);

struct Limits {
  // Connections of all clients, and of one user or address. Each takes some 200 KiB, with its
  // channel to the services. A browser opens six.
  size_t connections = 1024;
  size_t connections_of_client = 128;
  // The line and the headers of a request. gRPC takes 8 KiB of headers.
  size_t header_bytes = 16 * 1024;
  // The largest message of the API has 4 MiB.
  size_t body_bytes = size_t{4} << 20;
  // The bytes of bodies that have come and are not read yet, of all clients and of one user or
  // address.
  size_t all_body_bytes = size_t{128} << 20;
  size_t body_bytes_of_client = size_t{16} << 20;
  // Larger requests are read by threads of their own, because the others would have to wait for the
  // one of the door. Reading 4 KiB takes less time than handing them over is worth.
  size_t own_thread_bytes = 4 * 1024;
  // A connection waits so long for a request, from its first byte to the last one of its headers.
  absl::Duration head_timeout = absl::Seconds(60);
  // A body has this time, and one second for each 64 KiB.
  absl::Duration body_timeout = absl::Seconds(20);
  // A client that takes nothing of an answer for so long is cut off.
  absl::Duration write_timeout = absl::Minutes(1);
  // The part of an answer that is sent at a time, and has to be taken in that time.
  size_t write_bytes = 64 * 1024;
  // A stream in which nothing happens says so this often.
  absl::Duration idle_interval = absl::Seconds(15);
  // A client that is not known by now has no place on the connection any more.
  absl::Duration stranger_time = absl::Minutes(1);
};

}  // namespace trainyard::http
