// Ends TLS for the port of the server: it makes the handshakes, and passes the plain bytes between
// clients and gRPC, which gets one end of a pair of sockets for each connection.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "common/base/files.h"
#include "common/base/mutex.h"
#include "server/tls/address_limits.h"
#include "server/tls/certificate_files.h"
#include "server/tls/connection.h"

namespace trainyard::tls {

// Owns the connections and one thread, which does all the work in turns: no client can hold up
// another for longer than its turn. It borrows the files and the clock.
class Terminator {
 public:
  // Takes the plain end of a connection whose handshake has succeeded, on the terminator's thread.
  using Open = std::function<void(UniqueFd plain, Peer peer)>;

  Terminator(CertificateFiles& files, Clock& clock, Open open, PortLimits limits = {});
  // Sends for a second at most what gRPC has written, and closes all connections.
  ~Terminator();

  // Takes a connection that was accepted. It may be called from any thread.
  void Take(UniqueFd connection);

  // Returns how many connections are open, and how many handshakes are under way.
  AddressLimits::Counts counts() const;

 private:
  using Id = uint64_t;
  void Run();
  // Waits until something can be done, and notes it.
  void Wait(int timeout_ms);
  int TimeoutMs(absl::Duration now) const;
  void TakeNew(absl::Duration now);
  void Begin(UniqueFd socket, absl::Duration now);
  // Makes room for one more handshake. The oldest goes, since a handshake that is meant takes a
  // moment only.
  void MakeRoom(const std::string& address);
  void Turn(absl::Duration now);
  void HandOver(Id id, Connection& connection);
  void Close(Id id);
  void CloseOverdue(absl::Duration now);
  void RefreshFiles(absl::Duration now);
  // Asks for events of a descriptor. Returns false if the system has no memory for that.
  bool Watch(int fd, uint32_t events, uint64_t data);
  bool HasRoom(const std::string& address, absl::Duration now);

  CertificateFiles& files_;
  Clock& clock_;
  const Open open_;
  const PortLimits limits_;
  const UniqueFd epoll_;
  const UniqueFd wake_;  // an eventfd

  // Only the thread uses these.
  Id next_id_ = 1;
  std::unordered_map<Id, std::unique_ptr<Connection>> connections_;
  std::set<Id> handshakes_;  // the oldest first
  std::set<Id> ready_;       // connections that may have something to do
  std::vector<char> scratch_;
  absl::Duration overdue_checked_ = -absl::InfiniteDuration();
  absl::Duration refresh_at_;
  absl::Duration warned_ = -absl::InfiniteDuration();

  mutable Mutex mutex_;
  std::vector<UniqueFd> accepted_ ABSL_GUARDED_BY(mutex_);
  bool stops_ ABSL_GUARDED_BY(mutex_) = false;
  AddressLimits counts_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace trainyard::tls
