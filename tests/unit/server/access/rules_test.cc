#include "server/access/rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "google/protobuf/descriptor.h"
#include "tests/testing/paths.h"
#include "trainyard/v1/access.pb.h"
#include "trainyard/v1/agent.pb.h"
#include "trainyard/v1/bundle.pb.h"
#include "trainyard/v1/catalogue.pb.h"
#include "trainyard/v1/checkpoint.pb.h"
#include "trainyard/v1/code.pb.h"
#include "trainyard/v1/fleet.pb.h"
#include "trainyard/v1/job.pb.h"
#include "trainyard/v1/notify.pb.h"
#include "trainyard/v1/provider.pb.h"
#include "trainyard/v1/secret.pb.h"
#include "trainyard/v1/sharing.pb.h"
#include "trainyard/v1/sweep_service.pb.h"
#include "trainyard/v1/tunnel.pb.h"

namespace trainyard::access {
namespace {

// Returns "JobService/GetJob" and so on, of all services.
std::set<std::string> AllCalls() {
  std::set<std::string> calls;
  for (const auto* file :
       {v1::User::descriptor()->file(), v1::RegisterWorkerRequest::descriptor()->file(),
        v1::Checkpoint::descriptor()->file(), v1::Worker::descriptor()->file(),
        v1::Job::descriptor()->file(), v1::Quota::descriptor()->file(),
        v1::TunnelFrame::descriptor()->file(), v1::FindCodeRequest::descriptor()->file(),
        v1::NotifyTarget::descriptor()->file(), v1::Secret::descriptor()->file(),
        v1::SavedSpec::descriptor()->file(), v1::ImportJobRequest::descriptor()->file(),
        v1::Sweep::descriptor()->file(), v1::Provider::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i) {
      for (int j = 0; j < file->service(i)->method_count(); ++j) {
        calls.insert(
            absl::StrCat(file->service(i)->name(), "/", file->service(i)->method(j)->name()));
      }
    }
  }
  return calls;
}

TEST(Rules, EachCallHasOneRow) {
  std::set<std::string> rows;
  for (const Rule& rule : kRules) {
    EXPECT_TRUE(rows.insert(std::string(rule.rpc)).second) << rule.rpc << " has two rows";
  }
  EXPECT_EQ(rows, AllCalls());
}

TEST(Rules, RowsAreInOrder) {
  EXPECT_TRUE(std::is_sorted(kRules.begin(), kRules.end(),
                             [](const Rule& a, const Rule& b) { return a.rpc < b.rpc; }));
}

TEST(Rules, CallsThatChangeSomethingNeedMoreThanAViewer) {
  for (const Rule& rule : kRules) {
    // Everybody may sign in, and out.
    const bool is_own_token =
        absl::EndsWith(rule.rpc, "/CreateToken") || absl::EndsWith(rule.rpc, "/RevokeToken");
    if (rule.party == Party::kUser && rule.changes && !is_own_token) {
      EXPECT_GE(rule.least, Role::kSubmitter) << rule.rpc;
    }
    // Thousands of these follow one ImportJob, and the audit log has that one.
    const bool is_part_of_import = absl::StartsWith(rule.rpc, "BundleService/AppendImported");
    EXPECT_TRUE(rule.changes || rule.need != Need::kChange || is_part_of_import) << rule.rpc;
  }
}

TEST(Rules, CallsOfWorkersAreThoseOfTheirService) {
  for (const Rule& rule : kRules) {
    EXPECT_EQ(rule.party != Party::kUser, rule.rpc.substr(0, 13) == "AgentService/") << rule.rpc;
  }
}

Caller With(Role role) {
  Caller caller;
  caller.user = "anna";
  caller.role = role;
  return caller;
}

TEST(Rules, ARoleMayDoWhatThoseBeforeItMay) {
  constexpr Role kRoles[] = {Role::kNone, Role::kViewer, Role::kSubmitter, Role::kOperator,
                             Role::kAdmin};
  for (const Rule& rule : kRules) {
    if (rule.party != Party::kUser) continue;
    for (const Role role : kRoles) {
      EXPECT_EQ(RoleSuffices(rule, With(role)), role >= rule.least) << rule.rpc;
    }
  }
}

TEST(Rules, ACertificateOfAWorkerIsNoUser) {
  Caller worker = With(Role::kAdmin);
  worker.worker = "lab-1";
  EXPECT_FALSE(RoleSuffices(RuleOf("JobService/GetJob"), worker));
  EXPECT_TRUE(RoleSuffices(RuleOf("AgentService/SyncWorker"), worker));
}

TEST(Rules, AUserWhoMaySubmitNothingRunsNoWorker) {
  EXPECT_FALSE(RoleSuffices(RuleOf("AgentService/RegisterWorker"), With(Role::kViewer)));
  EXPECT_TRUE(RoleSuffices(RuleOf("AgentService/RegisterWorker"), With(Role::kSubmitter)));
}

TEST(Rules, AUserOfAnotherHostIsNoWorker) {
  Caller remote = With(Role::kAdmin);
  remote.address = "192.0.2.7";
  EXPECT_FALSE(RoleSuffices(RuleOf("AgentService/SyncWorker"), remote));
  Caller as_other = With(Role::kAdmin);
  as_other.real_user = "root";
  EXPECT_FALSE(RoleSuffices(RuleOf("AgentService/SyncWorker"), as_other));
}

std::string TableOfRules() {
  std::string table = "| call | who | needs | in the audit log |\n|---|---|---|---|\n";
  const auto cell = [&table](absl::string_view text) {
    absl::StrAppend(&table, text, text.empty() ? "" : " ", "| ");
  };
  for (const Rule& rule : kRules) {
    absl::StrAppend(&table, "| `", rule.rpc, "` | ");
    cell(rule.party == Party::kWorker    ? "workers"
         : rule.party == Party::kJoining ? "invited workers"
         : rule.least == Role::kNone     ? "everybody"
                                         : RoleText(rule.least));
    cell(rule.need == Need::kNothing ? ""
         : rule.need == Need::kSee   ? "sees the job"
                                     : "owns the job, or is an operator");
    absl::StrAppend(&table, rule.changes ? "yes |\n" : "|\n");
  }
  return table;
}

// After an intended change, TRAINYARD_UPDATE_GOLDEN=1 writes the table; read the difference.
TEST(Rules, TheDocumentShowsTheTable) {
  const std::string path = testing::SourcePath("docs/people.md");
  const auto document = ReadFile(path);
  ASSERT_TRUE(document.ok()) << document.status();
  const std::string begin = "<!-- begin rules -->\n";
  const size_t from = document->find(begin);
  const size_t to = document->find("<!-- end rules -->\n");
  ASSERT_NE(from, std::string::npos);
  ASSERT_NE(to, std::string::npos);
  const std::string expected =
      document->substr(0, from + begin.size()) + TableOfRules() + document->substr(to);
  if (std::getenv("TRAINYARD_UPDATE_GOLDEN") != nullptr) {
    ASSERT_TRUE(WriteFileAtomically(path, expected).ok());
    return;
  }
  EXPECT_EQ(*document, expected) << "TRAINYARD_UPDATE_GOLDEN=1 writes it";
}

TEST(Rules, RolesHaveNames) {
  for (const Role role :
       {Role::kNone, Role::kViewer, Role::kSubmitter, Role::kOperator, Role::kAdmin}) {
    EXPECT_EQ(ParseRole(RoleText(role)), role);
  }
  EXPECT_EQ(ParseRole("king"), std::nullopt);
}

}  // namespace
}  // namespace trainyard::access
