// Reads the port from the file that says where the server listens.
#include "tests/integration/tls_yard.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/files.h"
#include "common/rpc/address.h"
#include "common/rpc/status.h"
#include "common/tls/certificate.h"
#include "trainyard/v1/access.grpc.pb.h"

namespace trainyard::testing {
namespace {

Yard::Options OptionsOf(uint16_t port, const std::string& state_dir) {
  Yard::Options options;
  options.server_state_dir = state_dir;
  options.server_flags = {"--listen", absl::StrCat("tls:127.0.0.1:", port)};
  return options;
}

}  // namespace

TlsYard::TlsYard(uint16_t port, const std::string& state_dir)
    : yard_(OptionsOf(port, state_dir)), port_(port) {}

void TlsYard::StartServer() {
  yard_.StartServer();
  const std::string ready = ReadFile(JoinPath(yard_.server_state_dir(), "ready")).value_or("");
  for (const absl::string_view line : absl::StrSplit(ready, '\n')) {
    const auto parsed = rpc::ParseAddress(line);
    if (parsed.ok() && parsed->kind == rpc::Address::Kind::kTls) port_ = parsed->port;
  }
  ASSERT_NE(port_, 0) << ready;
}

std::string TlsYard::target() const {
  return absl::StrCat("127.0.0.1:", port_);
}
std::string TlsYard::address() const {
  return absl::StrCat("tls://", target());
}

std::string TlsYard::fingerprint() const {
  std::string text =
      ReadFile(JoinPath(yard_.server_state_dir(), "tls/fingerprint")).value_or("none");
  absl::StripAsciiWhitespace(&text);
  return text;
}

tls::KeyPair TlsYard::Authority() const {
  const std::string folder = JoinPath(yard_.server_state_dir(), "tls");
  return {ReadFile(JoinPath(folder, "authority.key")).value_or(""),
          ReadFile(JoinPath(folder, "authority.pem")).value_or("")};
}

std::string TlsYard::CreateToken(const std::vector<std::string>& flags) {
  std::vector<std::string> args = {"tokens", "create"};
  args.insert(args.end(), flags.begin(), flags.end());
  const ProcessResult made = yard_.Cli(args);
  EXPECT_EQ(made.exit_code, 0) << made.err;
  return std::string(absl::StripAsciiWhitespace(made.out));
}

std::string TlsYard::SecretFile(const std::string& text) {
  const std::string path = dir_.Write(absl::StrCat("secret-", ++files_), text);
  EXPECT_EQ(chmod(path.c_str(), 0600), 0);
  return path;
}

tls::KeyPair TlsYard::WorkerIdentity(const tls::KeyPair& authority, const std::string& worker,
                                     absl::Time now) {
  tls::KeyPair identity;
  identity.key = tls::MakeKey();
  const auto request = tls::MakeWorkerRequest(identity.key, worker);
  EXPECT_TRUE(request.ok()) << request.status();
  const auto made = tls::SignWorkerRequest(authority, request.value_or(""), worker, now);
  EXPECT_TRUE(made.ok()) << made.status();
  identity.certificate = made.value_or("");
  return identity;
}

std::shared_ptr<grpc::Channel> TlsYard::ChannelWith(const std::string& token) const {
  rpc::TlsOptions options;
  options.authority = Authority().certificate;
  options.server_name = std::string(tls::kServerName);
  options.token = token;
  const auto channel = rpc::MakeChannel(address(), rpc::Keepalive::kNone, {}, options);
  EXPECT_TRUE(channel.ok()) << channel.status();
  return channel.value_or(nullptr);
}

std::shared_ptr<grpc::Channel> TlsYard::ChannelOf(const tls::KeyPair& identity) {
  const std::string folder = dir_.File(absl::StrCat("identity-", ++files_));
  EXPECT_TRUE(MakeDirectories(folder, 0700).ok());
  const std::vector<std::pair<std::string, std::string>> files = {
      {"worker.key", identity.key},
      {"worker.pem", identity.certificate},
      {"authority.pem", Authority().certificate}};
  for (const auto& [name, text] : files) {
    EXPECT_TRUE(WriteFileAtomically(JoinPath(folder, name), text, 0600).ok());
  }
  rpc::TlsOptions options;
  options.worker_folder = folder;
  options.server_name = std::string(tls::kServerName);
  const auto channel = rpc::MakeChannel(address(), rpc::Keepalive::kNone, {}, options);
  EXPECT_TRUE(channel.ok()) << channel.status();
  return channel.value_or(nullptr);
}

absl::Status TlsYard::WhoAmI(grpc::Channel& channel, std::string* user) {
  // The stub does not own a channel that somebody else keeps.
  const std::shared_ptr<grpc::Channel> borrowed(&channel, [](grpc::Channel*) {});
  grpc::ClientContext context;
  rpc::SetTimeout(context, kPatience);
  v1::WhoAmIResponse who;
  const grpc::Status status = v1::AccessService::NewStub(borrowed)->WhoAmI(&context, {}, &who);
  if (user != nullptr) *user = who.user();
  return rpc::FromGrpcStatus(status);
}

Process::Options Laptop::Client(const std::vector<std::string>& args) const {
  Process::Options options;
  options.args = {Yard::Binary("trainyard")};
  options.args.insert(options.args.end(), args.begin(), args.end());
  // The laptop has nothing of what the machine of the test has set up.
  options.environment = {{"HOME", home_.path()},    {"XDG_CONFIG_HOME", ""},
                         {"XDG_STATE_HOME", ""},    {"TRAINYARD_SERVER", ""},
                         {"TRAINYARD_CONTEXT", ""}, {"NO_COLOR", "1"}};
  options.environment.insert(environment_.begin(), environment_.end());
  return options;
}

ProcessResult Laptop::Run(const std::vector<std::string>& args, const std::string& input) {
  Process::Options options = Client(args);
  if (!input.empty()) options.stdin_path = home_.Write("stdin", input);
  auto result = RunProcess(std::move(options), home_.path(), kPatience);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : ProcessResult();
}

std::unique_ptr<Process> Laptop::Start(const std::vector<std::string>& args,
                                       const std::string& name, const std::string& terminal_path) {
  Process::Options options = Client(args);
  options.terminal_path = terminal_path;
  options.stdout_path = home_.File(name + ".out");
  if (terminal_path.empty()) options.stderr_path = home_.File(name + ".err");
  auto process = Process::Start(std::move(options));
  EXPECT_TRUE(process.ok()) << process.status();
  return process.ok() ? *std::move(process) : nullptr;
}

std::string Laptop::Written(const std::string& name) const {
  return ReadFile(home_.File(name)).value_or("");
}

std::string Laptop::Config() const {
  return ReadFile(home_.File(".config/trainyard/config.yaml")).value_or("");
}

}  // namespace trainyard::testing
