// The port for other hosts, under attack: strangers, tokens and certificates that are none, workers
// that claim to be others, peers that break the rules of HTTP/2 or never read. Nothing crashes,
// nobody learns anything, and others are served meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <set>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/env.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/rpc/status.h"
#include "tests/integration/stranger.h"
#include "tests/integration/tls_yard.h"
#include "tests/testing/raw_call.h"
#include "tests/testing/wait.h"
#include "trainyard/v1/access.grpc.pb.h"
#include "trainyard/v1/agent.grpc.pb.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class TlsAttackTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // The server closes connections to which a test still writes.
    std::signal(SIGPIPE, SIG_IGN);
    host_.StartServer();
  }
  void TearDown() override {
    if (host_.yard().server() == nullptr) return;
    EXPECT_TRUE(host_.yard().server()->running()) << "the server has died";
    EXPECT_EQ(host_.yard().Cli({"ls"}).exit_code, 0) << "the server does not answer";
  }

  static std::string ReasonOf(const grpc::Status& status) {
    return ErrorReason(rpc::FromGrpcStatus(status));
  }
  static std::string ReasonOf(const absl::Status& status) { return ErrorReason(status); }
  tls::KeyPair Worker(const std::string& name) {
    return TlsYard::WorkerIdentity(host_.Authority(), name, Clock::Real()->Now());
  }
  bool IsServedAs(const tls::KeyPair& identity) {
    return IsServed(host_.port(), {.identity = identity});
  }
  static absl::StatusOr<std::string> Register(v1::AgentService::Stub& agents,
                                              const std::string& worker) {
    grpc::ClientContext context;
    rpc::SetTimeout(context, kPatience);
    v1::RegisterWorkerRequest request;
    request.set_worker(worker);
    request.set_uid(absl::StrCat("uid-of-", worker));
    request.set_version("1.0");
    v1::RegisterWorkerResponse response;
    const grpc::Status status = agents.RegisterWorker(&context, request, &response);
    if (!status.ok()) return rpc::FromGrpcStatus(status);
    return response.session();
  }

  TlsYard host_;
};

TEST_F(TlsAttackTest, StrangersAreToldToSignInByEachCall) {
  const auto stranger = host_.ChannelWith("");
  for (const std::string& method : AllMethods()) {
    const grpc::Status status = RawCall(stranger, method);
    const bool joins = absl::EndsWith(method, "/JoinWorker");
    EXPECT_EQ(ReasonOf(status), joins ? "TOKEN_UNKNOWN" : "NOT_SIGNED_IN")
        << method << ": " << status.error_message();
  }
  // Strangers cannot fill the audit log with calls. Whoever tries to join without an invitation is
  // noted as refused.
  const std::string audit = host_.yard().Cli({"audit"}).out;
  EXPECT_THAT(audit, Not(HasSubstr("JobService")));
  EXPECT_THAT(audit, HasSubstr("refused: the token is not one of this server"));
}

TEST_F(TlsAttackTest, TokensThatAreNoneOrHaveEndedSignNobodyIn) {
  const std::string good = host_.CreateToken();
  const std::string brief = host_.CreateToken({"--expires-in", "1s"});
  const auto expired = host_.ChannelWith(brief);
  EXPECT_TRUE(WaitUntil([&] { return !TlsYard::WhoAmI(*expired).ok(); }, kPatience));
  EXPECT_EQ(ReasonOf(TlsYard::WhoAmI(*expired)), "TOKEN_EXPIRED");
  const std::string revoked = host_.CreateToken();
  std::string user;
  const auto ended = host_.ChannelWith(revoked);
  ASSERT_TRUE(TlsYard::WhoAmI(*ended, &user).ok());
  EXPECT_FALSE(user.empty());
  const std::string listed = host_.yard().Cli({"tokens", "ls", "-o", "name"}).out;
  const std::string id = listed.substr(0, listed.find('\n'));  // the newest
  ASSERT_EQ(host_.yard().Cli({"tokens", "revoke", id}).exit_code, 0);
  EXPECT_EQ(ReasonOf(TlsYard::WhoAmI(*ended)), "TOKEN_REVOKED");
  // An invitation is no user's token. After five failures, the next ones have to wait, whatever is
  // wrong with them.
  const std::string invitation =
      host_.yard().Cli({"workers", "invite", "gamma", "-o", "name"}).out.substr(0, 47);
  EXPECT_EQ(ReasonOf(TlsYard::WhoAmI(*host_.ChannelWith(invitation))), "TOKEN_UNKNOWN");
  std::set<std::string> reasons;
  for (const std::string& text :
       {good.substr(0, 46), good + "A", "tyk_" + std::string(43, 'A'), std::string(5000, 'x')}) {
    const auto other = host_.ChannelWith(text);
    for (int i = 0; i < 3; ++i) reasons.insert(ReasonOf(TlsYard::WhoAmI(*other)));
  }
  EXPECT_EQ(reasons, (std::set<std::string>{"TOKEN_UNKNOWN", "SIGN_IN_DELAYED"}));
  EXPECT_TRUE(TlsYard::WhoAmI(*host_.ChannelWith(good)).ok()) << "a valid token passes at once";
  // No token is written anywhere.
  for (const char* file : {"access.db", "access.db-wal"}) {
    const std::string path = JoinPath(host_.yard().server_state_dir(), file);
    const std::string bytes = ReadFile(path).value_or("");
    EXPECT_FALSE(absl::StrContains(bytes, good.substr(4)));
  }
  EXPECT_THAT(host_.yard().server()->Err(), Not(HasSubstr(good.substr(4, 10))));
}

TEST_F(TlsAttackTest, AUsersTokenIsNoWorkerAndAWorkersCertificateNoUser) {
  const auto user = host_.ChannelWith(host_.CreateToken());
  const auto worker = host_.ChannelOf(Worker("alpha"));
  for (const std::string& method : AllMethods()) {
    if (absl::EndsWith(method, "/JoinWorker")) continue;
    const bool is_workers = absl::StrContains(method, "AgentService");
    const grpc::Status status = RawCall(is_workers ? user : worker, method);
    EXPECT_EQ(ReasonOf(status), is_workers ? "NOT_A_WORKER" : "NOT_A_USER")
        << method << ": " << status.error_message();
  }
  // A token beside the certificate changes nothing, and neither does a user to act for.
  grpc::ClientContext context;
  rpc::SetTimeout(context, kPatience);
  context.AddMetadata("authorization", "Bearer " + host_.CreateToken());
  context.AddMetadata("trainyard-as", "root");
  v1::WhoAmIResponse who;
  EXPECT_EQ(ReasonOf(v1::AccessService::NewStub(worker)->WhoAmI(&context, {}, &who)), "NOT_ADMIN");
}

TEST_F(TlsAttackTest, AWorkerIsOnlyTheOneOfItsCertificate) {
  const auto alpha = v1::AgentService::NewStub(host_.ChannelOf(Worker("alpha")));
  const auto beta = v1::AgentService::NewStub(host_.ChannelOf(Worker("beta")));
  const auto session = Register(*alpha, "alpha");
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(ReasonOf(Register(*beta, "alpha").status()), "NOT_THIS_WORKER");
  for (const char* name : {"", ".", "../alpha", "alpha/..", "Alpha", "a b", "\xff\xfe"}) {
    EXPECT_FALSE(Register(*beta, name).ok()) << name;
  }
  const auto call = [&](auto method, auto request) {
    request.set_session(*session);
    grpc::ClientContext context;
    rpc::SetTimeout(context, kPatience);
    return ReasonOf(method(context, request));
  };
  EXPECT_EQ(call(
                [&](auto& context, const auto& request) {
                  v1::SyncWorkerResponse response;
                  return beta->SyncWorker(&context, request, &response);
                },
                v1::SyncWorkerRequest()),
            "UNKNOWN_SESSION");
  v1::AppendResponse appended;
  EXPECT_EQ(call([&](auto& context,
                     const auto& request) { return beta->AppendLog(&context, request, &appended); },
                 v1::AppendLogRequest()),
            "UNKNOWN_SESSION");
  EXPECT_EQ(call(
                [&](auto& context, const auto& request) {
                  v1::CommitCheckpointResponse response;
                  return beta->CommitCheckpoint(&context, request, &response);
                },
                v1::CommitCheckpointRequest()),
            "UNKNOWN_SESSION");
  // A renewal is for the own name, whatever the request asks for.
  grpc::ClientContext context;
  rpc::SetTimeout(context, kPatience);
  v1::RenewCertificateRequest renewal;
  renewal.set_certificate_request(tls::MakeWorkerRequest(tls::MakeKey(), "alpha").value_or(""));
  v1::RenewCertificateResponse renewed;
  const grpc::Status status = beta->RenewCertificate(&context, renewal, &renewed);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("only 'beta' alone may be asked for"));
}

TEST_F(TlsAttackTest, CertificatesOfOthersAndExpiredOnesAreRefused) {
  const absl::Time now = Clock::Real()->Now();
  EXPECT_TRUE(IsServedAs(Worker("alpha")));
  EXPECT_FALSE(
      IsServedAs(TlsYard::WorkerIdentity(tls::MakeAuthority("evil.example", now), "alpha", now)));
  const absl::Duration past = tls::kWorkerLifetime + absl::Minutes(1);
  EXPECT_FALSE(IsServedAs(TlsYard::WorkerIdentity(host_.Authority(), "alpha", now - past)));
  const absl::Duration ahead = tls::kBackdated + absl::Hours(1);
  EXPECT_FALSE(IsServedAs(TlsYard::WorkerIdentity(host_.Authority(), "alpha", now + ahead)));
  // The server's own certificate is no client's, and the authority's is nobody's.
  const std::string folder = JoinPath(host_.yard().server_state_dir(), "tls");
  EXPECT_FALSE(IsServedAs({ReadFile(JoinPath(folder, "server.key")).value_or(""),
                           ReadFile(JoinPath(folder, "server.pem")).value_or("")}));
  EXPECT_FALSE(IsServedAs(host_.Authority()));
  // A worker's certificate signs no other one.
  const tls::KeyPair alpha = Worker("alpha");
  EXPECT_FALSE(IsServedAs(TlsYard::WorkerIdentity(alpha, "beta", now)));
}

TEST_F(TlsAttackTest, AConnectionEndsWithItsCertificate) {
  // A machine may be so slow that a certificate has ended before it is used.
  for (const int seconds : {2, 10, 40}) {
    const absl::Time made = Clock::Real()->Now() - tls::kWorkerLifetime + absl::Seconds(seconds);
    const auto agents = v1::AgentService::NewStub(
        host_.ChannelOf(TlsYard::WorkerIdentity(host_.Authority(), "alpha", made)));
    if (!Register(*agents, "alpha").ok()) continue;
    EXPECT_TRUE(WaitUntil([&] { return !Register(*agents, "alpha").ok(); }, kPatience));
    EXPECT_TRUE(absl::IsUnavailable(Register(*agents, "alpha").status()));
    return;
  }
  ADD_FAILURE() << "no certificate was taken";
}

TEST_F(TlsAttackTest, OldVersionsPlainTextAndOtherProtocolsAreRefused) {
  EXPECT_TRUE(IsServed(host_.port(), {}));
  EXPECT_FALSE(
      IsServed(host_.port(), {.version_min = TLS1_2_VERSION, .version_max = TLS1_2_VERSION}));
  EXPECT_FALSE(IsServed(host_.port(), {.protocol = std::string("\x08http/1.0")}));
  EXPECT_FALSE(IsServed(host_.port(), {.protocol = ""}));
  for (const std::string& text : {absl::StrCat(kPreface, Frame(kSettingsFrame, 0, 0, "")),
                                  std::string("GET / HTTP/1.1\r\n\r\n"), std::string(4096, '\0'),
                                  std::string("\x16\x03\x01\xff\xff") + std::string(65535, 'x')}) {
    const UniqueFd fd = ConnectFrom("127.0.0.1", host_.port());
    ASSERT_TRUE(fd.valid());
    (void)!send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL);
    char answer[4096];
    const ssize_t got = recv(fd.get(), answer, sizeof(answer), 0);
    // An alert of TLS tells nothing but that this was none.
    EXPECT_LE(got, 7);
    EXPECT_TRUE(got <= 0 || answer[0] == 0x15);
  }
}

TEST_F(TlsAttackTest, HeadersWithoutEndTakeNoMemoryAndNobodysTime) {
  constexpr int kFrames = 4000;  // of 16 KiB
  const int64_t before = ResidentBytes(host_.yard().server()->pid());
  std::thread flood([port = host_.port()] {
    const auto client = OpenTls("127.0.0.2", port);
    if (client == nullptr) return;
    client->Write(absl::StrCat(kPreface, Frame(kSettingsFrame, 0, 0, "")));
    client->Write(Frame(kHeadersFrame, 0, 1, CallHeaders("/trainyard.v1.JobService/ListJobs")));
    std::string headers;
    while (headers.size() < 16'000) headers += Header(absl::StrCat("x-", headers.size()), "value");
    for (int i = 0; i < kFrames; ++i) {
      if (!client->Write(Frame(kContinuationFrame, 0, 1, headers))) break;
    }
  });
  const auto other = host_.ChannelWith(host_.CreateToken());
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(TlsYard::WhoAmI(*other).ok());
  flood.join();
  EXPECT_TRUE(TlsYard::WhoAmI(*other).ok());
  EXPECT_LT(ResidentBytes(host_.yard().server()->pid()) - before, int64_t{64} << 20);
}

TEST_F(TlsAttackTest, CallsThatNeverEndTakeNoMemory) {
  constexpr uint32_t kCalls = 200;  // a connection may have so many and more at a time
  constexpr size_t kBytes = 1'000'000;
  const int64_t before = ResidentBytes(host_.yard().server()->pid());
  const auto client = OpenTls("127.0.0.2", host_.port());
  ASSERT_NE(client, nullptr);
  // The server says how much it takes, and is not asked here. Each call announces a message of 4
  // MB, and sends the first quarter of it.
  client->Write(absl::StrCat(kPreface, Frame(kSettingsFrame, 0, 0, "")));
  bool is_ended = false;
  for (uint32_t i = 0; i < kCalls && !is_ended; ++i) {
    const uint32_t stream = 2 * i + 1;
    const std::string head("\0\0\x3d\x09\0", 5);
    std::string frames = absl::StrCat(Frame(kHeadersFrame, kEndHeaders, stream,
                                            CallHeaders("/trainyard.v1.JobService/CreateJob")),
                                      Frame(kDataFrame, 0, stream, head));
    for (size_t sent = 0; sent < kBytes; sent += 16'000) {
      absl::StrAppend(&frames, Frame(kDataFrame, 0, stream, std::string(16'000, 'x')));
    }
    is_ended = !client->Write(frames);
  }
  EXPECT_TRUE(is_ended);
  EXPECT_LT(ResidentBytes(host_.yard().server()->pid()) - before, int64_t{64} << 20);
}

TEST_F(TlsAttackTest, APeerThatNeverReadsTakesLittle) {
  constexpr uint32_t kCalls = 200'000;  // of 15 bytes each
  const int64_t before = ResidentBytes(host_.yard().server()->pid());
  const auto silent = OpenTls("127.0.0.2", host_.port());
  ASSERT_NE(silent, nullptr);
  // The socket gives up soon once the server reads no further.
  const timeval soon = {1, 0};
  ASSERT_EQ(setsockopt(silent->socket(), SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof(soon)), 0);
  silent->Write(absl::StrCat(kPreface, Frame(kSettingsFrame, 0, 0, "")));
  constexpr uint8_t kCall = kEndHeaders | kEndStream;
  silent->Write(
      Frame(kHeadersFrame, kCall, 1, CallHeaders("/trainyard.v1.JobService/ListJobs", true)));
  std::string calls;
  for (uint32_t i = 1; i < kCalls; ++i) {
    calls += Frame(kHeadersFrame, kCall, 2 * i + 1, kSameHeaders);
    if (i % 100 == 0 && !silent->Write(std::exchange(calls, ""))) break;
  }
  const auto other = host_.ChannelWith(host_.CreateToken());
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(TlsYard::WhoAmI(*other).ok());
  EXPECT_LT(ResidentBytes(host_.yard().server()->pid()) - before, int64_t{128} << 20);
}

// Connects as often as TRAINYARD_TLS_CONNECTIONS says, or some hundred times.
int ConnectionsToMake() {
  const char* text = getenv("TRAINYARD_TLS_CONNECTIONS");
  int count = 400;
  if (text != nullptr && !absl::SimpleAtoi(text, &count)) ADD_FAILURE() << text;
  return count;
}

TEST_F(TlsAttackTest, WhoeverConnectsManyTimesTakesNothingFromOthers) {
  constexpr size_t kKept = 700;  // below the limit of descriptors of this process
  const auto other = host_.ChannelWith(host_.CreateToken());
  std::atomic<bool> is_over = false;
  std::thread mallory([&is_over, port = host_.port()] {
    std::vector<std::unique_ptr<tls::TlsClient>> open;
    std::vector<UniqueFd> silent;
    for (int i = 0; i < ConnectionsToMake(); ++i) {
      // One half makes the handshake and never a call, the other half not even that.
      if (i % 2 == 0) {
        auto client = OpenTls("127.0.0.2", port);
        if (client != nullptr && open.size() < kKept / 2) open.push_back(std::move(client));
      } else {
        UniqueFd fd = ConnectFrom("127.0.0.2", port);
        if (fd.valid() && silent.size() < kKept / 2) silent.push_back(std::move(fd));
      }
    }
    is_over = true;
  });
  int calls = 0;
  while (!is_over || calls < 100) {
    EXPECT_TRUE(TlsYard::WhoAmI(*other).ok());
    ++calls;
  }
  // A new connection of another host has its place too.
  EXPECT_TRUE(TlsYard::WhoAmI(*host_.ChannelWith(host_.CreateToken())).ok());
  mallory.join();
  RecordProperty("calls", calls);
}

TEST_F(TlsAttackTest, NamesAreNoPaths) {
  Laptop laptop;
  const auto cli = [this](const std::vector<std::string>& args) {
    return host_.yard().Cli(args).exit_code;
  };
  for (const char* name : {"../gamma", "a/b", ".", "Gamma", "x;y"}) {
    EXPECT_EQ(cli({"workers", "invite", name}), 2) << name;
    EXPECT_EQ(cli({"tokens", "revoke", name}), 3) << name;
  }
  EXPECT_EQ(cli({"tokens", "create", "--user", "../root"}), 2);
  EXPECT_EQ(cli({"tokens", "create", "--user", ""}), 0) << "nobody named is oneself";
  for (const char* server : {"../../etc:7070", "a/b", "tls://../x:1", "lab:7070/..", "", "lab:0"}) {
    const ProcessResult result = laptop.Run({"login", server, "--token-file", "/dev/null"});
    EXPECT_EQ(result.exit_code, 2) << server << ": " << result.err;
  }
  EXPECT_FALSE(FileExists(laptop.home().File(".config")));
  // A worker tries such names too when it asks the server itself, with an invitation for any name.
  const std::string token = host_.yard().Cli({"workers", "invite", "-o", "name"}).out.substr(0, 47);
  const auto agents = v1::AgentService::NewStub(host_.ChannelWith(token));
  for (const std::string& name : {std::string(), std::string("../x"), std::string("a\0b", 3),
                                  std::string(300, 'a'), std::string("a/../b")}) {
    grpc::ClientContext context;
    rpc::SetTimeout(context, kPatience);
    v1::JoinWorkerRequest request;
    request.set_worker(name);
    request.set_certificate_request("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n");
    v1::JoinWorkerResponse response;
    EXPECT_EQ(agents->JoinWorker(&context, request, &response).error_code(),
              grpc::StatusCode::INVALID_ARGUMENT);
  }
  EXPECT_THAT(host_.yard().Cli({"tokens", "ls", "--all-users"}).out, Not(HasSubstr("used")))
      << "a request that is wrong uses no invitation up";
}

}  // namespace
}  // namespace trainyard::testing
