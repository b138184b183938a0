// Tests word of jobs with the real programs: a webhook whose signature another program checks,
// mail, and a server that is killed in the middle.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "nlohmann/json.hpp"
#include "tests/integration/yard.h"
#include "tests/testing/http_receiver.h"
#include "tests/testing/process.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

// Checks the signature as docs/notifications.md tells receivers to.
constexpr char kVerify[] = R"(
import hashlib, hmac, sys
key, time, body, signature = sys.argv[1:]
text = time + "." + body
wanted = hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()
sys.exit(0 if hmac.compare_digest("sha256=" + wanted, signature) else 1)
)";

class Notify : public ::testing::Test {
 protected:
  Notify() {
    const std::string sendmail = files_.File("sendmail");
    EXPECT_TRUE(WriteFileAtomically(sendmail,
                                    absl::StrCat("#!/bin/sh\necho \"$@\" >> ", files_.File("args"),
                                                 "\ncat >> ", files_.File("mail"), "\n"),
                                    0755)
                    .ok());
    Yard::Options options;
    options.server_flags = {"--notify_webhooks", "127.0.0.1",
                            "--sendmail",        sendmail,
                            "--mail_from",       "trainyard@lab.example"};
    yard_.emplace(options);
    yard_->Start();
  }

  bool IsSigned(const HttpReceiver::Request& request, const std::string& key) {
    Process::Options verify;
    verify.args = {"/usr/bin/python3",
                   "-c",
                   kVerify,
                   key,
                   request.headers.at("x-trainyard-timestamp"),
                   request.body,
                   request.headers.at("x-trainyard-signature")};
    const auto result = RunProcess(verify, files_.path(), kPatience);
    return result.ok() && result->exit_code == 0;
  }

  TempDir files_;
  HttpReceiver receiver_;
  std::optional<Yard> yard_;
};

TEST_F(Notify, AnEndReachesAWebhookAndMailAndSaysWhatHappened) {
  const ProcessResult added =
      yard_->Cli({"notify", "add", "--webhook", receiver_.Url("/hooks/key7"), "--name", "chat"});
  ASSERT_EQ(added.exit_code, 0) << added.err;
  const std::string key(absl::StripAsciiWhitespace(added.out));
  EXPECT_EQ(yard_->Cli({"notify", "test", "chat"}).exit_code, 0);
  ASSERT_EQ(receiver_.requests().size(), 1u);
  EXPECT_TRUE(IsSigned(receiver_.requests()[0], key));
  EXPECT_FALSE(IsSigned(receiver_.requests()[0], key + "x"));

  const ProcessResult run = yard_->Cli({"run", "--name", "breaks", "--notify", "anna@lab.example",
                                        "--", "sh", "-c", "echo it broke; exit 7"});
  EXPECT_EQ(run.exit_code, 7) << run.err;
  ASSERT_TRUE(receiver_.WaitFor(2));
  const auto request = receiver_.requests()[1];
  EXPECT_EQ(request.path, "/hooks/key7");
  EXPECT_TRUE(IsSigned(request, key));
  const Json body = Json::parse(request.body);
  EXPECT_EQ(body["event"], "end");
  EXPECT_EQ(body["delivery"], request.headers.at("x-trainyard-delivery"));
  EXPECT_EQ(body["job"]["state"], "FAILED");
  EXPECT_EQ(body["failure"]["reason"], "PROGRAM_FAILED");
  EXPECT_EQ(body["failure"]["exit_code"], 7);
  EXPECT_THAT(body["text"].get<std::string>(), HasSubstr("breaks (jobs/1) failed after"));
  EXPECT_THAT(body["text"].get<std::string>(), HasSubstr("trainyard show 1"));

  ASSERT_TRUE(WaitUntil([&] {
    const auto mail = ReadFile(files_.File("mail"));
    return mail.ok() && absl::StrContains(*mail, "trainyard show 1");
  }));
  EXPECT_EQ(*ReadFile(files_.File("args")), "-i -t\n");
  EXPECT_THAT(*ReadFile(files_.File("mail")), HasSubstr("To: anna@lab.example\n"));
  EXPECT_THAT(*ReadFile(files_.File("mail")), HasSubstr("it broke"));

  const ProcessResult list = yard_->Cli({"notify", "ls"});
  EXPECT_THAT(list.out, HasSubstr("delivered (HTTP 200)"));
  EXPECT_THAT(list.out, Not(HasSubstr("key7")));
  EXPECT_THAT(yard_->Cli({"notify", "log"}).out, HasSubstr("anna@lab.example"));
  EXPECT_EQ(receiver_.requests().size(), 2u)
      << "a failure that is the end is told once: " << receiver_.requests().back().body;
}

TEST_F(Notify, AServerThatIsKilledTellsTheRestAfterItsStart) {
  ASSERT_EQ(
      yard_->Cli({"notify", "add", "--webhook", receiver_.Url(), "--on", "start,end"}).exit_code,
      0);
  receiver_.AnswerWith({500, 500, 500});
  EXPECT_EQ(yard_->Cli({"run", "--", "true"}).exit_code, 0);
  ASSERT_TRUE(receiver_.WaitFor(2));
  yard_->KillServer();
  const size_t before = receiver_.requests().size();
  yard_->StartServer();
  const auto told = [&] {
    const Json list = yard_->CliJson({"notify", "log"});
    size_t delivered = 0;
    for (const Json& delivery : list)
      delivered += delivery["state"] == "DELIVERY_STATE_DELIVERED" ? 1 : 0;
    return delivered == 2;
  };
  EXPECT_TRUE(WaitUntil(told)) << yard_->Cli({"notify", "log"}).out;
  EXPECT_GT(receiver_.requests().size(), before);
  std::set<std::string> ids;
  for (const auto& request : receiver_.requests()) {
    ids.insert(request.headers.at("x-trainyard-delivery"));
  }
  EXPECT_EQ(ids.size(), 2u) << "a message that is sent again keeps its id";
}

TEST_F(Notify, ForbiddenAddressesAreRefusedWithWhatToDo) {
  const ProcessResult refused =
      yard_->Cli({"notify", "add", "--webhook", "http://169.254.169.254/latest"});
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.err, HasSubstr("--notify_webhooks"));
  EXPECT_NE(yard_->Cli({"run", "--notify", "https://other.example/x", "--", "true"}).exit_code, 0);
  EXPECT_NE(yard_->Cli({"run", "--notify", "nobody", "--", "true"}).exit_code, 0);
}

}  // namespace
}  // namespace trainyard::testing
