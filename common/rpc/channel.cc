// Opens channels that reconnect at short intervals, since a server of this host that restarts is
// soon back.
#include "common/rpc/channel.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/duration.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/rpc/address.h"
#include "grpc/grpc.h"
#include "grpc/support/time.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "grpcpp/support/channel_arguments.h"
#include "grpcpp/support/client_interceptor.h"

namespace trainyard::rpc {
namespace {

// A server that restarts is back in a second or two. Longer pauses would make people wait.
constexpr int kReconnectInitialMs = 100;
constexpr int kReconnectMaxMs = 2000;
// The time that an attempt to connect may take, which gRPC calls the minimal reconnection backoff.
// With less, a busy machine would look like one without a server.
constexpr int kConnectTimeoutMs = 10'000;

// A connection is looked after this often while no call waits for it.
constexpr char kLookVariable[] = "GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS";
constexpr char kLookMs[] = "200";

// A connection on which nothing has come for so long is asked for a sign of life, and is given up
// when none has come within the timeout. Both together are shorter than a worker's lease, and the
// first is longer than the shortest distance that a server permits.
constexpr int kKeepaliveMs = 6000;
constexpr int kKeepaliveTimeoutMs = 5000;

// Returns why no connection could be made, as far as the socket's file tells.
std::string Cause(absl::string_view address, absl::Duration waited) {
  const auto parsed = ParseAddress(address);
  if (parsed.ok() && parsed->kind == Address::Kind::kUnix) {
    struct stat info {};
    if (stat(parsed->path.c_str(), &info) != 0) return std::strerror(errno);
    if (!S_ISSOCK(info.st_mode)) return "it is no socket";
  }
  return waited > absl::ZeroDuration() ? absl::StrCat("no answer within ", DurationText(waited))
                                       : std::string("connection refused");
}

// Returns true if somebody listens on a Unix socket, though it may have refused a connection: the
// system refuses them while very many wait to be accepted.
bool IsListenedOn(absl::string_view address) {
  const auto parsed = ParseAddress(address);
  if (!parsed.ok() || parsed->kind != Address::Kind::kUnix) return false;
  const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, parsed->path.c_str(), parsed->path.size() + 1);
  return connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0 ||
         errno == EAGAIN;
}

// Adds metadata to each call.
class MetadataInterceptor : public grpc::experimental::Interceptor {
 public:
  explicit MetadataInterceptor(const std::vector<Metadata>& metadata) : metadata_(metadata) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            grpc::experimental::InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      for (const auto& entry : metadata_) methods->GetSendInitialMetadata()->insert(entry);
    }
    methods->Proceed();
  }

 private:
  const std::vector<Metadata>& metadata_;
};

class MetadataFactory : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit MetadataFactory(std::vector<Metadata> metadata) : metadata_(std::move(metadata)) {}

  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo*) override {
    return new MetadataInterceptor(metadata_);
  }

 private:
  const std::vector<Metadata> metadata_;
};
grpc::ChannelArguments CommonArguments(int connect_timeout_ms) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectInitialMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, connect_timeout_ms);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMaxMs);
  arguments.SetInt(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, kMessageSizeMax);
  arguments.SetInt(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, kMessageSizeMax);
  // The connection ends on this host, so it must not go through a proxy that the environment
  // names.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Every channel has its own connection, because in tests several servers live and die in one
  // process.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return arguments;
}

std::shared_ptr<grpc::Channel> Open(const std::string& target,
                                    const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                                    const grpc::ChannelArguments& arguments,
                                    std::vector<Metadata> metadata) {
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> interceptors;
  if (!metadata.empty()) {
    interceptors.push_back(std::make_unique<MetadataFactory>(std::move(metadata)));
  }
  return grpc::experimental::CreateCustomChannelWithInterceptors(target, credentials, arguments,
                                                                 std::move(interceptors));
}

// The files of a worker's certificate are looked at this often.
constexpr unsigned int kRefreshSeconds = 60;

std::shared_ptr<grpc::ChannelCredentials> WorkerCredentials(const std::string& folder) {
  const auto files = std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
      JoinPath(folder, "worker.key"), JoinPath(folder, "worker.pem"),
      JoinPath(folder, "authority.pem"), kRefreshSeconds);
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(files);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  return grpc::experimental::TlsCredentials(options);
}

constexpr int64_t kTokenFileBytesMax = 64 * 1024;

// Gives each call the token that a file has at the time.
class TokenFromFile : public grpc::MetadataCredentialsPlugin {
 public:
  explicit TokenFromFile(std::string path) : path_(std::move(path)) {}

  grpc::Status GetMetadata(grpc::string_ref, grpc::string_ref, const grpc::AuthContext&,
                           std::multimap<std::string, std::string>* metadata) override {
    absl::StatusOr<std::string> token = ReadFile(path_, kTokenFileBytesMax);
    if (!token.ok()) {
      return grpc::Status(grpc::StatusCode::UNAUTHENTICATED, std::string(token.status().message()));
    }
    absl::StripAsciiWhitespace(&*token);
    metadata->emplace("authorization", absl::StrCat("Bearer ", *token));
    return grpc::Status::OK;
  }

 private:
  const std::string path_;
};

// Sets how the channel proves itself, and how the server has to.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CredentialsFor(
    const Address& address, const TlsOptions& tls, grpc::ChannelArguments& arguments) {
  if (address.kind != Address::Kind::kTls) return grpc::InsecureChannelCredentials();
  if (!tls.server_name.empty()) arguments.SetSslTargetNameOverride(tls.server_name);
  if (!tls.worker_folder.empty()) return WorkerCredentials(tls.worker_folder);
  if (tls.authority.empty()) {
    return MakeError(absl::StatusCode::kUnauthenticated, "NOT_SIGNED_IN",
                     absl::StrCat("you are not signed in to ", address.ToString(),
                                  "; run `trainyard login ", address.Target(), "`"));
  }
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = tls.authority;
  const auto channel = grpc::SslCredentials(options);
  if (!tls.token_file.empty()) {
    return grpc::CompositeChannelCredentials(
        channel,
        grpc::MetadataCredentialsFromPlugin(std::make_unique<TokenFromFile>(tls.token_file)));
  }
  if (tls.token.empty()) return channel;
  return grpc::CompositeChannelCredentials(channel, grpc::AccessTokenCredentials(tls.token));
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(absl::string_view address,
                                                           Keepalive keepalive,
                                                           std::vector<Metadata> metadata,
                                                           const TlsOptions& tls) {
  TY_ASSIGN_OR_RETURN(const Address parsed, ParseAddress(address));
  if (parsed.kind != Address::Kind::kUnix && parsed.port == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("address '", address, "' has port 0; a server has a port from 1 to 65535"));
  }
  grpc::ChannelArguments arguments = CommonArguments(kConnectTimeoutMs);
  if (keepalive == Keepalive::kPings) {
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // no limit
  }
  TY_ASSIGN_OR_RETURN(const auto credentials, CredentialsFor(parsed, tls, arguments));
  return Open(parsed.Target(), credentials, arguments, std::move(metadata));
}

std::shared_ptr<grpc::Channel> MakeCarriedChannel(const std::string& target,
                                                  absl::Duration connect_timeout,
                                                  std::vector<Metadata> metadata) {
  return Open(target, grpc::InsecureChannelCredentials(),
              CommonArguments(static_cast<int>(absl::ToInt64Milliseconds(connect_timeout))),
              std::move(metadata));
}

absl::Status WaitForServer(grpc::Channel& channel, absl::string_view address,
                           absl::Duration timeout) {
  // A time span is measured by the monotonic clock, whatever the wall clock does in the meantime.
  const gpr_timespec deadline =
      gpr_time_from_millis(absl::ToInt64Milliseconds(timeout), GPR_TIMESPAN);
  grpc_connectivity_state state = channel.GetState(/*try_to_connect=*/true);
  while (state != GRPC_CHANNEL_READY) {
    const bool has_failed = state == GRPC_CHANNEL_TRANSIENT_FAILURE && !IsListenedOn(address);
    if (has_failed || state == GRPC_CHANNEL_SHUTDOWN) {
      return error::ServerUnreachable(address, Cause(address, absl::ZeroDuration()));
    }
    if (!channel.WaitForStateChange(state, deadline)) {
      return error::ServerUnreachable(address, Cause(address, timeout));
    }
    state = channel.GetState(/*try_to_connect=*/true);
  }
  return absl::OkStatus();
}

void KeepConnecting() {
  // gRPC reads the variable when it starts. Programs that this one starts must not get it.
  setenv(kLookVariable, kLookMs, /*overwrite=*/1);
  grpc_init();
  unsetenv(kLookVariable);
}

void SetTimeout(grpc::ClientContext& context, absl::Duration timeout) {
  context.set_deadline(gpr_time_from_millis(absl::ToInt64Milliseconds(timeout), GPR_TIMESPAN));
}

}  // namespace trainyard::rpc
