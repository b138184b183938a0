// Opens databases of all versions after bytes, rows or the length of the file were changed, and
// goes on with them as a server does: an error or a server that works, never the end of the
// process.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/files.h"
#include "server/core/yard/yard.h"
#include "server/store/sqlite/database.h"
#include "server/store/sqlite/sqlite_store.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::fuzz::sqlite_state {
namespace {

constexpr size_t kChangesMax = 16;
// The two connections of a store have a cache of two MiB each, and a server of a hundred jobs has
// its records beside it.
constexpr int64_t kStoreBytes = int64_t{16} << 20;
constexpr core::Now kNow = {.wall_us = 1'800'000'000'000'000, .uptime_us = 100'000'000};

using Column = std::pair<std::string, std::string>;  // a table, and a column of it

// A database that some server wrote.
struct Base {
  std::string bytes;
  std::vector<Column> columns;
};

std::vector<Column> ColumnsOf(const std::string& path) {
  auto db = store::Database::Open(path, store::Database::Mode::kDurable);
  TY_CHECK_OK(db.status());
  store::Statement& statement = (*db)->Prepared(
      "SELECT m.name, p.name FROM sqlite_master AS m, pragma_table_info(m.name) AS p "
      "WHERE m.type = 'table' ORDER BY m.name, p.name");
  std::vector<Column> columns;
  while (true) {
    const auto row = statement.Step();
    TY_CHECK_OK(row.status());
    if (!*row) return columns;
    columns.emplace_back(statement.Text(0), statement.Text(1));
  }
}

void RemoveDatabase(const std::string& path) {
  for (const char* suffix : {"", "-wal", "-shm", "-journal", "-committed"}) {
    TY_CHECK_OK(RemoveTree(absl::StrCat(path, suffix)));
  }
}

// Two old versions, and the first of them as this version migrates it.
const std::vector<Base>& Bases(const std::string& path) {
  static const auto* bases = new std::vector<Base>([&path] {
    std::vector<Base> made;
    for (const char* name : {"state_v1.db", "state_v4.db", "state_v4.db"}) {
      RemoveDatabase(path);
      const std::string source = testing::SourcePath(absl::StrCat("tests/data/store/", name));
      SetFile(path, *ReadFile(source));
      if (made.size() == 2) TY_CHECK_OK(store::OpenSqliteStore(path).status());
      made.push_back({*ReadFile(path), ColumnsOf(path)});
    }
    return made;
  }());
  return *bases;
}

// Returns a value as SQL writes it.
std::string Value(Input& input) {
  switch (input.Below(4)) {
    case 0:
      return absl::StrCat(input.Int64());
    case 1:
      return absl::StrCat(static_cast<int>(input.Byte()) - 2);
    case 2:
      return absl::StrCat("CAST(x'", absl::BytesToHexString(input.Take(input.Below(32))),
                          "' AS TEXT)");
    default:
      return absl::StrCat("x'", absl::BytesToHexString(input.Take(input.Byte())), "'");
  }
}

// Sets a column of some rows. Many values break a rule of the table, and then nothing changes.
std::string Update(const Base& base, Input& input) {
  const Column& column = base.columns[(input.Byte() + 256u * input.Byte()) % base.columns.size()];
  const std::string row = absl::StrCat(input.Below(4));
  return absl::StrCat("UPDATE ", column.first, " SET ", column.second, " = ", Value(input),
                      " WHERE (rowid + ", row, ") % 2 = 0");
}

void ChangeBytes(Input& input, std::string& bytes) {
  const size_t at = input.Byte() + 256u * input.Byte() + 65536u * input.Below(4);
  if (at < bytes.size()) bytes[at] = static_cast<char>(input.Byte());
}

// Opens the store and takes a turn, as a server does that starts.
void Serve(const std::string& path, bool accepts_lost_commits) {
  auto opened = store::OpenSqliteStore(path, {accepts_lost_commits});
  if (!opened.ok()) return;
  const auto snapshot = (*opened)->Load();
  if (!snapshot.ok()) return;
  core::Yard yard(core::Config(), *snapshot, kNow);
  const core::Turn turn = yard.Settle(kNow);
  (void)yard.NextDeadline();
  if (!turn.delta.empty() && (*opened)->Commit(turn.delta).ok()) {
    TY_CHECK_OK((*opened)->Load().status());
  }
  (void)(*opened)->ListEvents("", 0, 1000);
}

// The first byte chooses the database and whether lost commits are accepted. Then each change is a
// number and what it needs.
void Run(absl::string_view input_bytes) {
  static testing::TempDir dir;
  const std::string path = dir.File("trainyard.db");
  Input input(input_bytes);
  const uint8_t first = input.Byte();
  const std::vector<Base>& bases = Bases(path);
  const Base& base = bases[first % bases.size()];
  RemoveDatabase(path);
  std::string bytes = base.bytes;
  std::string statements;
  std::string mark;
  for (size_t i = 0; i < kChangesMax && !input.empty(); ++i) {
    switch (input.Below(8)) {
      case 0:
        bytes.resize(std::min(bytes.size(), 512 * (1 + input.Byte() + 256u * input.Below(2))));
        break;
      case 1:
        mark = std::string(input.Take(input.Below(80)));
        break;
      case 2:
      case 3:
        ChangeBytes(input, bytes);
        break;
      default:
        absl::StrAppend(&statements, statements.empty() ? "" : "\n", Update(base, input));
    }
  }
  SetFile(path, bytes);
  if (!mark.empty()) SetFile(absl::StrCat(path, store::kCommittedSuffix), mark);
  if (!statements.empty()) {
    const auto db = store::Database::Open(path, store::Database::Mode::kDurable);
    if (db.ok()) {
      Input lines(statements);
      while (!lines.empty()) (void)(*db)->Execute(std::string(lines.Until('\n')));
    }
  }
  Serve(path, first >= 128);
}

const Registration kTarget(
    {.name = "sqlite_state", .run = Run, .fixed_bytes = kStoreBytes, .is_slow = true});

}  // namespace
}  // namespace trainyard::fuzz::sqlite_state
