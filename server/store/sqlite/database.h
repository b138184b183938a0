// Wraps as much of SQLite as the stores need: connections, prepared statements, transactions, and
// errors with names. No other folder includes sqlite3.h.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct sqlite3;
struct sqlite3_stmt;

namespace trainyard::store {

// A prepared statement. Bind values in the order of the `?`, then call Run or Step. Bound text and
// blobs are not copied: they must live until the statement has run.
//   TY_RETURN_IF_ERROR(db.Prepared(kSql).Bind(12).Bind("name").Run());
// Errors stick: Run and Step answer with the first one.
class Statement {
 public:
  Statement(sqlite3* connection, std::string path, absl::string_view sql);
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& Bind(int64_t value);
  Statement& Bind(int32_t value) { return Bind(int64_t{value}); }
  Statement& Bind(absl::string_view text);
  Statement& Bind(const std::string& text) { return Bind(absl::string_view(text)); }
  Statement& Bind(const char* text) { return Bind(absl::string_view(text)); }
  Statement& BindBlob(absl::string_view bytes);
  // Binds a number. NaN is stored as NULL, because SQLite has no NaN.
  Statement& BindReal(double value);
  Statement& BindNull();

  // Runs to the end and makes the statement ready for the next use.
  absl::Status Run();
  // Returns true if there is a row. Returns false at the end, and then the statement is ready
  // again.
  absl::StatusOr<bool> Step();

  int64_t Int(int column) const;
  int32_t Int32(int column) const { return static_cast<int32_t>(Int(column)); }
  bool IsNull(int column) const;
  std::string Text(int column) const;
  std::string Blob(int column) const;
  double Real(int column) const;  // NULL becomes NaN

  // Makes the statement ready for the next use, whatever happened.
  void Reset();

  // Returns how many instructions SQLite has run for it since the last call.
  int64_t TakeInstructions();

 private:
  void Check(int code);

  sqlite3* connection_;
  std::string path_;
  sqlite3_stmt* statement_ = nullptr;
  absl::Status status_;
  absl::Status prepared_;
  int next_ = 1;
};

// One connection. The class is not thread-safe.
class Database {
 public:
  enum class Mode {
    kDurable,  // synchronous=FULL: a commit survives a power loss
    // Synchronous=NORMAL: a power loss may undo the last commits, but never a part of one.
    kRelaxed,
    kReadOnly,  // for a file that another connection has made
  };

  // Opens a file. Returns RESOURCE_EXHAUSTED (DISK_FULL), DATA_LOSS (CORRUPT_FILE), NOT_FOUND or
  // PERMISSION_DENIED if that fails.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path, Mode mode);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // Runs statements without parameters and results, separated by semicolons.
  absl::Status Execute(const std::string& sql);
  // Returns a statement that is prepared once and kept for the life of the connection. It is valid
  // until the next call with this text.
  Statement& Prepared(absl::string_view sql);
  // Returns the number of rows that the last INSERT, UPDATE or DELETE changed.
  int ChangedRows() const;
  // Returns how many instructions SQLite has run for all prepared statements since the last call.
  int64_t TakeInstructions();
  // Copies one moment of the database to a file, which it replaces, while others write to this one.
  // The copy is complete in one file, without a write-ahead log, and synced; its folder is not.
  absl::Status CopyTo(const std::string& path);
  const std::string& path() const { return path_; }

 private:
  Database(sqlite3* connection, std::string path)
      : connection_(connection), path_(std::move(path)) {}
  absl::Status Configure(Mode mode);

  sqlite3* connection_;
  std::string path_;
  std::map<std::string, std::unique_ptr<Statement>, std::less<>> prepared_;
};

// A transaction, which is rolled back unless it was committed.
class Transaction {
 public:
  explicit Transaction(Database& db) : db_(db) {}
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  absl::Status Begin();      // to write
  absl::Status BeginRead();  // to see one state of the file across several statements
  absl::Status Commit();

 private:
  Database& db_;
  bool open_ = false;
};

}  // namespace trainyard::store
