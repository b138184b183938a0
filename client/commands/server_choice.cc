// A server that the user names is taken before one that the machine has.
#include "client/commands/server_choice.h"

#include "absl/strings/str_cat.h"
#include "client/credentials/credentials.h"
#include "client/link/unix_socket.h"
#include "common/base/status_macros.h"
#include "common/rpc/address.h"

namespace trainyard::commands {
namespace {

constexpr char kAdvice[] =
    "start one with `trainyard up`, or name one: --server unix:/path, --server ssh://HOST, or "
    "`trainyard contexts add`";

absl::StatusOr<ServerChoice> FromContext(const config::ConfigFile& config, const std::string& name,
                                         const std::string& reason) {
  ServerChoice choice;
  TY_ASSIGN_OR_RETURN(choice.address, config.Get(name, "server"));
  choice.context = name;
  choice.reason = absl::StrCat(reason, " the context '", name, "' of ", config.path());
  return choice;
}

constexpr absl::Duration kConnectTimeout = absl::Seconds(10);

// Connects with what `trainyard login` has stored.
absl::StatusOr<std::unique_ptr<link::ServerLink>> ConnectByTls(const Context& context,
                                                               const rpc::Address& server) {
  const credentials::CredentialStore store(ConfigHome(context.surroundings));
  auto stored = store.Load(server);
  // Without a pinned certificate, the channel says that the user has to sign in.
  if (absl::IsNotFound(stored.status())) stored = rpc::TlsOptions();
  TY_RETURN_IF_ERROR(stored.status());
  auto connected = link::ServerLink::Connect(server.ToString(), context.interrupt, kConnectTimeout,
                                             context.options.act_as, *stored);
  if (connected.ok() || stored->authority.empty()) return connected;
  return credentials::ExplainFailure(server, *stored, connected.status(), context.clock.Now());
}

}  // namespace

absl::StatusOr<config::ConfigFile> LoadConfig(const Context& context) {
  const Surroundings& around = context.surroundings;
  return config::ConfigFile::Load(config::ConfigPath(around.config_home, around.home));
}

absl::StatusOr<ServerChoice> ChooseServer(const Context& context) {
  const GlobalOptions& options = context.options;
  const Surroundings& around = context.surroundings;
  if (!options.server.empty()) return ServerChoice{options.server, "", "--server names it"};
  const bool needs_config = !options.context.empty() || around.server.empty();
  if (!needs_config) return ServerChoice{around.server, "", "$TRAINYARD_SERVER names it"};
  TY_ASSIGN_OR_RETURN(const config::ConfigFile config, LoadConfig(context));
  if (!options.context.empty()) return FromContext(config, options.context, "--context names");
  if (!around.context.empty()) {
    return FromContext(config, around.context, "$TRAINYARD_CONTEXT names");
  }
  const std::string current = config.Current();
  if (!current.empty()) {
    absl::StatusOr<ServerChoice> choice = FromContext(config, current, "you use");
    if (!absl::IsNotFound(choice.status())) return choice;
    // The user has named nothing that is not there: the file has a mistake.
    return absl::InvalidArgumentError(absl::StrCat(
        choice.status().message(),
        "\n  the file says that it is the current one; `trainyard contexts use` changes that"));
  }
  TY_ASSIGN_OR_RETURN(const link::Found found, link::FindServer(LocalServers(around), kAdvice));
  return ServerChoice{found.candidate.address, "", absl::StrCat("it is ", found.candidate.what)};
}

absl::StatusOr<std::unique_ptr<link::ServerLink>> Connect(const Context& context) {
  TY_ASSIGN_OR_RETURN(const ServerChoice choice, ChooseServer(context));
  const auto parsed = rpc::ParseAddress(choice.address);
  if (parsed.ok() && parsed->kind == rpc::Address::Kind::kTls) {
    return ConnectByTls(context, *parsed);
  }
  return link::ServerLink::Connect(choice.address, context.interrupt, kConnectTimeout,
                                   context.options.act_as);
}

std::vector<link::Candidate> LocalServers(const Surroundings& around) {
  return {{"the server of your own `trainyard up`",
           rpc::DefaultServerAddress(around.state_home, around.home)},
          {"the server of this machine", around.system_server}};
}

}  // namespace trainyard::commands
