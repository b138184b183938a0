// login pins the certificate of a server, stores the user's token for it, and gives it the name of
// a context; logout forgets certificate and token.
#include <algorithm>
#include <filesystem>
#include <istream>
#include <ostream>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/commands/server_choice.h"
#include "client/commands/verbs.h"
#include "client/credentials/credentials.h"
#include "client/output/roles.h"
#include "client/output/silence.h"
#include "client/output/text.h"
#include "common/base/files.h"
#include "common/base/sign_in_errors.h"
#include "common/base/status_macros.h"
#include "common/base/token_form.h"
#include "common/tls/probe.h"
#include "common/tls/read.h"

namespace trainyard::commands {
namespace {

using config::ConfigFile;
using credentials::CredentialStore;

constexpr char kServer[] = "server";
constexpr size_t kContextNameBytesMax = 63;
constexpr absl::Duration kSignInTimeout = absl::Seconds(10);
constexpr int64_t kTokenFileBytesMax = 64 * 1024;

struct LoginOptions {
  std::string server;
  std::string fingerprint;
  std::string token_file;
  std::string name;
  bool no_use = false;
};

struct LogoutOptions {
  std::string server;
};

// Returns the certificate of the chain with this fingerprint.
absl::StatusOr<tls::Certificate> FindInChain(const rpc::Address& server,
                                             const std::vector<tls::Certificate>& chain,
                                             const std::string& text) {
  TY_ASSIGN_OR_RETURN(const std::string fingerprint, tls::ReadFingerprint(text));
  for (const tls::Certificate& shown : chain) {
    if (shown.fingerprint == fingerprint) return shown;
  }
  return error::CertificateChanged(server.Target(), fingerprint, tls::PinOf(chain).fingerprint);
}

// Decides which certificate to trust: the one that the flag names, the one that was pinned before,
// or the one that the user accepts.
absl::StatusOr<tls::Certificate> ChoosePin(const Context& context, const LoginOptions& options,
                                           const rpc::Address& server,
                                           const std::vector<tls::Certificate>& chain,
                                           const std::string& pinned) {
  if (!options.fingerprint.empty()) return FindInChain(server, chain, options.fingerprint);
  if (!pinned.empty()) {
    TY_ASSIGN_OR_RETURN(const auto before, tls::ReadCertificates(pinned));
    return FindInChain(server, chain, before.front().fingerprint);
  }
  const tls::Certificate& pin = tls::PinOf(chain);
  if (!context.in_is_terminal) {
    return absl::FailedPreconditionError(
        absl::StrCat("nobody has confirmed the certificate of ", server.Target(),
                     ", whose fingerprint is ", pin.fingerprint,
                     "; compare it with that of the server's log, and give it as "
                     "--fingerprint"));
  }
  context.err << "The server at " << server.Target() << " is not known yet. Its certificate is of '"
              << pin.subject << "', with the fingerprint\n  " << pin.fingerprint
              << "\nIts administrator finds the same one in the server's log.\n";
  if (!Confirm(context, "Trust this server?", false)) {
    return absl::CancelledError("nothing was stored");
  }
  return pin;
}

absl::StatusOr<std::string> ReadToken(const Context& context, const LoginOptions& options) {
  std::string token;
  if (options.token_file == "-" || options.token_file.empty()) {
    const bool asks = options.token_file.empty();
    if (asks && !context.in_is_terminal) {
      return absl::InvalidArgumentError(
          "there is no terminal to ask for the token; give --token-file FILE, or - for the "
          "standard input");
    }
    context.interrupt.AllowExit(true);
    {
      // Whoever sees the question may type at once, and nothing of it is shown or lost.
      const output::Silence silence;
      if (asks) context.err << "Token (it is not shown): " << std::flush;
      std::getline(context.in, token);
    }
    context.interrupt.AllowExit(false);
    if (asks) context.err << "\n";
  } else {
    TY_ASSIGN_OR_RETURN(token, ReadFile(options.token_file, kTokenFileBytesMax));
  }
  absl::StripAsciiWhitespace(&token);
  if (IsPodTokenForm(token)) return token;
  TY_RETURN_IF_ERROR(CheckTokenForm(token, kUserTokenPrefix));
  return token;
}

// Returns the name for which to ask the server: the one that all own authorities give, or the
// host's.
std::string NameToExpect(const std::vector<tls::Certificate>& chain) {
  for (const std::string& host : chain.front().hosts) {
    if (host == tls::kServerName) return host;
  }
  return "";
}

// The context that is to name the server, in the config file as it is now.
struct NewContext {
  ConfigFile config;
  std::string name;
};

// Returns the name that a context gets from its host: an address of IPv6 has characters that no
// name may have.
std::string NameOfHost(const std::string& host) {
  std::string name;
  for (const char c : host) {
    const bool is_good = absl::ascii_isalnum(static_cast<unsigned char>(c));
    if (is_good || (!name.empty() && (c == '.' || c == '_' || c == '-' || c == ':'))) {
      name += c == ':' ? '-' : c;
    }
  }
  return name.substr(0, kContextNameBytesMax);
}

// Chooses the context: the one that the flag names, or the one that the server has already, or the
// one with the name of the host. A name that another server has is refused before anything is sent.
absl::StatusOr<NewContext> ChooseContext(const Context& context, const LoginOptions& options,
                                         const rpc::Address& server) {
  TY_ASSIGN_OR_RETURN(ConfigFile config, LoadConfig(context));
  const std::string address = server.ToString();
  std::string name = options.name;
  for (const std::string& known : config.Names()) {
    const bool is_same = config.Get(known, kServer).value_or("") == address;
    if (options.name.empty() && is_same && (name.empty() || known == config.Current())) {
      name = known;
    }
  }
  if (name.empty()) name = NameOfHost(server.host);
  const std::string other = config.Get(name, kServer).value_or("");
  if (!other.empty() && other != address) {
    return absl::AlreadyExistsError(
        absl::StrCat("there is a context '", name, "' already, for ", other,
                     "; give this server another name with --name, or forget that one with "
                     "`trainyard contexts rm ",
                     name, "`"));
  }
  TY_RETURN_IF_ERROR(config.Set(name, kServer, address));
  if (!options.no_use) TY_RETURN_IF_ERROR(config.Use(name));
  return NewContext{std::move(config), std::move(name)};
}

// Says where commands go from now on, which the environment may decide before the context does.
void TellContext(const Context& context, const NewContext& made, const rpc::Address& server) {
  const Surroundings& around = context.surroundings;
  if (made.config.Current() != made.name) {
    context.Say(absl::StrCat("the context '", made.name, "' is ", server.ToString(),
                             "; `trainyard contexts use ", made.name,
                             "` sends all commands there"));
    return;
  }
  context.Say(absl::StrCat("commands now go to '", made.name, "', ", server.ToString()));
  const char* variable = !around.server.empty()    ? "$TRAINYARD_SERVER"
                         : !around.context.empty() ? "$TRAINYARD_CONTEXT"
                                                   : nullptr;
  if (variable != nullptr) {
    context.Say(absl::StrCat("but ", variable, " is set, and goes before it"));
  }
}

Result Login(const Context& context, const LoginOptions& options) {
  TY_ASSIGN_OR_RETURN(const rpc::Address server, credentials::ReadServer(options.server));
  TY_ASSIGN_OR_RETURN(const NewContext made, ChooseContext(context, options, server));
  TY_ASSIGN_OR_RETURN(const auto chain, tls::ProbeServer(server.host, server.port, kSignInTimeout));
  const CredentialStore store(ConfigHome(context.surroundings));
  TY_ASSIGN_OR_RETURN(const std::string pinned, store.LoadPin(server));
  rpc::TlsOptions signed_in;
  TY_ASSIGN_OR_RETURN(const tls::Certificate pin,
                      ChoosePin(context, options, server, chain, pinned));
  signed_in.authority = pin.pem;
  signed_in.server_name = NameToExpect(chain);
  TY_ASSIGN_OR_RETURN(signed_in.token, ReadToken(context, options));
  if (IsPodTokenForm(signed_in.token)) {
    // It ends within the hour, so that a copy would be of no use.
    if (options.token_file.empty() || options.token_file == "-") {
      return absl::InvalidArgumentError(
          "the token of a pod is renewed in its file; name the file with --token-file");
    }
    signed_in.token_file = std::filesystem::absolute(options.token_file).string();
  }
  // The token is stored only if the server takes it.
  const auto link = link::ServerLink::Connect(server.ToString(), context.interrupt, kSignInTimeout,
                                              "", signed_in);
  if (!link.ok()) {
    return credentials::ExplainFailure(server, signed_in, link.status(), context.clock.Now());
  }
  TY_ASSIGN_OR_RETURN(const v1::WhoAmIResponse who,
                      (*link)->Call(&v1::AccessService::Stub::WhoAmI, v1::WhoAmIRequest()));
  TY_RETURN_IF_ERROR(store.Save(server, signed_in));
  context.Say(absl::StrCat(
      "signed in to ", server.ToString(), " as '", who.user(), "' (", output::RoleText(who.role()),
      "), for ", output::AgeText(output::ToTime(who.token_expire_time()) - context.clock.Now())));
  TY_RETURN_IF_ERROR(made.config.Save());
  TellContext(context, made, server);
  return link::kOk;
}

Result Logout(const Context& context, const LogoutOptions& options) {
  std::string text = options.server;
  if (text.empty()) {
    TY_ASSIGN_OR_RETURN(const ServerChoice choice, ChooseServer(context));
    text = choice.address;
  }
  TY_ASSIGN_OR_RETURN(const rpc::Address server, credentials::ReadServer(text));
  TY_RETURN_IF_ERROR(CredentialStore(ConfigHome(context.surroundings)).Forget(server));
  context.Say(absl::StrCat("forgot the token and the certificate of ", server.ToString(),
                           "; `trainyard tokens revoke` makes a token invalid for everybody"));
  return link::kOk;
}

}  // namespace

void AddLogin(VerbTable& verbs) {
  verbs.Add<LoginOptions>(
      "login", "Sign in to a server of another host, and send commands there",
      "lab.example:7070 --name lab",
      [](client::Flags& flags, LoginOptions& options) {
        flags.Word("SERVER", options.server, "HOST, HOST:PORT or tls://HOST:PORT").Required();
        flags.Value("--fingerprint", options.fingerprint,
                    "Fingerprint of the certificate to trust, in place of the question");
        flags.Value(
            "--token-file", options.token_file,
            "File with the token, or - for the standard input, in place of the question; the "
            "file of a pod's projected token is read again for each call");
        flags.Value("--name", options.name, "Name of the context for the server [the host]");
        flags.Switch("--no-use", options.no_use, "Keep sending commands where they go now");
      },
      Login);
  verbs.Add<LogoutOptions>(
      "logout", "Forget the token and the certificate of a server", "lab.example:7070",
      [](client::Flags& flags, LogoutOptions& options) {
        flags.Word("SERVER", options.server,
                   "The address that was given to login [the server that commands go to]");
      },
      Logout);
}

}  // namespace trainyard::commands
