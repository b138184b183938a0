// Lends connections that read, so that readers wait neither for one another nor for the writer.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "server/store/sqlite/database.h"

namespace trainyard::store {

// The pool. It is thread-safe, and must outlive what it lends.
class ConnectionPool {
 public:
  // A connection, in a transaction that sees one state of the file. It goes back with its end.
  class Reader {
   public:
    ~Reader();
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;
    Database& operator*() const { return *db_; }

   private:
    friend class ConnectionPool;
    Reader(ConnectionPool& pool, std::unique_ptr<Database> db)
        : pool_(pool), db_(std::move(db)), transaction_(std::make_unique<Transaction>(*db_)) {}

    ConnectionPool& pool_;
    std::unique_ptr<Database> db_;
    std::unique_ptr<Transaction> transaction_;
  };

  // Opens `count` connections to a file that another connection has made.
  static absl::StatusOr<std::unique_ptr<ConnectionPool>> Open(const std::string& path, int count);

  // Takes a connection. If all are lent, it waits for one.
  absl::StatusOr<std::unique_ptr<Reader>> Take();

  // Returns how many instructions SQLite has run in reads that have ended. Tests bound it, which
  // holds on every machine as no time does.
  int64_t instructions() const;

 private:
  ConnectionPool() = default;
  void GiveBack(std::unique_ptr<Database> db);

  mutable Mutex mutex_;
  CondVar given_back_;
  std::vector<std::unique_ptr<Database>> idle_ ABSL_GUARDED_BY(mutex_);
  int64_t instructions_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace trainyard::store
