// Implements the targets and the waiting messages on SQLite.
#include "server/store/sqlite/notify_store.h"

#include <fcntl.h>

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "server/store/sqlite/migrations.h"
#include "server/store/sqlite/table.h"

namespace trainyard::store {
namespace {

constexpr char kReadTargets[] =
    "SELECT user, name, webhook, mail, events, signing_key, create_time_us FROM targets WHERE user "
    "= ? ORDER BY name";
constexpr char kAddTarget[] =
    "INSERT INTO targets (user, name, webhook, mail, events, signing_key, create_time_us) VALUES "
    "(?, ?, ?, ?, ?, ?, ?)";
constexpr char kDeleteTarget[] = "DELETE FROM targets WHERE user = ? AND name = ?";
constexpr char kDeleteWaiting[] =
    "DELETE FROM deliveries WHERE user = ? AND target = ? AND state = 'PENDING'";

constexpr char kAddDelivery[] =
    "INSERT INTO deliveries (id, user, target, webhook, mail, event, job, message, state, result, "
    "tries, create_time_us, last_try_us, next_try_us) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
    "?, ?) ON CONFLICT (id) DO NOTHING";
constexpr char kUpdateDelivery[] =
    "UPDATE deliveries SET message = ?, state = ?, result = ?, tries = ?, last_try_us = ?, "
    "next_try_us = ? WHERE id = ?";
#define TY_DELIVERY_COLUMNS                                                              \
  "number, id, user, target, webhook, mail, event, job, message, state, result, tries, " \
  "create_time_us, last_try_us, next_try_us FROM deliveries "
constexpr char kReadDue[] =
    "SELECT " TY_DELIVERY_COLUMNS
    "WHERE number IN (SELECT number FROM (SELECT number, ROW_NUMBER() OVER (PARTITION BY user "
    "ORDER "
    "BY next_try_us, number) AS place FROM (SELECT MIN(number) AS number, user, next_try_us FROM "
    "deliveries WHERE state = 'PENDING' AND next_try_us <= ? GROUP BY user, target, webhook, "
    "mail)) "
    "WHERE place <= 20) ORDER BY next_try_us, number LIMIT 1000";
constexpr char kReadDeliveries[] =
    "SELECT " TY_DELIVERY_COLUMNS
    "WHERE user = ? AND (? = '' OR target = ?) ORDER BY number DESC LIMIT ?";
#undef TY_DELIVERY_COLUMNS
constexpr char kReadNextDue[] =
    "SELECT next_try_us FROM deliveries WHERE state = 'PENDING' AND next_try_us > ? ORDER BY "
    "next_try_us LIMIT 1";
constexpr char kCountWaiting[] =
    "SELECT COUNT(*) FROM deliveries WHERE user = ? AND target = ? AND webhook = ? AND mail = ? "
    "AND "
    "state = 'PENDING' ORDER BY 1";
constexpr char kForgetDone[] =
    "DELETE FROM deliveries WHERE user = ? AND state != 'PENDING' AND number <= (SELECT number "
    "FROM "
    "deliveries WHERE user = ? AND state != 'PENDING' ORDER BY number DESC LIMIT 1 OFFSET ?)";
constexpr char kReadProgress[] = "SELECT last_event FROM progress ORDER BY id";
constexpr char kPutProgress[] =
    "INSERT INTO progress (id, last_event) VALUES (1, ?) ON CONFLICT (id) DO UPDATE SET last_event "
    "= excluded.last_event";

constexpr const char* kStates[] = {"PENDING", "DELIVERED", "GIVEN_UP"};

const char* StateText(DeliveryState state) {
  return kStates[static_cast<size_t>(state)];
}

DeliveryState ParseState(const std::string& text) {
  for (const auto state : {DeliveryState::kPending, DeliveryState::kDelivered}) {
    if (text == StateText(state)) return state;
  }
  return DeliveryState::kGivenUp;
}

TargetRecord TargetOf(const Statement& row) {
  return {row.Text(0), row.Text(1), row.Text(2), row.Text(3), static_cast<uint32_t>(row.Int(4)),
          row.Text(5), row.Int(6)};
}

absl::StatusOr<std::vector<DeliveryRecord>> ReadAll(Statement& statement) {
  std::vector<DeliveryRecord> found;
  TY_RETURN_IF_ERROR(ForEachRow(statement, [&](const Statement& row) {
    found.push_back({row.Int(0), row.Text(1), row.Text(2), row.Text(3), row.Text(4), row.Text(5),
                     row.Text(6), JobId{row.Int(7)}, row.Text(8), ParseState(row.Text(9)),
                     row.Text(10), row.Int32(11), row.Int(12), row.Int(13), row.Int(14)});
    return absl::OkStatus();
  }));
  return found;
}

// Returns the number in the only row, or nothing if there is none.
absl::StatusOr<std::optional<int64_t>> ReadNumber(Statement& statement) {
  TY_ASSIGN_OR_RETURN(const bool row, statement.Step());
  if (!row) return std::nullopt;
  const int64_t number = statement.Int(0);
  statement.Reset();
  return number;
}

}  // namespace

absl::StatusOr<std::unique_ptr<NotifyStore>> NotifyStore::Open(const std::string& path) {
  TY_RETURN_IF_ERROR(OpenRegularFile(path, O_WRONLY | O_CREAT, 0600).status());
  TY_ASSIGN_OR_RETURN(auto db, Database::Open(path, Database::Mode::kDurable));
  TY_RETURN_IF_ERROR(db->Execute("PRAGMA secure_delete = ON"));
  TY_RETURN_IF_ERROR(Migrate(*db, "notify", NotifyMigrations()));
  return std::unique_ptr<NotifyStore>(new NotifyStore(std::move(db)));
}

absl::StatusOr<std::vector<TargetRecord>> NotifyStore::ListTargets(const std::string& user) {
  const MutexLock lock(&mutex_);
  std::vector<TargetRecord> targets;
  TY_RETURN_IF_ERROR(ForEachRow(db_->Prepared(kReadTargets).Bind(user), [&](const Statement& row) {
    targets.push_back(TargetOf(row));
    return absl::OkStatus();
  }));
  return targets;
}

absl::StatusOr<TargetRecord> NotifyStore::FindTarget(const std::string& user,
                                                     const std::string& name) {
  TY_ASSIGN_OR_RETURN(const auto targets, ListTargets(user));
  for (const TargetRecord& target : targets) {
    if (target.name == name) return target;
  }
  return error::TargetNotFound(name);
}

absl::Status NotifyStore::AddTarget(const TargetRecord& target) {
  TY_ASSIGN_OR_RETURN(const auto targets, ListTargets(target.user));
  for (const TargetRecord& other : targets) {
    if (other.name != target.name) continue;
    return MakeError(absl::StatusCode::kAlreadyExists, "TARGET_EXISTS",
                     absl::StrCat("there is a target '", target.name,
                                  "' already; remove it with `trainyard notify rm ", target.name,
                                  "`, or choose another --name"));
  }
  if (targets.size() >= kTargetsOfUserMax) {
    return MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_TARGETS",
                     absl::StrCat("'", target.user, "' has ", targets.size(),
                                  " targets already; remove one with `trainyard notify rm NAME`"));
  }
  const MutexLock lock(&mutex_);
  return db_->Prepared(kAddTarget)
      .Bind(target.user)
      .Bind(target.name)
      .Bind(target.webhook)
      .Bind(target.mail)
      .Bind(int64_t{target.events})
      .Bind(target.signing_key)
      .Bind(target.create_us)
      .Run();
}

absl::Status NotifyStore::DeleteTarget(const std::string& user, const std::string& name) {
  const MutexLock lock(&mutex_);
  Transaction transaction(*db_);
  TY_RETURN_IF_ERROR(transaction.Begin());
  TY_RETURN_IF_ERROR(db_->Prepared(kDeleteTarget).Bind(user).Bind(name).Run());
  if (db_->ChangedRows() == 0) return error::TargetNotFound(name);
  TY_RETURN_IF_ERROR(db_->Prepared(kDeleteWaiting).Bind(user).Bind(name).Run());
  TY_RETURN_IF_ERROR(transaction.Commit());
  return db_->Prepared("PRAGMA wal_checkpoint(TRUNCATE)").Run();
}

absl::StatusOr<int64_t> NotifyStore::CountWaiting(const DeliveryRecord& delivery) {
  Statement& statement = db_->Prepared(kCountWaiting)
                             .Bind(delivery.user)
                             .Bind(delivery.target)
                             .Bind(delivery.webhook)
                             .Bind(delivery.mail);
  TY_ASSIGN_OR_RETURN(const auto count, ReadNumber(statement));
  return count.value_or(0);
}

absl::Status NotifyStore::Add(DeliveryRecord delivery) {
  TY_ASSIGN_OR_RETURN(const int64_t waiting, CountWaiting(delivery));
  if (delivery.state == DeliveryState::kPending && waiting >= kWaitingOfTargetMax) {
    delivery.state = DeliveryState::kGivenUp;
    delivery.result = absl::StrCat(waiting, " messages wait for this target already");
    delivery.message.clear();
  }
  return db_->Prepared(kAddDelivery)
      .Bind(delivery.id)
      .Bind(delivery.user)
      .Bind(delivery.target)
      .Bind(delivery.webhook)
      .Bind(delivery.mail)
      .Bind(delivery.event)
      .Bind(delivery.job.value)
      .Bind(delivery.message)
      .Bind(StateText(delivery.state))
      .Bind(delivery.result)
      .Bind(delivery.tries)
      .Bind(delivery.create_us)
      .Bind(delivery.last_try_us)
      .Bind(delivery.next_try_us)
      .Run();
}

absl::Status NotifyStore::AddDeliveries(const std::vector<DeliveryRecord>& deliveries,
                                        int64_t last_event) {
  const MutexLock lock(&mutex_);
  Transaction transaction(*db_);
  TY_RETURN_IF_ERROR(transaction.Begin());
  std::set<std::string> users;
  for (const DeliveryRecord& delivery : deliveries) {
    TY_RETURN_IF_ERROR(Add(delivery));
    users.insert(delivery.user);
  }
  for (const std::string& user : users) {
    TY_RETURN_IF_ERROR(db_->Prepared(kForgetDone).Bind(user).Bind(user).Bind(kDoneOfUserMax).Run());
  }
  TY_RETURN_IF_ERROR(db_->Prepared(kPutProgress).Bind(last_event).Run());
  return transaction.Commit();
}

absl::StatusOr<std::optional<int64_t>> NotifyStore::LastEvent() {
  const MutexLock lock(&mutex_);
  return ReadNumber(db_->Prepared(kReadProgress));
}

absl::StatusOr<std::vector<DeliveryRecord>> NotifyStore::Due(int64_t now_us) {
  const MutexLock lock(&mutex_);
  return ReadAll(db_->Prepared(kReadDue).Bind(now_us));
}

absl::StatusOr<std::optional<int64_t>> NotifyStore::NextDue(int64_t after_us) {
  const MutexLock lock(&mutex_);
  return ReadNumber(db_->Prepared(kReadNextDue).Bind(after_us));
}

absl::Status NotifyStore::Update(const DeliveryRecord& delivery) {
  const MutexLock lock(&mutex_);
  return db_->Prepared(kUpdateDelivery)
      .Bind(absl::string_view(delivery.state == DeliveryState::kPending ? delivery.message : ""))
      .Bind(StateText(delivery.state))
      .Bind(delivery.result)
      .Bind(delivery.tries)
      .Bind(delivery.last_try_us)
      .Bind(delivery.next_try_us)
      .Bind(delivery.id)
      .Run();
}

absl::StatusOr<std::vector<DeliveryRecord>> NotifyStore::ListDeliveries(const std::string& user,
                                                                        const std::string& target,
                                                                        int64_t limit) {
  const MutexLock lock(&mutex_);
  return ReadAll(db_->Prepared(kReadDeliveries).Bind(user).Bind(target).Bind(target).Bind(limit));
}

}  // namespace trainyard::store

namespace trainyard::error {

absl::Status TargetNotFound(absl::string_view name) {
  return MakeError(absl::StatusCode::kNotFound, "TARGET_NOT_FOUND",
                   absl::StrCat("there is no target '", name.substr(0, 64),
                                "'; list them with `trainyard notify ls`"));
}

}  // namespace trainyard::error
