// Runs `trainyard doctor` inside the test, on the machine of the test, against a small server.
#include <gmock/gmock.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "common/base/version.h"
#include "tests/unit/client/command_runner.h"
#include "trainyard/v1/access.grpc.pb.h"
#include "trainyard/v1/fleet.grpc.pb.h"

namespace trainyard::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

// Knows the caller and its workers.
class SmallServer : public v1::AccessService::Service, public v1::FleetService::Service {
 public:
  explicit SmallServer(const std::string& address) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterService(static_cast<v1::AccessService::Service*>(this));
    builder.RegisterService(static_cast<v1::FleetService::Service*>(this));
    server_ = builder.BuildAndStart();
  }
  ~SmallServer() override { server_->Shutdown(); }

  v1::Worker& AddWorker() { return *workers_.add_workers(); }

  grpc::Status WhoAmI(grpc::ServerContext*, const v1::WhoAmIRequest*,
                      v1::WhoAmIResponse* response) override {
    response->set_user("anna");
    response->set_role(v1::ROLE_OPERATOR);
    response->set_server_version(Version());
    return grpc::Status::OK;
  }
  grpc::Status ListWorkers(grpc::ServerContext*, const v1::ListWorkersRequest*,
                           v1::ListWorkersResponse* response) override {
    *response = workers_;
    return grpc::Status::OK;
  }

 private:
  v1::ListWorkersResponse workers_;
  std::unique_ptr<grpc::Server> server_;
};

class DoctorTest : public ::testing::Test {
 protected:
  // Returns the message of the findings of a section, or of those of this level.
  std::vector<std::string> Messages(const CommandResult& result, const std::string& section,
                                    const std::string& level = "") {
    std::vector<std::string> messages;
    for (const json& finding : json::parse(result.out)) {
      if (finding["section"] != section) continue;
      if (level.empty() || finding["level"] == level) messages.push_back(finding["message"]);
    }
    return messages;
  }
  // Makes a program of this installation that does this.
  void MakeProgram(const std::string& name, const std::string& script) {
    const std::string path = runner_.home.Write(name, "#!/bin/sh\n" + script + "\n");
    ASSERT_EQ(chmod(path.c_str(), 0755), 0);
  }

  CommandRunner runner_{""};
};

TEST_F(DoctorTest, TellsOfTheServerAndItsWorkers) {
  const std::string address = "unix:" + runner_.home.File("own.sock");
  SmallServer server(address);
  v1::Worker& worker = server.AddWorker();
  worker.set_name("workers/alpha");
  worker.set_state(v1::WORKER_STATE_UNREACHABLE);
  runner_.surroundings.server = address;
  const CommandResult result = runner_.Run({"doctor", "-o", "json"});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(Messages(result, "server", "ok"),
              ::testing::Contains("To the server, you are anna, operator."));
  EXPECT_THAT(Messages(result, "server", "problem"),
              ::testing::ElementsAre("The worker alpha is out of contact (UNREACHABLE)."));
  for (const char* section :
       {"programs", "files", "services", "system", "GPUs", "network", "disks", "data sets"}) {
    EXPECT_FALSE(Messages(result, section).empty()) << section;
  }
}

TEST_F(DoctorTest, AServerThatIsNamedAndSilentIsAProblem) {
  runner_.surroundings.server = "unix:" + runner_.home.File("nobody.sock");
  const CommandResult result = runner_.Run({"doctor", "--brief", "--no-color"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("server\n  problem  "));
  EXPECT_THAT(result.out, HasSubstr("nobody.sock"));
  EXPECT_THAT(result.out, Not(HasSubstr("  ok  ")));
  EXPECT_THAT(result.err, HasSubstr("1 problem"));
}

TEST_F(DoctorTest, SettingsWithAMistakeAreTold) {
  MakeProgram("trainyard-server",
              "if [ \"$1\" = --version ]; then echo trainyard-server 0.0+old; exit; fi\n"
              "echo \"$2:1:1: there is no flag 'listn'\" >&2; exit 2");
  ASSERT_TRUE(WriteFileAtomically(runner_.surroundings.server_settings,
                                  "listn: x\nstate_dir: " + runner_.home.path() + "\n")
                  .ok());
  const CommandResult result = runner_.Run({"doctor", "-o", "json"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("server.yaml:1:1: there is no flag 'listn'"));
  EXPECT_THAT(Messages(result, "programs", "problem"),
              ::testing::ElementsAre(HasSubstr("trainyard-server has the version 0.0+old")));
}

TEST_F(DoctorTest, WhatUpRemembersAndKeepsIsLookedAt) {
  const std::string state = runner_.home.File(".local/state/trainyard");
  ASSERT_TRUE(MakeDirectories(state + "/server", 0700).ok());
  ASSERT_EQ(chmod((state + "/server").c_str(), 0770), 0);
  ASSERT_TRUE(WriteFileAtomically(state + "/up.json",
                                  R"({"format": 1, "flags": {"--dataset-dir": "/no/where"}})")
                  .ok());
  const CommandResult result = runner_.Run({"doctor", "-o", "json"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(Messages(result, "data sets", "problem"),
              ::testing::ElementsAre(
                  HasSubstr("`trainyard up` names /no/where as --dataset_dir, but there is no")));
  EXPECT_THAT(Messages(result, "files", "problem"),
              ::testing::ElementsAre(HasSubstr("may write into " + state + "/server (mode 0770)")));
  EXPECT_THAT(Messages(result, "services", "ok"),
              ::testing::Contains(HasSubstr("`trainyard up` does not run on " + state)));
}

}  // namespace
}  // namespace trainyard::testing
