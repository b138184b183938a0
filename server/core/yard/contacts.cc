// Keeps the sessions of the workers and their leases.
#include "server/core/yard/contacts.h"

#include <algorithm>
#include <utility>

namespace trainyard::core {

void Contacts::Expect(const WorkerRecord& worker, Now now) {
  Contact& contact = contacts_[worker.name];
  contact.last_seen_wall_us = worker.last_seen_us;
  contact.last_report_us = now.uptime_us;
  contact.last_hearing_us = now.uptime_us;
  contact.unreachable_since_us = now.uptime_us;
}

void Contacts::Open(const std::string& worker, const std::string& session, Now now) {
  const auto [known, is_new] = contacts_.try_emplace(worker);
  Contact& contact = known->second;
  const Contact before = std::exchange(contact, Contact{});
  if (!before.session.empty()) sessions_.erase(before.session);
  contact.datasets = before.datasets;
  contact.session = session;
  contact.last_seen_wall_us = now.wall_us;
  contact.last_report_us = now.uptime_us;
  contact.last_hearing_us = is_new ? now.uptime_us : before.last_hearing_us;
  contact.unreachable_since_us = before.unreachable_since_us;
  sessions_[session] = worker;
}

void Contacts::SetOnlyUser(const std::string& worker, const std::string& user) {
  contacts_.at(worker).users.only = user;
  if (!user.empty()) Name(user);
}

void Contacts::Name(const std::string& user) {
  if (named_users_.insert(user).second) newly_named_.insert(user);
}

void Contacts::Close(const std::string& worker) {
  Contact& contact = contacts_.at(worker);
  sessions_.erase(contact.session);
  Contact rest;
  rest.last_seen_wall_us = contact.last_seen_wall_us;
  rest.datasets = contact.datasets;
  contact = std::move(rest);
}

void Contacts::Forget(const std::string& worker) {
  const auto known = contacts_.find(worker);
  if (known == contacts_.end()) return;
  sessions_.erase(known->second.session);
  contacts_.erase(known);
}

const std::string* Contacts::WorkerOf(absl::string_view session) const {
  const auto found = sessions_.find(session);
  return found == sessions_.end() ? nullptr : &found->second;
}

const Contact* Contacts::Find(absl::string_view worker) const {
  const auto found = contacts_.find(worker);
  return found == contacts_.end() ? nullptr : &found->second;
}

bool Contacts::ShowsHearing(const Contact& contact, const SyncReport& report) {
  if (!contact.synced) return true;
  if (report.answers_heard.has_value()) return *report.answers_heard > contact.answers_heard;
  return report.desired_revision == contact.desired_revision ||
         report.desired_revision > contact.revision_taken;
}

void Contacts::NoteReport(const std::string& worker, const SyncReport& report, Now now) {
  Contact& contact = contacts_.at(worker);
  contact.last_seen_wall_us = now.wall_us;
  contact.last_report_us = now.uptime_us;
  if (ShowsHearing(contact, report)) contact.last_hearing_us = now.uptime_us;
  contact.answers_heard = std::max(contact.answers_heard, report.answers_heard.value_or(0));
  contact.revision_taken = std::max(contact.revision_taken, report.desired_revision);
}

bool Contacts::TakeReport(const std::string& worker, const SyncReport& report) {
  Contact& contact = contacts_.at(worker);
  std::map<AttemptId, Contact::Observed> observed;
  for (const ObservedAttempt& attempt : report.attempts) {
    observed[attempt.attempt] = {attempt.fencing_token, attempt.state};
  }
  bool is_news = !contact.synced || observed != contact.observed ||
                 report.refused_users != contact.users.refused ||
                 (report.leave_within_us > 0) != contact.leaves;
  const bool has_told = report.datasets != nullptr;
  if (has_told && (contact.datasets == nullptr || *contact.datasets != *report.datasets)) {
    contact.datasets = report.datasets;
    is_news = true;
  }
  contact.users.refused = report.refused_users;
  for (const auto& [user, why] : report.refused_users) Name(user);
  contact.synced = true;
  contact.sequence = report.sequence;
  contact.observed = std::move(observed);
  contact.leaves = report.leave_within_us > 0;
  contact.usage = report.usage;
  return is_news;
}

int64_t Contacts::LeaseDeadline(const std::string& worker) const {
  return contacts_.at(worker).last_hearing_us + lease_us_;
}

void Contacts::LoseTouch(const std::string& worker) {
  Contact& contact = contacts_.at(worker);
  contact.unreachable_since_us = contact.last_report_us + lease_us_;
}

bool Contacts::GiveOrders(const std::string& worker, std::vector<DesiredAttempt> desired) {
  const auto found = contacts_.find(worker);
  if (found == contacts_.end() || found->second.session.empty()) return false;
  Contact& contact = found->second;
  if (contact.desired_revision != 0 && desired == contact.desired) return false;
  contact.desired = std::move(desired);
  contact.desired_revision = ++last_revision_;
  return true;
}

}  // namespace trainyard::core
