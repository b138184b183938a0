#include "server/store/sqlite/database.h"

#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "server/store/sqlite/migrations.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::store {
namespace {

class DatabaseTest : public ::testing::Test {
 protected:
  std::unique_ptr<Database> Open(const std::string& name = "test.db") {
    auto db = Database::Open(directory_.File(name), Database::Mode::kDurable);
    TY_CHECK_OK(db.status());
    return *std::move(db);
  }

  static int64_t Count(Database& db) {
    Statement& count = db.Prepared("SELECT count(*) FROM t");
    TY_CHECK(*count.Step());
    const int64_t rows = count.Int(0);
    count.Reset();
    return rows;
  }

  trainyard::testing::TempDir directory_;
};

TEST_F(DatabaseTest, ValuesComeBack) {
  auto db = Open();
  ASSERT_TRUE(db->Execute("CREATE TABLE t (i INTEGER, t TEXT, b BLOB, r REAL) STRICT").ok());
  const std::string blob("\0\xff", 2);
  Statement& insert = db->Prepared("INSERT INTO t (i, t, b, r) VALUES (?, ?, ?, ?)");
  ASSERT_TRUE(insert.Bind(int64_t{-5}).Bind("").BindBlob(blob).BindReal(NAN).Run().ok());
  Statement& select = db->Prepared("SELECT i, t, b, r FROM t");
  ASSERT_TRUE(*select.Step());
  EXPECT_EQ(select.Int(0), -5);
  EXPECT_EQ(select.Text(1), "");
  EXPECT_FALSE(select.IsNull(1));
  EXPECT_EQ(select.Blob(2), blob);
  EXPECT_TRUE(std::isnan(select.Real(3)));
  EXPECT_FALSE(*select.Step());
}

TEST_F(DatabaseTest, AFullDiskHasItsName) {
  auto db = Open();
  ASSERT_TRUE(db->Execute("CREATE TABLE t (b BLOB) STRICT; PRAGMA max_page_count = 8").ok());
  absl::Status status;
  int rows = 0;
  while (status.ok()) {
    Transaction transaction(*db);
    ASSERT_TRUE(transaction.Begin().ok());
    status = db->Prepared("INSERT INTO t (b) VALUES (?)").BindBlob(std::string(3000, 'x')).Run();
    if (status.ok()) status = transaction.Commit();
    if (status.ok()) ++rows;
    ASSERT_LT(rows, 100);
  }
  EXPECT_EQ(ErrorReason(status), "DISK_FULL");
  EXPECT_EQ(Count(*db), rows) << "the failed transaction left nothing";
  ASSERT_TRUE(db->Execute("PRAGMA max_page_count = 1000").ok());
  EXPECT_TRUE(db->Prepared("INSERT INTO t (b) VALUES (?)").BindBlob("x").Run().ok());
}

TEST_F(DatabaseTest, ATransactionThatIsNotCommittedLeavesNothing) {
  auto db = Open();
  ASSERT_TRUE(db->Execute("CREATE TABLE t (i INTEGER) STRICT").ok());
  {
    Transaction transaction(*db);
    ASSERT_TRUE(transaction.Begin().ok());
    ASSERT_TRUE(db->Prepared("INSERT INTO t (i) VALUES (?)").Bind(1).Run().ok());
  }
  EXPECT_EQ(Count(*db), 0);
}

TEST_F(DatabaseTest, ABrokenStatementSaysWhatIsWrong) {
  auto db = Open();
  const absl::Status status = db->Prepared("SELECT x FROM nowhere").Bind(1).Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_NE(status.message().find("no such table: nowhere"), absl::string_view::npos) << status;
}

TEST_F(DatabaseTest, WhatIsNoDatabaseIsCorrupt) {
  const std::string path = directory_.Write("test.db", std::string(8192, 'x'));
  const auto db = Database::Open(path, Database::Mode::kDurable);
  EXPECT_EQ(ErrorReason(db.status()), "CORRUPT_FILE") << db.status();
}

TEST_F(DatabaseTest, AFileThatCannotBeOpenedSaysWhy) {
  const auto db = Database::Open(directory_.File("no/such/folder.db"), Database::Mode::kDurable);
  EXPECT_EQ(db.status().code(), absl::StatusCode::kNotFound) << db.status();
}

TEST_F(DatabaseTest, MigrationsRunOnceAndInOrder) {
  constexpr char kFirst[] = "CREATE TABLE t (i INTEGER NOT NULL) STRICT";
  constexpr char kSecond[] = "INSERT INTO t (i) VALUES (1)";
  auto db = Open();
  ASSERT_TRUE(Migrate(*db, "test", {kFirst}).ok());
  EXPECT_EQ(Count(*db), 0);
  ASSERT_TRUE(Migrate(*db, "test", {kFirst, kSecond}).ok());
  ASSERT_TRUE(Migrate(*db, "test", {kFirst, kSecond}).ok());
  EXPECT_EQ(Count(*db), 1);
  EXPECT_EQ(ErrorReason(Migrate(*db, "test", {kFirst})), "STORE_TOO_NEW");
  EXPECT_EQ(ErrorReason(Migrate(*db, "other", {kFirst, kSecond})), "CORRUPT_FILE");
}

TEST_F(DatabaseTest, AMigrationThatFailsLeavesTheOldVersion) {
  constexpr char kFirst[] = "CREATE TABLE t (i INTEGER NOT NULL) STRICT";
  auto db = Open();
  ASSERT_TRUE(Migrate(*db, "test", {kFirst}).ok());
  EXPECT_FALSE(Migrate(*db, "test", {kFirst, "INSERT INTO t (i) VALUES (1); nonsense"}).ok());
  EXPECT_EQ(Count(*db), 0);
  EXPECT_TRUE(Migrate(*db, "test", {kFirst, "INSERT INTO t (i) VALUES (1)"}).ok());
  EXPECT_EQ(Count(*db), 1);
}

TEST_F(DatabaseTest, AMigrationKeepsACopyOfTheVersionBefore) {
  constexpr char kFirst[] = "CREATE TABLE t (i INTEGER NOT NULL) STRICT";
  constexpr char kNext[] = "INSERT INTO t (i) VALUES (1)";
  auto db = Open();
  ASSERT_TRUE(Migrate(*db, "test", {kFirst, kNext}).ok());
  const auto names = [this] {
    std::vector<std::string> copies = *ListDirectory(directory_.path());
    std::erase_if(copies, [](const std::string& name) { return !name.starts_with("test.db.v"); });
    return copies;
  };
  EXPECT_TRUE(names().empty()) << "a new file has nothing to keep";
  ASSERT_TRUE(Migrate(*db, "test", {kFirst, kNext, kNext}).ok());
  EXPECT_EQ(names(), std::vector<std::string>{"test.db.version-2"});
  ASSERT_TRUE(Migrate(*db, "test", {kFirst, kNext, kNext, kNext}).ok());
  EXPECT_EQ(names(), std::vector<std::string>{"test.db.version-3"});
  EXPECT_EQ(Count(*db), 3);
  auto copy = Open("test.db.version-3");
  EXPECT_EQ(Count(*copy), 2);
  EXPECT_TRUE(Migrate(*copy, "test", {kFirst, kNext, kNext}).ok()) << "its own program opens it";
}

TEST_F(DatabaseTest, AMigrationMustLeaveNoReferenceBroken) {
  constexpr char kFirst[] =
      "CREATE TABLE t (i INTEGER PRIMARY KEY) STRICT; INSERT INTO t (i) VALUES (1);"
      "CREATE TABLE u (i INTEGER REFERENCES t (i)) STRICT; INSERT INTO u (i) VALUES (1)";
  constexpr char kBad[] =
      "CREATE TABLE t_2 (i INTEGER PRIMARY KEY) STRICT; DROP TABLE t; ALTER TABLE t_2 RENAME TO t";
  constexpr char kGood[] =
      "CREATE TABLE t_2 (i INTEGER PRIMARY KEY) STRICT; INSERT INTO t_2 SELECT i FROM t;"
      "DROP TABLE t; ALTER TABLE t_2 RENAME TO t";
  auto db = Open();
  ASSERT_TRUE(Migrate(*db, "test", {kFirst}).ok());
  EXPECT_EQ(ErrorReason(Migrate(*db, "test", {kFirst, kBad})), "CORRUPT_FILE");
  EXPECT_EQ(Count(*db), 1);
  ASSERT_TRUE(Migrate(*db, "test", {kFirst, kGood}).ok());
  EXPECT_EQ(Count(*db), 1);
  EXPECT_FALSE(db->Execute("INSERT INTO u (i) VALUES (2)").ok()) << "and they are checked again";
}

TEST_F(DatabaseTest, AnotherProgramsDatabaseIsLeftAlone) {
  auto db = Open();
  ASSERT_TRUE(db->Execute("CREATE TABLE t (i INTEGER) STRICT").ok());
  EXPECT_EQ(ErrorReason(Migrate(*db, "state", StateMigrations())), "CORRUPT_FILE");
}

}  // namespace
}  // namespace trainyard::store
