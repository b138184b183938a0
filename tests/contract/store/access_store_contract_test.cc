// Tests what every store of rights does.
#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "server/store/memory_access_store.h"
#include "server/store/sqlite/sqlite_access_store.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::store {
namespace {

using access::AuditFilter;
using access::AuditRecord;
using access::Role;

struct Kind {
  const char* name;
  std::function<std::unique_ptr<AccessStore>(const testing::TempDir&)> open;
  bool survives = false;
};

class AccessStoreTest : public ::testing::TestWithParam<Kind> {
 protected:
  void Reopen() {
    if (!GetParam().survives) return;
    store_.reset();
    store_ = GetParam().open(dir_);
  }
  std::vector<int64_t> Sequences(const AuditFilter& filter) {
    std::vector<int64_t> sequences;
    const auto entries = *store_->ListAudit(filter);
    for (const AuditRecord& entry : entries) sequences.push_back(entry.sequence);
    return sequences;
  }

  testing::TempDir dir_;
  std::unique_ptr<AccessStore> store_ = GetParam().open(dir_);
};

TEST_P(AccessStoreTest, KeepsUsers) {
  const access::UserRecord anna = {"anna", Role::kOperator, "root", 7};
  ASSERT_TRUE(store_->PutUser({"bert", Role::kNone, "root", 1}).ok());
  ASSERT_TRUE(store_->PutUser({"anna", Role::kViewer, "root", 2}).ok());
  ASSERT_TRUE(store_->PutUser(anna).ok());
  Reopen();
  EXPECT_EQ(*store_->ListUsers(),
            (std::vector<access::UserRecord>{anna, {"bert", Role::kNone, "root", 1}}));
  ASSERT_TRUE(store_->DeleteUser("bert").ok());
  ASSERT_TRUE(store_->DeleteUser("nobody").ok());
  EXPECT_EQ(store_->ListUsers()->size(), 1U);
}

TEST_P(AccessStoreTest, KeepsProjectsWithTheirMembers) {
  ASSERT_TRUE(store_->PutProject({"vision", false, {"carl"}}).ok());
  const access::ProjectRecord vision = {"vision", true, {"anna", "bert"}};
  ASSERT_TRUE(store_->PutProject(vision).ok());
  ASSERT_TRUE(store_->PutProject({"speech", true, {}}).ok());
  Reopen();
  EXPECT_EQ(*store_->ListProjects(),
            (std::vector<access::ProjectRecord>{{"speech", true, {}}, vision}));
  ASSERT_TRUE(store_->DeleteProject("vision").ok());
  ASSERT_TRUE(store_->PutProject({"vision", true, {}}).ok());
  EXPECT_TRUE(store_->ListProjects()->back().members.empty()) << "members went with the project";
}

TEST_P(AccessStoreTest, KeepsTokensAndWhatBecameOfThem) {
  const absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  access::TokenRecord draft;
  draft.kind = access::TokenKind::kJoin;
  draft.user = "root";
  draft.expires = now + access::kJoinTokenLifetime;
  access::TokenRecord token = access::MakeToken(draft, now).record;
  ASSERT_TRUE(store_->PutToken(token).ok());
  Reopen();
  EXPECT_EQ(*store_->ListTokens(), std::vector<access::TokenRecord>{token});
  token.worker = "gpu-1";
  token.last_used = token.revoked = now + absl::Seconds(7);
  token.joined_key = "AB:CD";
  ASSERT_TRUE(store_->PutToken(token).ok());
  Reopen();
  EXPECT_EQ(*store_->ListTokens(), std::vector<access::TokenRecord>{token});
  ASSERT_TRUE(store_->DeleteToken(token.id).ok());
  EXPECT_TRUE(store_->ListTokens()->empty());
}

TEST_P(AccessStoreTest, KeepsSinceWhenCertificatesOfWorkersAreRefused) {
  const access::RemovedWorker first = {"gpu-1", absl::FromUnixSeconds(1'800'000'000)};
  const access::RemovedWorker later = {"gpu-1", absl::FromUnixSeconds(1'800'000'001)};
  ASSERT_TRUE(store_->PutRemovedWorker({"gpu-2", absl::FromUnixSeconds(7)}).ok());
  ASSERT_TRUE(store_->PutRemovedWorker(first).ok());
  ASSERT_TRUE(store_->PutRemovedWorker(later).ok());
  Reopen();
  EXPECT_EQ(*store_->ListRemovedWorkers(),
            (std::vector<access::RemovedWorker>{later, {"gpu-2", absl::FromUnixSeconds(7)}}));
}

TEST_P(AccessStoreTest, ListsTheAuditLogNewestFirst) {
  ASSERT_TRUE(store_
                  ->AppendAudit({{0, 10, "anna", "", "", "a/b", "jobs/1", true, ""},
                                 {0, 20, "bert", "root", "", "a/b", "jobs/2", false, "no"}})
                  .ok());
  ASSERT_TRUE(store_->AppendAudit({{0, 30, "anna", "", "h", "a/c", "jobs/2", true, ""}}).ok());
  Reopen();
  EXPECT_EQ(Sequences({}), (std::vector<int64_t>{3, 2, 1}));
  EXPECT_EQ(Sequences({.user = "anna"}), (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(Sequences({.user = "root"}), (std::vector<int64_t>{2}));
  EXPECT_EQ(Sequences({.resource = "jobs/2"}), (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(Sequences({.only_refused = true}), (std::vector<int64_t>{2}));
  EXPECT_EQ(Sequences({.after_us = 10}), (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(Sequences({.before_sequence = 3, .limit = 1}), (std::vector<int64_t>{2}));
  EXPECT_EQ(store_->ListAudit({.user = "root"})->at(0),
            (AuditRecord{2, 20, "bert", "root", "", "a/b", "jobs/2", false, "no"}));
}

TEST_P(AccessStoreTest, DeletesOldEntriesAndNeverGivesANumberAgain) {
  for (int64_t time = 1; time <= 4; ++time) {
    ASSERT_TRUE(store_->AppendAudit({{0, time, "anna", "", "", "a/b", "", true, ""}}).ok());
  }
  EXPECT_EQ(*store_->DeleteAudit(4, 2), 2);
  EXPECT_EQ(*store_->DeleteAudit(4, 2), 1);
  EXPECT_EQ(*store_->DeleteAudit(5, 10), 1);
  Reopen();
  ASSERT_TRUE(store_->AppendAudit({{0, 9, "anna", "", "", "a/b", "", true, ""}}).ok());
  EXPECT_EQ(Sequences({}), (std::vector<int64_t>{5}));
}

INSTANTIATE_TEST_SUITE_P(Stores, AccessStoreTest,
                         ::testing::Values(Kind{"Memory",
                                                [](const testing::TempDir&) {
                                                  return std::make_unique<MemoryAccessStore>();
                                                }},
                                           Kind{"Sqlite",
                                                [](const testing::TempDir& dir) {
                                                  auto store =
                                                      OpenSqliteAccessStore(dir.File("access.db"));
                                                  EXPECT_TRUE(store.ok()) << store.status();
                                                  return *std::move(store);
                                                },
                                                true}),
                         [](const auto& kind) { return std::string(kind.param.name); });

}  // namespace
}  // namespace trainyard::store
