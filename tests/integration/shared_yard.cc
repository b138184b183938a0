// Starts a server with --shared on a socket in a folder that is open to all.
#include "tests/integration/shared_yard.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace trainyard::testing {
namespace {

Yard::Options OptionsOf(const std::string& address) {
  Yard::Options options;
  options.server_flags = {"--listen", address, "--shared"};
  return options;
}

}  // namespace

SharedYard::SharedYard() : yard_(OptionsOf(address())) {}

std::string SharedYard::WhyNot() {
  if (geteuid() != 0) return "only root can become other users";
  // Others must be able to run the client.
  const ProcessResult result = As(kNobody, {"version"});
  if (result.exit_code == 0 || !result.out.empty()) return "";
  return absl::StrCat("other users cannot run the programs of this build: ", result.err);
}

void SharedYard::Start() {
  ASSERT_EQ(chmod(open_dir_.path().c_str(), 0755), 0);
  yard_.StartServer();
}

ProcessResult SharedYard::As(int uid, std::vector<std::string> args) {
  Process::Options options;
  options.args = {Yard::Binary("trainyard"), "--server", address()};
  options.args.insert(options.args.end(), args.begin(), args.end());
  options.environment = {{"HOME", "/nonexistent"}, {"USER", "root"}, {"LOGNAME", "root"}};
  options.uid = uid;
  const auto result = RunProcess(std::move(options), scratch_.path(), kPatience);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.value_or(ProcessResult{});
}

}  // namespace trainyard::testing
