// Lets callers in: listens, finds out who is at the other end of each connection, ends TLS, keeps
// limits of those who are not trusted, and knows the tokens and certificates by which users and
// workers of other hosts sign in.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "common/base/files.h"
#include "server/acceptor.h"
#include "server/http/door.h"
#include "server/kubernetes/reviewer.h"
#include "server/relay/relay.h"
#include "server/rpc/sign_in.h"
#include "server/rpc/streams.h"
#include "server/runtime/connections.h"
#include "server/runtime/local_process.h"
#include "server/runtime/system_users.h"
#include "server/server_options.h"
#include "server/store/access_store.h"
#include "server/tls/certificate_files.h"

namespace trainyard {

// Its calls are made in the order in which they stand here, by one thread, but for those that
// belong to the housekeeper. It borrows the store and the streams.
class Entrance {
 public:
  Entrance(store::AccessStore& store, rpc::Streams& streams) : store_(store), streams_(streams) {}

  // Reads the tokens and the revoked certificates. Returns NOT_FOUND for a group that does not
  // exist.
  absl::Status Open(const ServerOptions& options);
  // Listens on all addresses, and makes or reads the certificates for ports of TLS. Nobody is let
  // in yet.
  absl::Status Listen(const ServerOptions& options, const std::string& state_dir);
  // Takes the plain bytes of a connection of gRPC whose other end is known.
  using Serve = std::function<void(UniqueFd connection)>;
  // `write_metrics` writes what GET /metrics answers.
  void Begin(Serve serve, http::WriteMetrics write_metrics);
  // Lets nobody in any more. What is open stays open.
  void StopAccepting();
  // Sends the last answers and closes the connections of users and of other hosts.
  void Close();

  const std::vector<std::string>& addresses() const { return addresses_; }
  // These are for handlers.
  runtime::Connections& connections() { return connections_; }
  const std::shared_ptr<rpc::SignIn>& sign_in() const { return sign_in_; }

  // The housekeeper's thread calls this: it looks after connections, ends the streams of tokens
  // that have expired, keeps what is known of tokens on disk, and reads certificates that change.
  void Sweep();
  // Ends all connections, whose memory is needed. Any thread may call it.
  void EndConnections() { connections_.EndAll(); }

 private:
  // Certificates are read as often as this, and soon after their files have changed.
  static constexpr absl::Duration kRefreshInterval = absl::Minutes(1);

  // Lets pods of the cluster sign in. Returns FAILED_PRECONDITION outside of one.
  absl::Status OpenCluster(const ServerOptions& options);
  absl::Status OpenCertificates(const ServerOptions& options, const std::string& state_dir);
  // Finds out who is at the other end, and has the connection served.
  void Take(int listener, UniqueFd connection);
  void TakeLocal(UniqueFd connection);
  void TakeRemote(UniqueFd connection);
  // Serves a connection that has come through a relay.
  void TakeRelayed(relay::Relay::Opened opened);
  // Opens a channel to the services on which calls are those of the peer.
  std::shared_ptr<grpc::Channel> ConnectAs(const access::Peer& peer,
                                           const std::shared_ptr<std::atomic<bool>>& is_known);
  bool IsHost(const std::string& host) const;
  void SweepTokens();
  void RefreshCertificates();

  store::AccessStore& store_;
  rpc::Streams& streams_;
  access::RoleMap roles_;
  runtime::Connections connections_{*Clock::Real()};
  runtime::LocalProcesses processes_{*Clock::Real()};  // only the acceptor uses it
  std::shared_ptr<rpc::SignIn> sign_in_ = std::make_shared<rpc::SignIn>();
  std::unique_ptr<runtime::SystemUsers> users_;
  std::unique_ptr<kubernetes::Reviewer> reviewer_;
  std::unique_ptr<tls::CertificateFiles> certificates_;
  std::vector<std::string> addresses_;
  std::vector<std::string> socket_paths_;
  std::vector<UniqueFd> sockets_;  // until the acceptor has them
  std::set<int> tls_sockets_;
  Serve serve_;
  // Each kind of clients has a relay with a thread of its own, so that neither feels the other.
  std::optional<http::Door> door_;
  std::optional<relay::Relay> host_relay_;
  std::optional<relay::Relay> users_relay_;
  std::optional<relay::Relay> remote_relay_;
  std::optional<Acceptor> acceptor_;
  // Only the housekeeper's thread uses these.
  absl::Time tokens_swept_ = Clock::Real()->Now();
  absl::Time tokens_saved_ = Clock::Real()->Now();
  absl::Duration certificates_due_ = Clock::Real()->Uptime() + kRefreshInterval;
};

}  // namespace trainyard
