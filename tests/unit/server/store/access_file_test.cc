// Tests the file of rights that an older server has written.
#include <gtest/gtest.h>

#include "server/store/sqlite/database.h"
#include "server/store/sqlite/migrations.h"
#include "server/store/sqlite/sqlite_access_store.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::store {
namespace {

TEST(AccessFile, TokensOfVersion2AreReadAndNobodyJoinsWithThemAgain) {
  const testing::TempDir dir;
  const std::string path = dir.File("access.db");
  {
    auto db = Database::Open(path, Database::Mode::kDurable);
    ASSERT_TRUE(db.ok()) << db.status();
    const std::vector<Migration>& all = AccessMigrations();
    ASSERT_TRUE(Migrate(**db, "access", {all.begin(), all.begin() + 2}).ok());
    const std::string hash(64, 'a');
    const absl::Status added =
        (*db)->Execute("INSERT INTO tokens VALUES ('aaaaaaaaaaaa', '" + hash +
                       "', 'join', 'root', 'full', 'gpu-1', 'a note', 1000, 9000, 2000, 3000)");
    ASSERT_TRUE(added.ok()) << added;
  }
  const auto store = OpenSqliteAccessStore(path);
  ASSERT_TRUE(store.ok()) << store.status();
  const auto tokens = (*store)->ListTokens();
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  ASSERT_EQ(tokens->size(), 1u);
  EXPECT_EQ(tokens->front().worker, "gpu-1");
  EXPECT_EQ(tokens->front().revoked, absl::FromUnixMicros(3000));
  EXPECT_EQ(tokens->front().joined_key, "");
}

}  // namespace
}  // namespace trainyard::store
