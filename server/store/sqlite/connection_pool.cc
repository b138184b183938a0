// Keeps the connections that nobody uses at the moment.
#include "server/store/sqlite/connection_pool.h"

#include "common/base/status_macros.h"

namespace trainyard::store {

ConnectionPool::Reader::~Reader() {
  transaction_ = nullptr;
  pool_.GiveBack(std::move(db_));
}

absl::StatusOr<std::unique_ptr<ConnectionPool>> ConnectionPool::Open(const std::string& path,
                                                                     int count) {
  std::unique_ptr<ConnectionPool> pool(new ConnectionPool);
  for (int i = 0; i < count; ++i) {
    TY_ASSIGN_OR_RETURN(auto db, Database::Open(path, Database::Mode::kReadOnly));
    pool->GiveBack(std::move(db));
  }
  return pool;
}

absl::StatusOr<std::unique_ptr<ConnectionPool::Reader>> ConnectionPool::Take() {
  std::unique_ptr<Reader> reader;
  {
    const MutexLock lock(&mutex_);
    while (idle_.empty()) given_back_.Wait(&mutex_);
    reader.reset(new Reader(*this, std::move(idle_.back())));
    idle_.pop_back();
  }
  TY_RETURN_IF_ERROR(reader->transaction_->BeginRead());
  return reader;
}

void ConnectionPool::GiveBack(std::unique_ptr<Database> db) {
  const int64_t instructions = db->TakeInstructions();
  const MutexLock lock(&mutex_);
  idle_.push_back(std::move(db));
  instructions_ += instructions;
  given_back_.Signal();
}

int64_t ConnectionPool::instructions() const {
  const MutexLock lock(&mutex_);
  return instructions_;
}

}  // namespace trainyard::store
