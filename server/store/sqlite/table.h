// Defines tables as lists of columns. A list names each field of a row once; the statements that
// write and read rows are made from it, so that no code finds a field by its position in a text.
//
//   const Table<RankRow>& Ranks() {
//     static const auto* table = new Table<RankRow>("attempt_ranks", /*keys=*/3,
//         {TY_COLUMN(RankRow, "job", attempt.job), TY_COLUMN(RankRow, "number", attempt.number),
//          TY_COLUMN(RankRow, "rank", rank.rank), ...});
//     return *table;
//   }
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/errors.h"
#include "common/base/ids.h"
#include "server/core/lifecycle/words.h"
#include "server/store/sqlite/database.h"

namespace trainyard::store {

// These bind the kinds of fields. An enum is stored as its word, and an unset optional as NULL.
inline void BindField(Statement& row, int64_t value) {
  row.Bind(value);
}
inline void BindField(Statement& row, int32_t value) {
  row.Bind(value);
}
inline void BindField(Statement& row, bool value) {
  row.Bind(int64_t{value});
}
inline void BindField(Statement& row, double value) {
  row.BindReal(value);
}
inline void BindField(Statement& row, const std::string& value) {
  row.Bind(value);
}
inline void BindField(Statement& row, absl::string_view value) {
  row.Bind(value);
}
inline void BindField(Statement& row, JobId value) {
  row.Bind(value.value);
}
inline void BindField(Statement& row, const std::optional<int64_t>& value) {
  value.has_value() ? row.Bind(*value) : row.BindNull();
}
template <typename Enum>
requires std::is_enum_v<Enum>
void BindField(Statement& row, Enum value) {
  row.Bind(core::Text(value));
}

inline absl::Status TakeField(const Statement& row, int column, int64_t& value) {
  value = row.Int(column);
  return absl::OkStatus();
}
inline absl::Status TakeField(const Statement& row, int column, int32_t& value) {
  value = row.Int32(column);
  return absl::OkStatus();
}
inline absl::Status TakeField(const Statement& row, int column, bool& value) {
  value = row.Int(column) != 0;
  return absl::OkStatus();
}
inline absl::Status TakeField(const Statement& row, int column, double& value) {
  value = row.Real(column);
  return absl::OkStatus();
}
inline absl::Status TakeField(const Statement& row, int column, std::string& value) {
  value = row.Text(column);
  return absl::OkStatus();
}
inline absl::Status TakeField(const Statement& row, int column, JobId& value) {
  value = JobId{row.Int(column)};
  return absl::OkStatus();
}
inline absl::Status TakeField(const Statement& row, int column, std::optional<int64_t>& value) {
  value = row.IsNull(column) ? std::nullopt : std::optional<int64_t>(row.Int(column));
  return absl::OkStatus();
}
template <typename Enum>
requires std::is_enum_v<Enum> absl::Status TakeField(const Statement& row, int column,
                                                     Enum& value) {
  return core::FromText(row.Text(column), value);
}

template <typename Row>
struct Column {
  const char* name;
  void (*bind)(Statement&, const Row&);
  absl::Status (*take)(const Statement&, int column, Row&);
};

template <typename Row, typename Get>
Column<Row> ColumnOf(const char* name, Get) {
  return {name, [](Statement& statement, const Row& row) { BindField(statement, Get{}(row)); },
          [](const Statement& statement, int column, Row& row) {
            return TakeField(statement, column, Get{}(row));
          }};
}
template <typename Row, typename Get>
Column<Row> BlobColumnOf(const char* name, Get) {
  return {name, [](Statement& statement, const Row& row) { statement.BindBlob(Get{}(row)); },
          [](const Statement& statement, int column, Row& row) {
            Get{}(row) = statement.Blob(column);
            return absl::OkStatus();
          }};
}

// Defines the column `name` of a table of `Row`, which is kept in the row's `field`. A blob is a
// std::string there.
#define TY_COLUMN(Row, name, field)  \
  ::trainyard::store::ColumnOf<Row>( \
      name, [](auto& row) -> auto& { return row.field; })
#define TY_BLOB_COLUMN(Row, name, field) \
  ::trainyard::store::BlobColumnOf<Row>( \
      name, [](auto& row) -> auto& { return row.field; })

// Calls `take(statement)` for each row. `take` returns a Status.
template <typename Take>
absl::Status ForEachRow(Statement& statement, Take take) {
  while (true) {
    absl::StatusOr<bool> row = statement.Step();
    if (!row.ok()) return row.status();
    if (!*row) return absl::OkStatus();
    absl::Status status = take(statement);
    if (!status.ok()) {
      statement.Reset();
      return status;
    }
  }
}

// A table of the database. It is immutable.
template <typename Row>
class Table {
 public:
  // Defines a table. The first `keys` columns are the primary key. Insert writes the first
  // `new_columns` (all if it is 0); the schema has defaults for the others.
  Table(absl::string_view name, size_t keys, std::vector<Column<Row>> columns,
        size_t new_columns = 0)
      : name_(name),
        keys_(keys),
        new_columns_(new_columns == 0 ? columns.size() : new_columns),
        columns_(std::move(columns)) {
    insert_ =
        absl::StrCat("INSERT INTO ", name, " (", Names(0, new_columns_, "", ", "), ") VALUES (?");
    for (size_t i = 1; i < new_columns_; ++i) insert_ += ", ?";
    insert_ += ")";
    add_ = absl::StrCat(insert_, " ON CONFLICT (", Names(0, keys_, "", ", "), ") DO NOTHING");
    put_ = absl::StrCat(insert_, " ON CONFLICT (", Names(0, keys_, "", ", "), ") DO UPDATE SET ");
    for (size_t i = keys_; i < columns_.size(); ++i) {
      absl::StrAppend(&put_, i == keys_ ? "" : ", ", columns_[i].name, " = excluded.",
                      columns_[i].name);
    }
    update_ = absl::StrCat("UPDATE ", name, " SET ", Names(keys_, columns_.size(), " = ?", ", "),
                           " WHERE ", Names(0, keys_, " = ?", " AND "));
    select_ = absl::StrCat("SELECT ", Names(0, columns_.size(), "", ", "), " FROM ", name, " ");
    order_ = absl::StrCat(select_, "ORDER BY ", Names(0, keys_, "", ", "));
    delete_.push_back(absl::StrCat("DELETE FROM ", name));
    for (size_t i = 1; i <= keys_; ++i) {
      delete_.push_back(absl::StrCat(delete_[0], " WHERE ", Names(0, i, " = ?", " AND ")));
    }
  }

  absl::Status Insert(Database& db, const Row& row) const { return Write(db, insert_, row); }
  // Adds a row, unless there is one with the same key.
  absl::Status Add(Database& db, const Row& row) const { return Write(db, add_, row); }
  // Adds a row, or replaces the one with the same key.
  absl::Status Put(Database& db, const Row& row) const { return Write(db, put_, row); }
  // Changes all columns of the row with the same key. Database::ChangedRows tells whether there is
  // one.
  absl::Status Update(Database& db, const Row& row) const {
    Statement& statement = db.Prepared(update_);
    for (size_t i = keys_; i < columns_.size(); ++i) columns_[i].bind(statement, row);
    for (size_t i = 0; i < keys_; ++i) columns_[i].bind(statement, row);
    return statement.Run();
  }
  // Deletes all rows whose key begins with `key`.
  template <typename... Key>
  absl::Status Delete(Database& db, const Key&... key) const {
    Statement& statement = db.Prepared(delete_[sizeof...(key)]);
    (BindField(statement, key), ...);
    return statement.Run();
  }

  // Calls `take(row)` for every row in the order of the key. `take` returns a Status.
  template <typename Take>
  absl::Status Read(Database& db, Take take) const {
    return Read(db.Prepared(order_), take);
  }
  // Returns a statement that selects some rows. The caller binds its values and passes it to the
  // Read below.
  Statement& Select(Database& db, absl::string_view clause) const {
    return db.Prepared(absl::StrCat(select_, clause));
  }
  template <typename Take>
  absl::Status Read(Statement& statement, Take take) const {
    return ReadDamaged(statement, [&](Row& row, absl::Status damage) -> absl::Status {
      return damage.ok() ? take(row) : damage;
    });
  }
  // Calls `take(row, damage)` for every row, also for those that hold a word that is none. Such a
  // field has its default, and `damage` says which one it is.
  template <typename Take>
  absl::Status ReadDamaged(Database& db, Take take) const {
    return ReadDamaged(db.Prepared(order_), take);
  }

 private:
  std::string Names(size_t from, size_t to, absl::string_view after,
                    absl::string_view between) const {
    std::string text;
    for (size_t i = from; i < to; ++i) {
      absl::StrAppend(&text, i == from ? "" : between, columns_[i].name, after);
    }
    return text;
  }
  absl::Status Write(Database& db, const std::string& sql, const Row& row) const {
    Statement& statement = db.Prepared(sql);
    for (size_t i = 0; i < new_columns_; ++i) columns_[i].bind(statement, row);
    return statement.Run();
  }

  template <typename Take>
  absl::Status ReadDamaged(Statement& statement, Take take) const {
    return ForEachRow(statement, [&](const Statement& found) -> absl::Status {
      Row row{};
      absl::Status damage;
      int column = 0;
      for (const Column<Row>& field : columns_) {
        const absl::Status status = field.take(found, column++, row);
        if (!status.ok()) damage.Update(Annotate(status, absl::StrCat(name_, ".", field.name)));
      }
      return take(row, damage);
    });
  }

  std::string name_;
  size_t keys_;
  size_t new_columns_;
  std::vector<Column<Row>> columns_;
  std::string insert_, add_, put_, update_, select_, order_;
  std::vector<std::string> delete_;  // by the number of key columns that are given
};

}  // namespace trainyard::store
