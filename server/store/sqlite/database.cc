// Adapts SQLite. Every call into the library is here, and every error code that it returns becomes
// a named error.
#include "server/store/sqlite/database.h"

#include <sqlite3.h>

#include <cerrno>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace trainyard::store {
namespace {

// Readers and the writer never block each other in WAL mode. This timeout is for a backup that
// somebody makes by hand.
constexpr int kBusyTimeoutMs = 5000;

absl::Status ErrorOf(sqlite3* connection, int code, const std::string& path) {
  const std::string message =
      connection != nullptr ? sqlite3_errmsg(connection) : sqlite3_errstr(code);
  const int system_error = connection != nullptr ? sqlite3_system_errno(connection) : 0;
  switch (code & 0xff) {
    case SQLITE_FULL:
      return error::DiskFull(path);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return error::CorruptFile(path, message);
    case SQLITE_CANTOPEN:
      return ErrnoStatus(system_error != 0 ? system_error : ENOENT, "cannot open", path);
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return absl::PermissionDeniedError(absl::StrCat("cannot write '", path, "': ", message));
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::UnavailableError(
          absl::StrCat("'", path, "' is locked by another process: ", message));
    case SQLITE_CONSTRAINT:
      return absl::InvalidArgumentError(absl::StrCat("'", path, "' refuses the rows: ", message));
    case SQLITE_IOERR:
      if (system_error == ENOSPC || system_error == EDQUOT) return error::DiskFull(path);
      return absl::UnavailableError(absl::StrCat("cannot read or write '", path, "': ", message));
    default:
      return absl::InternalError(absl::StrCat("'", path, "': ", message));
  }
}

}  // namespace

Statement::Statement(sqlite3* connection, std::string path, absl::string_view sql)
    : connection_(connection), path_(std::move(path)) {
  const int code = sqlite3_prepare_v3(connection_, sql.data(), static_cast<int>(sql.size()),
                                      SQLITE_PREPARE_PERSISTENT, &statement_, nullptr);
  if (code != SQLITE_OK) prepared_ = Annotate(ErrorOf(connection_, code, path_), sql);
  status_ = prepared_;
}

Statement::~Statement() {
  sqlite3_finalize(statement_);
}

void Statement::Check(int code) {
  ++next_;
  if (code != SQLITE_OK && status_.ok()) status_ = ErrorOf(connection_, code, path_);
}

Statement& Statement::Bind(int64_t value) {
  if (prepared_.ok()) Check(sqlite3_bind_int64(statement_, next_, value));
  return *this;
}

Statement& Statement::Bind(absl::string_view text) {
  const char* data = text.data() == nullptr ? "" : text.data();
  if (prepared_.ok()) {
    Check(sqlite3_bind_text64(statement_, next_, data, text.size(), SQLITE_STATIC, SQLITE_UTF8));
  }
  return *this;
}

Statement& Statement::BindBlob(absl::string_view bytes) {
  const char* data = bytes.data() == nullptr ? "" : bytes.data();
  if (prepared_.ok()) {
    Check(sqlite3_bind_blob64(statement_, next_, data, bytes.size(), SQLITE_STATIC));
  }
  return *this;
}

Statement& Statement::BindReal(double value) {
  if (std::isnan(value)) return BindNull();
  if (prepared_.ok()) Check(sqlite3_bind_double(statement_, next_, value));
  return *this;
}

Statement& Statement::BindNull() {
  if (prepared_.ok()) Check(sqlite3_bind_null(statement_, next_));
  return *this;
}

absl::StatusOr<bool> Statement::Step() {
  if (status_.ok()) {
    const int code = sqlite3_step(statement_);
    if (code == SQLITE_ROW) return true;
    if (code != SQLITE_DONE) status_ = ErrorOf(connection_, code, path_);
  }
  const absl::Status status = status_;
  Reset();
  if (!status.ok()) return status;
  return false;
}

absl::Status Statement::Run() {
  TY_ASSIGN_OR_RETURN(bool row, Step());
  while (row) {
    TY_ASSIGN_OR_RETURN(row, Step());
  }
  return absl::OkStatus();
}

void Statement::Reset() {
  if (statement_ != nullptr) sqlite3_reset(statement_);
  status_ = prepared_;
  next_ = 1;
}

int64_t Statement::TakeInstructions() {
  if (statement_ == nullptr) return 0;
  return sqlite3_stmt_status(statement_, SQLITE_STMTSTATUS_VM_STEP, /*resetFlg=*/1);
}

int64_t Statement::Int(int column) const {
  return sqlite3_column_int64(statement_, column);
}

bool Statement::IsNull(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_NULL;
}

std::string Statement::Text(int column) const {
  const auto* text = sqlite3_column_text(statement_, column);
  if (text == nullptr) return "";
  return std::string(reinterpret_cast<const char*>(text),
                     static_cast<size_t>(sqlite3_column_bytes(statement_, column)));
}

std::string Statement::Blob(int column) const {
  const void* bytes = sqlite3_column_blob(statement_, column);
  if (bytes == nullptr) return "";
  return std::string(static_cast<const char*>(bytes),
                     static_cast<size_t>(sqlite3_column_bytes(statement_, column)));
}

double Statement::Real(int column) const {
  if (IsNull(column)) return std::numeric_limits<double>::quiet_NaN();
  return sqlite3_column_double(statement_, column);
}

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::string& path, Mode mode) {
  sqlite3* connection = nullptr;
  const int flags =
      mode == Mode::kReadOnly ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  const int code = sqlite3_open_v2(path.c_str(), &connection,
                                   flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, nullptr);
  // Even a failed open leaves a connection that must be closed.
  std::unique_ptr<Database> db(new Database(connection, path));
  if (code != SQLITE_OK) return ErrorOf(connection, code, path);
  TY_RETURN_IF_ERROR(db->Configure(mode));
  return db;
}

absl::Status Database::Configure(Mode mode) {
  sqlite3_busy_timeout(connection_, kBusyTimeoutMs);
  // A damaged or hostile file must not make SQLite execute code that is written in it.
  TY_RETURN_IF_ERROR(Execute("PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;"));
  if (mode == Mode::kReadOnly) return Execute("PRAGMA query_only = ON;");
  Statement& wal = Prepared("PRAGMA journal_mode = WAL");
  TY_ASSIGN_OR_RETURN(const bool row, wal.Step());
  const std::string got = row ? wal.Text(0) : "";
  wal.Reset();
  if (got != "wal") {
    return absl::FailedPreconditionError(
        absl::StrCat("'", path_, "': journal mode is '", got,
                     "', expected 'wal'; is this a network file system?"));
  }
  return Execute(mode == Mode::kDurable ? "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;"
                                        : "PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON;");
}

Database::~Database() {
  prepared_.clear();
  TY_CHECK(sqlite3_close(connection_) == SQLITE_OK);
}

absl::Status Database::Execute(const std::string& sql) {
  const int code = sqlite3_exec(connection_, sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : ErrorOf(connection_, code, path_);
}

Statement& Database::Prepared(absl::string_view sql) {
  auto found = prepared_.find(std::string_view(sql.data(), sql.size()));
  if (found == prepared_.end()) {
    found =
        prepared_.emplace(std::string(sql), std::make_unique<Statement>(connection_, path_, sql))
            .first;
  }
  found->second->Reset();
  return *found->second;
}

int64_t Database::TakeInstructions() {
  int64_t sum = 0;
  for (const auto& [sql, statement] : prepared_) sum += statement->TakeInstructions();
  return sum;
}

int Database::ChangedRows() const {
  return sqlite3_changes(connection_);
}

absl::Status Transaction::Begin() {
  TY_RETURN_IF_ERROR(db_.Prepared("BEGIN IMMEDIATE").Run());
  open_ = true;
  return absl::OkStatus();
}

absl::Status Transaction::BeginRead() {
  TY_RETURN_IF_ERROR(db_.Prepared("BEGIN DEFERRED").Run());
  open_ = true;
  return absl::OkStatus();
}

absl::Status Transaction::Commit() {
  TY_RETURN_IF_ERROR(db_.Prepared("COMMIT").Run());
  open_ = false;
  return absl::OkStatus();
}

absl::Status Database::CopyTo(const std::string& path) {
  // A copy that was cut off may be damaged, and could not be opened. SQLite's own layer removes it,
  // because that knows where the file is.
  sqlite3_vfs* files = sqlite3_vfs_find(nullptr);
  for (const char* suffix : {"", "-wal", "-journal"}) {
    const std::string old = absl::StrCat(path, suffix);
    const int code = files->xDelete(files, old.c_str(), /*syncDir=*/0);
    if (code != SQLITE_OK && code != SQLITE_IOERR_DELETE_NOENT) return ErrorOf(nullptr, code, old);
  }
  TY_ASSIGN_OR_RETURN(const auto copy, Open(path, Mode::kRelaxed));
  TY_RETURN_IF_ERROR(copy->Execute("PRAGMA journal_mode = OFF; PRAGMA synchronous = FULL;"));
  sqlite3_backup* backup = sqlite3_backup_init(copy->connection_, "main", connection_, "main");
  if (backup == nullptr) {
    return ErrorOf(copy->connection_, sqlite3_errcode(copy->connection_), path);
  }
  // All pages are copied in one step, which holds one read transaction of the source.
  const int code = sqlite3_backup_step(backup, -1);
  sqlite3_backup_finish(backup);
  if (code != SQLITE_DONE) {
    // SQLite does not say which of the two files has failed, except for damage and a full disk.
    const bool is_source = (code & 0xff) == SQLITE_CORRUPT || (code & 0xff) == SQLITE_NOTADB;
    return ErrorOf(is_source ? nullptr : copy->connection_, code, is_source ? path_ : path);
  }
  // The pages say that the file has a write-ahead log. The copy is to be read without one.
  return copy->Execute("PRAGMA journal_mode = DELETE;");
}

Transaction::~Transaction() {
  // SQLite may have rolled back by itself, for example on a full disk. Then there is nothing to do.
  if (open_) (void)db_.Prepared("ROLLBACK").Run();
}

}  // namespace trainyard::store
