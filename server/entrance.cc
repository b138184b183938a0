// Wires the sockets, the relays and the tables of those who may call.
#include "server/entrance.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/log.h"
#include "common/base/sign_in_errors.h"
#include "common/base/status_macros.h"
#include "common/base/system_accounts.h"
#include "common/rpc/address.h"
#include "server/access/peer.h"
#include "server/access/tokens.h"
#include "server/http/channel.h"
#include "server/http/sign_in.h"
#include "server/listen.h"
#include "server/relay/plain_side.h"
#include "server/tls/tls_side.h"

namespace trainyard {
namespace {

// A stream of a token that expires ends within this time.
constexpr absl::Duration kTokenSweepInterval = absl::Seconds(10);
// Somebody who replaces a certificate and its key writes two files. They are read after a pause.
constexpr absl::Duration kRefreshPause = absl::Milliseconds(300);

// Returns the limits of the users of this host. They have no handshakes: a connection is open as
// soon as the thread takes it.
relay::Limits LimitsOfUsers() {
  relay::Limits limits;
  limits.connections_of_client = 256;
  limits.handshakes = limits.connections;
  limits.handshakes_of_client = limits.connections_of_client;
  limits.handshake_steps_of_turn = limits.handshakes;
  // gRPC permits so many in one connection, and here they are of all connections of a user.
  limits.calls_of_client = 1000;
  return limits;
}

// Returns the limits of root and of the user who runs the server, and so of all workers of the
// host. They have none, but that a connection has to say which protocol it speaks.
relay::Limits LimitsOfHost() {
  relay::Limits limits;
  limits.connections = std::numeric_limits<size_t>::max();
  limits.connections_of_client = limits.connections;
  limits.handshakes = limits.connections;
  limits.handshakes_of_client = limits.connections;
  limits.handshake_steps_of_turn = limits.connections;
  return limits;
}

// Finds the groups that have roles.
absl::StatusOr<access::RoleMap> RolesOf(const ServerOptions& options) {
  access::RoleMap roles;
  roles.server_uid = geteuid();
  roles.default_role = options.default_role;
  if (!options.admin_group.empty()) {
    TY_ASSIGN_OR_RETURN(roles.admin_group, FindGroup(options.admin_group));
  }
  if (!options.operator_group.empty()) {
    TY_ASSIGN_OR_RETURN(roles.operator_group, FindGroup(options.operator_group));
  }
  return roles;
}

}  // namespace

absl::Status Entrance::Open(const ServerOptions& options) {
  TY_ASSIGN_OR_RETURN(roles_, RolesOf(options));
  TY_ASSIGN_OR_RETURN(const auto tokens, store_.ListTokens());
  users_ = std::make_unique<runtime::SystemUsers>(roles_);
  for (const access::TokenRecord& token : tokens) {
    sign_in_->tokens.Add(token);
    users_->Learn({token.user});
  }
  TY_ASSIGN_OR_RETURN(const auto removed, store_.ListRemovedWorkers());
  for (const access::RemovedWorker& worker : removed) sign_in_->removed_workers.Add(worker);
  sign_in_->user_of_system = [this](const std::string& user) { return users_->Find(user); };
  sign_in_->learn_user = [this](const std::string& user) { users_->Learn({user}); };
  return options.kubernetes.is_on() ? OpenCluster(options) : absl::OkStatus();
}

absl::Status Entrance::OpenCluster(const ServerOptions& options) {
  if (options.kubernetes.api_url.empty()) {
    return absl::FailedPreconditionError(
        "--kubernetes_users and --kubernetes_workers are for a server in a pod, and this is none: "
        "$KUBERNETES_SERVICE_HOST and $KUBERNETES_SERVICE_PORT are not set");
  }
  reviewer_ = std::make_unique<kubernetes::Reviewer>(options.kubernetes, *Clock::Real());
  sign_in_->learn_pod = [this](absl::string_view token, access::PodUse use,
                               absl::string_view address, std::function<void()> done) {
    reviewer_->Learn(token, use, address, std::move(done));
  };
  sign_in_->find_pod = [this](absl::string_view token, access::PodUse use) {
    return reviewer_->Find(token, use);
  };
  sign_in_->role_of_pods = options.default_role;
  return absl::OkStatus();
}

absl::Status Entrance::Listen(const ServerOptions& options, const std::string& state_dir) {
  std::vector<std::string> listen = options.listen;
  const auto is_path = [](const std::string& text) { return absl::StartsWith(text, "unix:"); };
  // The socket is always there, since tokens for the port are made on it.
  if (std::none_of(listen.begin(), listen.end(), is_path)) {
    listen.insert(listen.begin(), absl::StrCat("unix:", JoinPath(state_dir, "server.sock")));
  }
  std::vector<int> passed = options.passed_sockets;
  for (const std::string& text : listen) {
    TY_ASSIGN_OR_RETURN(Listener listener,
                        trainyard::Listen(text, options.shared ? 0666 : 0600, passed));
    addresses_.push_back(listener.address.ToString());
    if (listener.address.kind == rpc::Address::Kind::kUnix && !listener.is_passed) {
      socket_paths_.push_back(listener.address.path);
    }
    if (listener.address.kind == rpc::Address::Kind::kTls) {
      sign_in_->addresses.push_back(listener.address.ToString());
      for (const UniqueFd& socket : listener.sockets) tls_sockets_.insert(socket.get());
    }
    for (UniqueFd& socket : listener.sockets) sockets_.push_back(std::move(socket));
  }
  if (!passed.empty()) {
    // Whoever connects to it would wait for ever.
    return absl::FailedPreconditionError(
        "the service manager has opened a socket that --listen does not name; stop and disable its "
        "unit (trainyard-server.socket), or name its path");
  }
  if (tls_sockets_.empty()) return absl::OkStatus();
  return OpenCertificates(options, state_dir);
}

absl::Status Entrance::OpenCertificates(const ServerOptions& options,
                                        const std::string& state_dir) {
  TY_ASSIGN_OR_RETURN(certificates_, tls::CertificateFiles::Open(
                                         {JoinPath(state_dir, "tls"), options.tls_names,
                                          options.tls_cert, options.tls_key, options.tls_client_ca},
                                         *Clock::Real()));
  sign_in_->sign_worker = [this](
                              absl::string_view request,
                              absl::string_view worker) -> absl::StatusOr<rpc::WorkerCertificate> {
    TY_ASSIGN_OR_RETURN(tls::Certificate made,
                        certificates_->SignWorker(request, worker,
                                                  sign_in_->removed_workers.EarliestBegin(worker)));
    return rpc::WorkerCertificate{std::move(made.pem), std::move(made.key_fingerprint)};
  };
  sign_in_->fingerprint = [this] { return certificates_->pin().fingerprint; };
  LogInfo("clients know this server by its fingerprint",
          {{"fingerprint", certificates_->pin().fingerprint}});
  return absl::OkStatus();
}

void Entrance::Begin(Serve serve, http::WriteMetrics write_metrics) {
  serve_ = std::move(serve);
  const auto take = [this](relay::Relay::Opened opened) { TakeRelayed(std::move(opened)); };
  http::DoorOptions door;
  door.connect = [this](const access::Peer& peer, const auto& is_known) {
    return ConnectAs(peer, is_known);
  };
  door.write_metrics = std::move(write_metrics);
  door.is_host = [this](const std::string& host) { return IsHost(host); };
  door.guard = [](const access::Peer& peer, http::Request& request) {
    if (peer.user.empty()) http::AdoptCookie(request);
    return std::optional<http::Response>();
  };
  door_.emplace(std::move(door));
  host_relay_.emplace(*Clock::Real(), take, LimitsOfHost());
  users_relay_.emplace(*Clock::Real(), take, LimitsOfUsers());
  if (certificates_ != nullptr) remote_relay_.emplace(*Clock::Real(), take);
  acceptor_.emplace(std::move(sockets_), [this](int listener, UniqueFd connection) {
    Take(listener, std::move(connection));
  });
}

void Entrance::Take(int listener, UniqueFd connection) {
  if (tls_sockets_.count(listener) > 0) {
    TakeRemote(std::move(connection));
  } else {
    TakeLocal(std::move(connection));
  }
}

void Entrance::TakeLocal(UniqueFd connection) {
  const auto process = processes_.AtOtherEnd(connection.get());
  if (!process.ok()) {
    LogWarning("a connection is closed, since nobody knows whose it is",
               {{"error", process.status().ToString()}});
    return;
  }
  access::Peer peer = access::PeerOf(*process, roles_);
  relay::Relay& relay = peer.is_host ? *host_relay_ : *users_relay_;
  relay.Take(std::make_unique<relay::PlainSide>(std::move(connection), std::move(peer)));
}

void Entrance::TakeRemote(UniqueFd connection) {
  auto client =
      tls::TlsSide::Create(std::move(connection), *certificates_->context(), Clock::Real()->Now());
  if (client != nullptr) remote_relay_->Take(std::move(client));
}

void Entrance::TakeRelayed(relay::Relay::Opened opened) {
  // Whoever shows a revoked certificate has the limits of a stranger, and is told that it is
  // revoked.
  const access::Peer& peer = opened.peer;
  if (!sign_in_->removed_workers.Check(peer.worker, peer.certificate_begin).ok()) {
    *opened.is_known = false;
  }
  if (opened.protocol == relay::Protocol::kHttp1) {
    door_->Take(std::move(opened.plain), std::move(opened.peer), std::move(opened.is_known));
    return;
  }
  connections_.Add(opened.plain.get(), std::move(opened.peer), std::move(opened.is_known));
  serve_(std::move(opened.plain));
}

std::shared_ptr<grpc::Channel> Entrance::ConnectAs(
    const access::Peer& peer, const std::shared_ptr<std::atomic<bool>>& is_known) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) {
    return nullptr;
  }
  UniqueFd server_end(ends[0]);
  connections_.Add(server_end.get(), peer, is_known);
  serve_(std::move(server_end));
  return http::ChannelOn(UniqueFd(ends[1]));
}

bool Entrance::IsHost(const std::string& host) const {
  if (host == tls::kServerName) return true;
  const std::vector<std::string> hosts = certificates_->hosts();
  return std::any_of(hosts.begin(), hosts.end(), [&host](const std::string& known) {
    absl::string_view suffix = known;
    // A wildcard stands for one label.
    if (absl::ConsumePrefix(&suffix, "*")) {
      return absl::EndsWithIgnoreCase(host, suffix) &&
             !absl::StrContains(host.substr(0, host.size() - suffix.size()), '.');
    }
    return absl::EqualsIgnoreCase(host, known);
  });
}

void Entrance::StopAccepting() {
  acceptor_.reset();
  if (door_.has_value()) door_->Stop();
  if (reviewer_ != nullptr) reviewer_->Stop();
  for (const std::string& path : socket_paths_) unlink(path.c_str());
}

void Entrance::Close() {
  // The relays hand connections to the door.
  host_relay_.reset();
  users_relay_.reset();
  remote_relay_.reset();
  door_.reset();
}

void Entrance::Sweep() {
  connections_.Sweep();
  SweepTokens();
  if (certificates_ != nullptr) RefreshCertificates();
}

void Entrance::RefreshCertificates() {
  const absl::Duration now = Clock::Real()->Uptime();
  pollfd changed = {certificates_->fd(), POLLIN, 0};  // poll ignores a descriptor of -1
  if (now >= certificates_due_) {
    certificates_due_ = now + kRefreshInterval;
    certificates_->Refresh();
  } else if (poll(&changed, 1, 0) > 0) {
    certificates_due_ = std::min(certificates_due_, now + kRefreshPause);
  }
}

void Entrance::SweepTokens() {
  const absl::Time now = Clock::Real()->Now();
  if (now - tokens_swept_ < kTokenSweepInterval) return;
  for (const access::TokenRecord& token : sign_in_->tokens.Expired(tokens_swept_, now)) {
    streams_.EndOfToken(token.id, error::TokenExpired(token.id, token.expires));
  }
  for (const auto& [id, end] : sign_in_->pod_token_ends.TakeEnded(now)) {
    streams_.EndOfToken(id, error::TokenExpired(id, end));
  }
  tokens_swept_ = now;
  if (now - tokens_saved_ < access::kLastUseStep) return;
  tokens_saved_ = now;
  absl::Status saved = absl::OkStatus();
  for (const access::TokenRecord& token : sign_in_->tokens.TakeUsed()) {
    saved.Update(store_.PutToken(token));
    users_->Learn({token.user});
  }
  for (const std::string& id : sign_in_->tokens.Forget(now)) {
    saved.Update(store_.DeleteToken(id));
  }
  if (!saved.ok()) {
    LogWarning("cannot store when tokens were used", {{"error", saved.ToString()}});
  }
}

}  // namespace trainyard
