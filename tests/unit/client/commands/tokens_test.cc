// Tests what the verbs of tokens tell, against a server that makes tokens and forgets them.
#include <gmock/gmock.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <ctime>

#include "common/base/files.h"
#include "tests/unit/client/command_runner.h"
#include "trainyard/v1/access.grpc.pb.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kDay = 86'400;

class TokenServer : public v1::AccessService::Service {
 public:
  explicit TokenServer(const std::string& address) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~TokenServer() override { server_->Shutdown(); }

  // Makes tokens that end in this time and some moments less, as if some had passed on the way.
  grpc::Status CreateToken(grpc::ServerContext*, const v1::CreateTokenRequest* request,
                           v1::CreateTokenResponse* response) override {
    response->set_text("ty_secret_text");
    response->mutable_token()->set_id("7f3a09c2e1b4");
    response->mutable_token()->set_user(request->user());
    const int64_t lifetime = request->has_lifetime() ? request->lifetime().seconds() : 90 * kDay;
    response->mutable_token()->mutable_expire_time()->set_seconds(std::time(nullptr) + lifetime -
                                                                  3);
    return grpc::Status::OK;
  }
  grpc::Status ListTokens(grpc::ServerContext*, const v1::ListTokensRequest*,
                          v1::ListTokensResponse*) override {
    return grpc::Status::OK;
  }

 private:
  std::unique_ptr<grpc::Server> server_;
};

class TokenVerbs : public ::testing::Test {
 protected:
  CommandRunner runner_{""};
  const std::string address_ = "unix:" + runner_.home.File("server.sock");
  TokenServer server_{address_};

  CommandResult Run(std::vector<std::string> args) {
    runner_.surroundings.server = address_;
    return runner_.Run(args);
  }
};

TEST_F(TokenVerbs, AFreshTokenHasItsWholeLifetime) {
  EXPECT_THAT(Run({"tokens", "create", "--user", "alice"}).err, HasSubstr("and ends in 90d; "));
  EXPECT_THAT(Run({"tokens", "create", "--expires-in", "24h"}).err, HasSubstr("and ends in 24h; "));
}

TEST_F(TokenVerbs, ATokenIsShownOnceOrItsFileIsNamed) {
  const CommandResult shown = Run({"tokens", "create", "--user", "alice"});
  EXPECT_EQ(shown.out, "ty_secret_text\n");
  EXPECT_THAT(shown.err, HasSubstr("it is shown this once"));
  const std::string file = runner_.home.File("token");
  const CommandResult written = Run({"tokens", "create", "--user", "alice", "--output-file", file});
  EXPECT_EQ(written.exit_code, 0) << written.err;
  EXPECT_EQ(written.out, "");
  EXPECT_THAT(written.err, AllOf(HasSubstr("; it is in " + file), Not(HasSubstr("shown"))));
  EXPECT_EQ(*ReadFile(file), "ty_secret_text\n");
}

TEST_F(TokenVerbs, AnEmptyListSaysWhoseTokensItHas) {
  EXPECT_THAT(Run({"tokens", "ls"}).err, AllOf(HasSubstr("you have no tokens"),
                                               HasSubstr("`trainyard tokens ls --all-users`")));
  EXPECT_THAT(Run({"tokens", "ls", "--all-users"}).err, HasSubstr("no tokens; "));
}

}  // namespace
}  // namespace trainyard::testing
