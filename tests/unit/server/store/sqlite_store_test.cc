// What only a file can do wrong, and the format of the file. The promises of a store are in
// tests/contract.
#include "server/store/sqlite/sqlite_store.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "server/store/sqlite/database.h"
#include "server/store/sqlite/migrations.h"
#include "server/store/sqlite/sqlite_metrics_store.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::store {
namespace {

class SqliteStoreTest : public ::testing::Test {
 protected:
  std::string path() const { return directory_.File("state.db"); }

  // Opens the store's file past the store.
  void Tamper(const std::string& sql) {
    auto db = Database::Open(path(), Database::Mode::kDurable);
    TY_CHECK_OK(db.status());
    TY_CHECK_OK((*db)->Execute(sql));
  }

  core::Delta OneJob() {
    core::JobRecord job;
    job.id = JobId{1};
    core::Submission submission;
    submission.name = "convnet";
    submission.spec = std::string(20'000, 's');
    job.submission = std::make_shared<core::Submission>(submission);
    core::Delta delta;
    delta.revision = 1;
    delta.next_job = 2;
    delta.jobs = {job};
    return delta;
  }

  trainyard::testing::TempDir directory_;
};

TEST_F(SqliteStoreTest, AStoreOfANewerServerIsRefused) {
  ASSERT_TRUE(OpenSqliteStore(path()).ok());
  Tamper("INSERT INTO schema_version (version, kind) VALUES (999, 'state')");
  const auto store = OpenSqliteStore(path());
  EXPECT_EQ(ErrorReason(store.status()), "STORE_TOO_NEW");
  EXPECT_NE(store.status().message().find("has version 999"), absl::string_view::npos);
}

TEST_F(SqliteStoreTest, TheTwoFilesAreNotMistakenForEachOther) {
  ASSERT_TRUE(OpenSqliteStore(path()).ok());
  EXPECT_EQ(ErrorReason(OpenSqliteMetricsStore(path()).status()), "CORRUPT_FILE");
}

TEST_F(SqliteStoreTest, DamagedPagesAreNoticed) {
  {
    auto store = OpenSqliteStore(path());
    ASSERT_TRUE(store.ok());
    ASSERT_TRUE((*store)->Commit(OneJob()).ok());
  }
  auto bytes = ReadFile(path());
  ASSERT_TRUE(bytes.ok());
  // All but the first page, which holds the schema.
  for (size_t i = 4096; i < bytes->size(); ++i) (*bytes)[i] = '\x5a';
  ASSERT_TRUE(WriteFileAtomically(path(), *bytes).ok());
  auto store = OpenSqliteStore(path());
  const absl::Status status = store.ok() ? (*store)->Load().status() : store.status();
  EXPECT_EQ(ErrorReason(status), "CORRUPT_FILE") << status;
}

TEST_F(SqliteStoreTest, AWordThatNobodyKnowsIsCorruption) {
  {
    auto store = OpenSqliteStore(path());
    ASSERT_TRUE(store.ok());
    ASSERT_TRUE((*store)->Commit(OneJob()).ok());
  }
  Tamper("UPDATE jobs SET state = 'DREAMING'");
  auto store = OpenSqliteStore(path());
  ASSERT_TRUE(store.ok());
  const absl::Status status = (*store)->Load().status();
  EXPECT_EQ(ErrorReason(status), "CORRUPT_FILE");
  EXPECT_NE(status.message().find("jobs/1: 'DREAMING' is no state of a job"),
            absl::string_view::npos)
      << status;
}

TEST_F(SqliteStoreTest, ARowWithoutItsRecordIsCorruption) {
  ASSERT_TRUE(OpenSqliteStore(path()).ok());
  Tamper(
      "PRAGMA foreign_keys = OFF; INSERT INTO job_metrics (job, name, value) VALUES (7, 'lr', 1)");
  auto store = OpenSqliteStore(path());
  ASSERT_TRUE(store.ok());
  EXPECT_EQ(ErrorReason((*store)->Load().status()), "CORRUPT_FILE");
}

// The schema that docs/store_format.md shows is the schema. TRAINYARD_UPDATE_GOLDEN=1 writes it.
TEST_F(SqliteStoreTest, TheDocumentShowsTheTables) {
  constexpr char kDocument[] = TRAINYARD_SOURCE_DIR "/docs/store_format.md";
  auto document = ReadFile(kDocument);
  ASSERT_TRUE(document.ok()) << document.status();
  std::string expected = *document;
  const auto replace = [&expected](const std::string& name,
                                   const std::vector<absl::string_view>& migrations) {
    std::string text = "```sql";
    for (const absl::string_view migration : migrations) absl::StrAppend(&text, migration);
    text += "```\n";
    const std::string begin = absl::StrCat("<!-- begin ", name, " -->\n");
    const size_t from = expected.find(begin);
    const size_t to = expected.find(absl::StrCat("<!-- end ", name, " -->\n"));
    ASSERT_NE(from, std::string::npos);
    ASSERT_NE(to, std::string::npos);
    expected = expected.substr(0, from + begin.size()) + text + expected.substr(to);
  };
  replace("state.db", StateMigrations());
  replace("metrics.db", MetricsMigrations());
  if (std::getenv("TRAINYARD_UPDATE_GOLDEN") != nullptr) {
    ASSERT_TRUE(WriteFileAtomically(kDocument, expected).ok());
    return;
  }
  EXPECT_EQ(*document, expected) << "if a migration was added, run this test with "
                                    "TRAINYARD_UPDATE_GOLDEN=1; an old one is never edited";
}

}  // namespace
}  // namespace trainyard::store
