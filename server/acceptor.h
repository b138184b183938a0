// Accepts connections and hands them on, which gRPC could do by itself. But once it cannot accept a
// connection because the process has no descriptor left, gRPC (1.51) never accepts another one on
// that socket. This acceptor sheds new connections while descriptors are short, keeps the old ones,
// and accepts again as soon as there is room.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "common/base/files.h"

namespace trainyard {

// Raises the number of descriptors that this process may open to what the system permits.
void RaiseDescriptorLimit();

// Owns the sockets and one thread.
class Acceptor {
 public:
  // Stores and files of jobs need this many descriptors. A connection that would leave fewer is
  // closed at once.
  static constexpr int kDescriptorsKept = 128;

  // Takes a connection that was accepted on the socket `listener`, on the acceptor's thread.
  using Take = std::function<void(int listener, UniqueFd connection)>;

  Acceptor(std::vector<UniqueFd> sockets, Take take);
  // Closes the sockets.
  ~Acceptor();

 private:
  void Run();
  // Accepts the connections that wait, up to a number, so that sockets take turns. Returns false if
  // there is no descriptor for the next one.
  bool AcceptSome(int listener);
  // Notes that a connection was refused, and says so once a minute.
  void Refused();

  const std::vector<UniqueFd> sockets_;
  const Take take_;
  const UniqueFd stop_;  // an eventfd
  // Only the thread uses these.
  int64_t refused_ = 0;                                // since the last warning
  absl::Duration warned_ = -absl::InfiniteDuration();  // the uptime
  std::thread thread_;
};

}  // namespace trainyard
